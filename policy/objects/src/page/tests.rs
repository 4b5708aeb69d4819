use super::*;
use crate::{LOGGING, MIRROR, Pod};
use serde_json::json;

fn page(kind: &str, items: &[Value]) -> Vec<u8> {
    json!({
        "kind": format!("{kind}List"), "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "continue": "on"}, "items": items,
    })
    .to_string()
    .into_bytes()
}

fn read(kind: Kind, page: &[u8]) -> (Result<Page, PageError>, Vec<Result<Parsed, ReadError>>) {
    let mut read = Vec::new();
    let outcome = objects(kind, page, |item| read.push(item));
    (outcome, read)
}

fn pod() -> Value {
    json!({
        "metadata": {
            "name": "a", "namespace": "x", "uid": "u", "generation": 2,
            "labels": {"b": "2", "a": "1", "q": "\"\\u00e4"},
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"deep": [[{}]]}],
        },
        "spec": {
            "nodeName": "n1", "serviceAccountName": "web", "serviceAccount": "web", "hostNetwork": false,
            "containers": [{"ports": [{"name": "web", "containerPort": 80}, {"containerPort": 81}]}],
            "initContainers": [
                {"ports": [{"name": "once", "containerPort": 1}]},
                {"restartPolicy": "Always",
                 "ports": [{"name": "met", "protocol": "UDP", "containerPort": 9090}]},
            ],
        },
        "status": {
            "phase": "Running", "podIP": "10.0.0.1",
            "podIPs": [{"ip": "10.0.0.1"}, {"ip": "2001:db8::1"}],
        },
    })
}

#[test]
fn what_api_servers_write_is_read_without_a_tree() {
    let mut plain = pod();
    plain["metadata"]["labels"]["q"] = json!("1");
    for text in [plain.to_string(), serde_json::to_string_pretty(&plain).expect("JSON")] {
        let mut scan = Scan::at(scan::Text::new(text.as_bytes()), 0);
        let view = pod::pod(&mut scan).expect("nothing is odd");
        assert_eq!(scan.offset(), text.len());
        let read = Object::read_as(Kind::Pod, &plain).expect("a pod");
        assert_eq!(Object::Pod(Pod::from(view)), read.object);
    }
    let text = policy().to_string();
    assert!(network_policy::policy(&mut Scan::at(scan::Text::new(text.as_bytes()), 0)).is_some());
    let text = json!({"metadata": {"name": "n", "annotations": {"a": "\"{\n}"}}}).to_string();
    assert!(meta::namespace(&mut Scan::at(scan::Text::new(text.as_bytes()), 0)).is_some());
}

/// Results of the borrowing reader and of the other reader for a pod.
fn both(pod: &Value) -> (Option<Pod>, Option<Pod>) {
    let borrowed = borrowed_pod(&page("Pod", std::slice::from_ref(pod)));
    let read = Object::read_as(Kind::Pod, pod).ok().map(|parsed| parsed.object);
    let read = read.and_then(|object| if let Object::Pod(pod) = object { Some(pod) } else { None });
    (borrowed, read)
}

fn borrowed_pod(page: &[u8]) -> Option<Pod> {
    let mut borrowed = None;
    let outcome = pods(page, |item| borrowed = item.ok().map(Pod::from));
    assert_eq!(outcome.expect("a page").items, 1);
    borrowed
}

fn namespace_view(page: &[u8]) -> Option<crate::Namespace> {
    let mut borrowed = None;
    let outcome = namespaces(page, |item| borrowed = item.ok().map(crate::Namespace::from));
    assert_eq!(outcome.expect("a page").items, 1);
    borrowed
}

#[test]
fn a_pod_view_equals_the_read_pod() {
    let (borrowed, read) = both(&pod());
    let borrowed = borrowed.expect("a pod");
    assert_eq!(Some(&borrowed), read.as_ref());
    assert_eq!(
        (borrowed.meta.name.as_str(), borrowed.node.as_str(), borrowed.addresses.len()),
        ("a", "n1", 2)
    );
    let ports: Vec<_> = borrowed.ports.iter().map(|port| (port.name.as_str(), port.port)).collect();
    assert_eq!(ports, [("web", 80), ("met", 9090)]);
    assert_eq!(borrowed.meta.labels["q"], "\"\\u00e4");
}

