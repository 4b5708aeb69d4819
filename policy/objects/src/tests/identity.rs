use crate::{Kind, Object, ReadError, Severity};
use serde_json::{Value, json};

fn object(api_version: &str, kind: &str, metadata: &Value) -> Value {
    json!({"apiVersion": api_version, "kind": kind, "metadata": metadata})
}

#[test]
fn every_kind_is_found_by_group_version_and_name() {
    for kind in Kind::ALL {
        assert_eq!(Kind::of(kind.api_version(), kind.name()), Some(kind));
        let metadata =
            json!({"name": "n", "namespace": if kind.is_namespaced() { "x" } else { "" }});
        let parsed = Object::read_value(&object(kind.api_version(), kind.name(), &metadata));
        assert_eq!(parsed.expect("an identity").object.kind(), kind);
    }
    assert_eq!(Kind::of("v1", "NetworkPolicy"), None);
    assert_eq!(Kind::of("networking.k8s.io/v1", "Pod"), None);
}

#[test]
fn what_of_the_identity_cannot_be_read_is_named() {
    let read = |json: &[u8]| Object::read(json).expect_err("no identity");
    assert!(matches!(read(b"{"), ReadError::NotJson { .. }));
    assert!(matches!(read(b"[]"), ReadError::NoObject));
    assert!(matches!(read(b"{}"), ReadError::NoKind));
    assert!(matches!(read(br#"{"kind":"Pod"}"#), ReadError::NoKind));
    for metadata in [
        json!({}),
        json!(null),
        json!([]),
        json!({"name": ""}),
        json!({"name": 7}),
        json!({"generateName": "a-"}),
    ] {
        let read = Object::read_value(&object("v1", "Pod", &metadata));
        assert!(matches!(read, Err(ReadError::NoName { kind: Kind::Pod })), "{metadata}");
    }
}

#[test]
fn a_kind_that_is_not_ours_is_named_with_its_current_form() {
    for (version, kind, current) in [
        ("cilium.io/v2", "CiliumNetworkPolicy", None),
        ("apps/v1", "Deployment", None),
        (
            "policy.networking.k8s.io/v1alpha1",
            "AdminNetworkPolicy",
            Some(Kind::ClusterNetworkPolicy),
        ),
        ("extensions/v1beta1", "NetworkPolicy", Some(Kind::NetworkPolicy)),
        ("crd.antrea.io/v1alpha1", "Tier", Some(Kind::AntreaTier)),
        ("policy.networking.k8s.io/v1", "ClusterNetworkPolicy", Some(Kind::ClusterNetworkPolicy)),
    ] {
        let metadata = json!({"name": "n", "namespace": "x"});
        let error = Object::read_value(&object(version, kind, &metadata)).expect_err("not ours");
        let ReadError::Foreign { api_version, kind: name, known, namespace, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((api_version.as_str(), name.as_str(), known), (version, kind, current));
        assert_eq!(namespace, "x");
    }
}

#[test]
fn identity_is_read_with_what_a_file_leaves_out() {
    let parsed = Object::read_value(&object(
        "v1",
        "Namespace",
        &json!({
            "name": "n", "uid": "u", "generation": 3, "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"a": "1", "b": 2, "kubernetes.io/metadata.name": "forged"},
            "annotations": {"networkpolicy.antrea.io/enable-logging": "true", "other": "1"},
        }),
    ))
    .expect("an identity");
    let meta = parsed.object.meta();
    assert_eq!((meta.uid.as_str(), meta.generation), ("u", 3));
    assert_eq!(meta.labels.len(), 2, "{:?}", meta.labels);
    assert_eq!(meta.labels["kubernetes.io/metadata.name"], "n");
    assert_eq!(meta.annotations.len(), 1);
    assert_eq!(parsed.notes[0].severity, Severity::Error);
    assert_eq!(parsed.notes[0].field, "metadata.labels.b");
}

#[test]
fn a_namespace_that_is_missing_or_too_much_is_noted() {
    let read = |version, kind, metadata| {
        let parsed = Object::read_value(&object(version, kind, &metadata)).expect("an identity");
        (parsed.object.meta().namespace.clone(), parsed.notes.len())
    };
    assert_eq!(read("v1", "Pod", json!({"name": "n"})), ("default".to_owned(), 1));
    assert_eq!(read("v1", "Node", json!({"name": "n", "namespace": "x"})), (String::new(), 1));
}

#[test]
fn a_list_is_read_as_its_items_and_a_bad_one_is_reported() {
    let named = |name: &str| json!({"metadata": {"name": name, "namespace": "x"}});
    let pods =
        json!({"apiVersion": "v1", "kind": "PodList", "items": [named("a"), {}, named("b")]});
    let policy =
        object("networking.k8s.io/v1", "NetworkPolicy", &json!({"name": "p", "namespace": "x"}));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": [policy, pods, {"kind": "X"}]});
    let read = Object::read_all(list.to_string().as_bytes());
    let names: Vec<Option<String>> =
        read.iter().map(|read| read.as_ref().ok().map(|p| p.object.meta().name.clone())).collect();
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(names, [some("p"), some("a"), None, some("b"), None]);
    assert_eq!(Object::read_all(b"no JSON").len(), 1);
    assert_eq!(Object::read_all(policy.to_string().as_bytes()).len(), 1);
}

#[test]
fn a_field_of_the_object_that_is_not_known_is_noted() {
    let mut written =
        object("networking.k8s.io/v1", "NetworkPolicy", &json!({"name": "p", "namespace": "x"}));
    written["Spec"] = json!({});
    let parsed = Object::read_value(&written).expect("an identity");
    let fields: Vec<&str> = parsed.notes.iter().map(|note| note.field.as_str()).collect();
    assert_eq!(fields, ["Spec", "spec"]);
}

#[test]
fn no_object_gets_more_notes_than_people_can_read() {
    // A warning and an error.
    let odd = json!({"from": [{"ipBlock": {"cidr": "10.0.0.1/8"}}, {}]});
    let mut written =
        object("networking.k8s.io/v1", "NetworkPolicy", &json!({"name": "p", "namespace": "x"}));
    for (rules, most) in [(50, 50), (51, 51), (10_000, 51)] {
        written["spec"] = json!({"podSelector": {}, "ingress": vec![odd.clone(); rules]});
        let parsed = Object::read_value(&written).expect("an identity");
        for (severity, what) in [(Severity::Warning, "warnings"), (Severity::Error, "errors")] {
            let notes = || parsed.notes.iter().filter(|note| note.severity == severity);
            assert_eq!(notes().count(), most, "{rules} {what}");
            let more = notes().find(|note| note.text.contains("left out"));
            assert_eq!(more.is_some(), rules > 50);
            if let Some(note) = more {
                assert!(note.field.starts_with("spec.ingress[50]"), "{note:?}");
                let left = format!("{what} left out from here on: {};", rules - 50);
                assert!(note.text.starts_with(&left), "{note:?}");
            }
        }
        // The limit applies to notes, not to decisions: each rule fails closed, listed or not.
        let Object::NetworkPolicy(policy) = parsed.object else { panic!("another kind") };
        assert!(policy.ingress.iter().all(|rule| rule.known().is_none()));
    }
}

#[test]
fn a_doubt_behind_the_last_note_is_a_doubt() {
    let odd = vec![json!({"action": "Drop", "from": [{"podSelector": {"a": 1}}]}); 200];
    let mut written =
        object("crd.antrea.io/v1beta1", "ClusterNetworkPolicy", &json!({"name": "p"}));
    let last = json!({"action": "Allow", "appliedTo": [{"podSelector": {"a": 1}}]});
    written["spec"] = json!({"priority": 1, "ingress": odd, "egress": [last]});
    let parsed = Object::read_value(&written).expect("an identity");
    let Object::AntreaPolicy(policy) = parsed.object else { panic!("another kind") };
    assert!(policy.ingress.iter().all(|entry| entry.rule.known().is_none()));
    assert!(policy.egress[0].applied_to[0].doubt.is_some());
}

#[test]
fn a_list_without_an_array_of_items_is_an_error() {
    let policies = ("networking.k8s.io/v1", "NetworkPolicyList");
    for ((version, kind), wrong) in [
        (policies, json!({"items": {"a": {}}})),
        (policies, json!({"item": []})),
        (("v1", "List"), json!({"item": []})),
        (("v1", "List"), json!({"items": "none"})),
        (("v1", "List"), json!({"items": null})),
    ] {
        let mut list = wrong.clone();
        list["apiVersion"] = version.into();
        list["kind"] = kind.into();
        let read = Object::read_all_values(&list);
        match wrong.get("items") {
            Some(Value::Null) => assert!(read.is_empty(), "{list}"),
            _ => assert!(matches!(&*read, [Err(ReadError::NoItems { .. })]), "{list}"),
        }
    }
}