#[test]
fn a_pod_view_equals_the_read_pod_after_any_replaced_field() {
    let others = [
        json!(null),
        json!(0),
        json!(70_000),
        json!(-1),
        json!(1.5),
        json!(""),
        json!("Failed"),
        json!("::ffff:10.0.0.1"),
        json!([]),
        json!([null]),
        json!([{}]),
        json!({}),
        json!({"a": 1}),
        json!(true),
        json!({"name": "web"}),
        json!("TCP"),
    ];
    let mut tried = 0;
    for way in ways(&pod()) {
        for other in &others {
            let mut changed = pod();
            *changed.pointer_mut(&way).expect("a way") = other.clone();
            let (borrowed, read) = both(&changed);
            assert_eq!(borrowed, read, "{way} = {other}");
            tried += 1;
        }
    }
    assert!(tried > 500, "{tried}");
}

/// The JSON pointers of all values within.
fn ways(value: &Value) -> Vec<String> {
    let below = |key: String, value: &Value| {
        let mut all = vec![format!("/{key}")];
        all.extend(ways(value).into_iter().map(|way| format!("/{key}{way}")));
        all
    };
    match value {
        Value::Object(map) => {
            map.iter().flat_map(|(key, value)| below(key.replace('/', "~1"), value)).collect()
        }
        Value::Array(items) => {
            let items = items.iter().enumerate();
            items.flat_map(|(index, value)| below(index.to_string(), value)).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

fn policy() -> Value {
    json!({
        "metadata": {"name": "p", "namespace": "x"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "a"}},
            "policyTypes": ["Ingress", "Egress"],
            "ingress": [{
                "from": [
                    {"podSelector": {"matchExpressions": [
                        {"key": "a", "operator": "In", "values": ["1", "2"]},
                        {"key": "b", "operator": "NotIn", "values": ["1"]},
                        {"key": "c", "operator": "Exists"},
                        {"key": "d", "operator": "DoesNotExist", "values": []},
                    ]}, "namespaceSelector": {}},
                    {"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.0.0.0/16"]}},
                ],
                "ports": [
                    {"protocol": "UDP", "port": 53}, {"port": "web"}, {"port": 1, "endPort": 9}, {},
                ],
            }],
            "egress": [{"to": [{"ipBlock": {"cidr": "2001:db8::/32"}}]}, {}],
        },
    })
}

#[test]
fn a_policy_is_read_without_a_tree_as_it_is_with_one_whatever_is_replaced() {
    let others = [
        json!(null),
        json!(0),
        json!(1),
        json!(443),
        json!(70_000),
        json!(-1),
        json!(""),
        json!("10.0.0.1/8"),
        json!("::ffff:10.0.0.0/104"),
        json!("010.0.0.0/8"),
        json!("10.0.0.0/33"),
        json!([]),
        json!([null]),
        json!([{}]),
        json!({}),
        json!({"new": 1}),
        json!({"new": null}),
        json!(true),
        json!("80"),
        json!("SCTP"),
        json!("a b"),
        json!(["Egress", "Egress"]),
        json!(["Egress"]),
    ];
    let mut without_tree = 0;
    let mut with_notes = 0;
    for way in ways(&policy()) {
        for other in &others {
            let mut changed = policy();
            *changed.pointer_mut(&way).expect("a way") = other.clone();
            let (outcome, read) =
                read(Kind::NetworkPolicy, &page("NetworkPolicy", &[changed.clone()]));
            assert_eq!(outcome.expect("a page").items, 1);
            let expected = Object::read_as(Kind::NetworkPolicy, &changed);
            assert_eq!(read[0].as_ref().ok(), expected.as_ref().ok(), "{way} = {other}");
            let text = changed.to_string();
            let strictly =
                network_policy::policy(&mut Scan::at(scan::Text::new(text.as_bytes()), 0));
            without_tree += usize::from(strictly.is_some());
            with_notes += usize::from(expected.is_ok_and(|parsed| !parsed.notes.is_empty()));
        }
    }
    assert!(without_tree > 80 && with_notes > 500, "{without_tree} {with_notes}");
}

/// An item's text in which one key occurs a second time with a value, before all keys or behind them.
fn twice(item: &Value, way: &str, other: &Value, before: bool) -> Option<String> {
    let (above, key) = way.rsplit_once('/')?;
    let mut item = item.clone();
    let marker = if before { "!twice" } else { "~twice" };
    item.pointer_mut(above)?.as_object_mut()?.insert(marker.to_owned(), other.clone());
    Some(item.to_string().replacen(marker, &key.replace("~1", "/"), 1))
}

#[test]
fn of_a_key_that_is_there_twice_the_last_is_read_with_a_tree_and_without() {
    let namespace = json!({"metadata": {
        "name": "n", "labels": {"a": "1"}, "annotations": {LOGGING: "true"},
    }});
    let others = [
        json!(null),
        json!("x"),
        json!(7),
        json!(true),
        json!([]),
        json!({}),
        json!({"name": "b"}),
    ];
    let (mut tried, mut apart) = (0, 0);
    for (kind, item) in
        [(Kind::Pod, pod()), (Kind::Namespace, namespace), (Kind::NetworkPolicy, policy())]
    {
        for way in ways(&item) {
            let own = item.pointer(&way).expect("a way").clone();
            for (other, before) in others.iter().chain([&own]).flat_map(|o| [(o, true), (o, false)])
            {
                let Some(text) = twice(&item, &way, other, before) else { continue };
                let last: Value = serde_json::from_str(&text).expect("JSON");
                let expected = Object::read_as(kind, &last).ok();
                let page = format!("{{\"items\":[{text}]}}");
                let (outcome, read) = read(kind, page.as_bytes());
                assert_eq!(outcome.expect("a page").items, 1);
                assert_eq!(read[0].as_ref().ok(), expected.as_ref(), "{text}");
                let borrowed = if kind == Kind::Pod {
                    borrowed_pod(page.as_bytes()).map(Object::Pod)
                } else if kind == Kind::Namespace {
                    namespace_view(page.as_bytes()).map(Object::Namespace)
                } else {
                    read.into_iter().next().and_then(Result::ok).map(|parsed| parsed.object)
                };
                assert_eq!(borrowed, expected.map(|parsed| parsed.object), "{text}");
                tried += 1;
                apart += usize::from(last != item);
            }
        }
    }
    assert!(tried > 1_000 && apart > 300, "{tried} {apart}");
}

#[test]
fn a_page_with_items_twice_is_none() {
    for (kind, items) in [("Pod", pod()), ("NetworkPolicy", policy())] {
        let text = format!("{{\"kind\":\"{kind}List\",\"items\":[{items}],\"items\":[]}}");
        let outcome = read(Kind::Pod, text.as_bytes()).0;
        assert!(matches!(outcome, Err(PageError::NoList { items: 1, .. })), "{outcome:?}");
    }
    let text =
        br#"{"kind":"A","kind":"PodList","metadata":{"continue":"a"},"metadata":{},"items":[]}"#;
    let page = read(Kind::Pod, text).0.expect("a page");
    assert_eq!((page.kind.as_str(), page.next.as_str()), ("PodList", ""));
}

#[test]
fn a_bad_item_is_reported_and_the_others_stand() {
    let nameless = json!({"metadata": {"namespace": "x"}});
    let items = [pod(), nameless, json!(7), pod()];
    let mut seen = Vec::new();
    let outcome = pods(&page("Pod", &items), |item| seen.push(item.is_ok()));
    assert_eq!(seen, [true, false, false, true]);
    let page = outcome.expect("a page");
    assert_eq!((page.kind.as_str(), page.next.as_str()), ("PodList", "on"));
    assert_eq!((page.resource_version.as_str(), page.items), ("7", 4));
}

#[test]
fn the_metadata_of_a_page_may_follow_its_items() {
    let text = br#" { "items": [ {"metadata":{"name":"n"}} , {"metadata":{"name":"m"}} ],
        "new": [{}], "metadata": {"continue": "c", "resourceVersion": "8"}, "kind": "NamespaceList" } "#;
    let mut names = Vec::new();
    let page = namespaces(text, |item| names.push(item.expect("one").meta.name.into_owned()));
    assert_eq!(names, ["n", "m"]);
    assert_eq!(page.expect("a page").next, "c");
}

#[test]
fn a_namespace_has_the_label_of_its_name() {
    let items = [json!({"metadata": {
        "name": "n", "annotations": {LOGGING: "true", "z": "1"},
        "labels": {"kubernetes.io/metadata.name": "other", "a": "1", "z": "2"},
    }})];
    let mut borrowed = Vec::new();
    namespaces(&page("Namespace", &items), |item| {
        borrowed.push(crate::Namespace::from(item.expect("one")));
    })
    .expect("a page");
    assert_eq!(borrowed[0].labels()[crate::NAME_LABEL], "n");
    assert_eq!(borrowed[0].meta.annotations[LOGGING], "true");
    let read = Object::read_as(Kind::Namespace, &items[0]).expect("a namespace");
    assert_eq!(Object::Namespace(borrowed.remove(0)), read.object);
}

#[test]
fn a_mirror_pod_has_the_uid_of_its_static_pod_and_no_other_annotation() {
    let items = [json!({"metadata": {
        "name": "p", "namespace": "n", "uid": "of the API",
        "annotations": {"a": "1", MIRROR: "of the kubelet", "kubernetes.io/config.source": "file"},
    }, "spec": {}, "status": {}})];
    let mut borrowed = Vec::new();
    pods(&page("Pod", &items), |item| borrowed.push(Pod::from(item.expect("one"))))
        .expect("a page");
    let wanted = [(MIRROR.to_owned(), "of the kubelet".to_owned())].into();
    assert_eq!(borrowed[0].meta.annotations, wanted);
    let read = Object::read_as(Kind::Pod, &items[0]).expect("a pod");
    assert_eq!(Object::Pod(borrowed.remove(0)), read.object);
}

#[test]
fn a_text_ends_where_it_does_whatever_is_before_and_behind_it() {
    let odd = ["\u{1}", "\u{1f}", "\t", "\\"];
    for length in 0..40 {
        for filling in ["a", " ", "!", "#", "[", "]", "\u{7f}", "\u{e4}", "\u{20ac}"] {
            let word = filling.repeat(length);
            for behind in ["", ",", "\"", "\u{1}\u{2}\"aaaaaaaaaaaa"] {
                let text = format!("\"{word}\"{behind}");
                let mut scan = Scan::at(scan::Text::new(text.as_bytes()), 0);
                assert_eq!(scan.text(), Some(word.as_str()), "{text:?}");
                assert_eq!(scan.offset(), word.len() + 2);
                let mut scan = Scan::at(scan::Text::new(text.as_bytes()), 0);
                assert_eq!((scan.skip(), scan.offset()), (Some(()), word.len() + 2));
                // A later part of the page is not UTF-8: this part is.
                let mut bytes = text.into_bytes();
                bytes.push(0xff);
                let mut scan = Scan::at(scan::Text::new(&bytes), 0);
                assert_eq!(scan.text(), Some(word.as_str()));
            }
            for odd in odd {
                let text = format!("\"{word}{odd}\"{word}\"");
                assert_eq!(Scan::at(scan::Text::new(text.as_bytes()), 0).text(), None, "{text:?}");
            }
            let escaped = format!("\"{word}\\\"{word}\"");
            let mut scan = Scan::at(scan::Text::new(escaped.as_bytes()), 0);
            assert_eq!((scan.skip(), scan.offset()), (Some(()), escaped.len()));
            let open = format!("\"{word}");
            assert_eq!(Scan::at(scan::Text::new(open.as_bytes()), 0).text(), None);
        }
    }
}

#[test]
fn a_page_that_is_cut_off_is_an_error_at_every_byte() {
    let whole = page("Pod", &[pod(), pod()]);
    for end in 0..whole.len() {
        let mut seen = 0;
        let outcome = pods(&whole[..end], |_| seen += 1);
        assert!(outcome.is_err(), "{end} bytes of {}", whole.len());
        assert!(seen <= 2);
    }
}

#[test]
fn a_refusal_is_no_empty_list() {
    let refusal = br#"{"kind":"Status","apiVersion":"v1","code":410}"#;
    let error = pods(refusal, |_| {}).expect_err("no list");
    assert_eq!(error.to_string(), "the page has no items: it is a `Status`");
    let empty = pods(br#"{"kind":"PodList","items":null}"#, |_| {}).expect("an empty list");
    assert_eq!(empty.items, 0);
}
