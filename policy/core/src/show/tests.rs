#![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

use super::*;
use crate::{Decision, Origin, Packet, Segment, State, World, verdict};
use policy_objects::{Named, Object, Protocol};
use proptest::prelude::*;
use serde_json::{Value, json};

fn world(objects: impl IntoIterator<Item = Value>) -> World {
    World::new(objects.into_iter().map(|object| Object::read_value(&object).unwrap().object))
}

fn pod(namespace: &str, name: &str, ip: &str, app: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": app, "pod": name}},
        "spec": {"nodeName": "n", "containers": [{"ports": [{"name": "web", "containerPort": 80}]}]},
        "status": {"podIPs": [{"ip": ip}]},
    })
}

fn policy(namespace: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": namespace}, "spec": spec,
    })
}

fn small() -> Vec<Value> {
    vec![
        pod("x", "a-1", "10.0.0.1", "a"),
        pod("x", "a-2", "10.0.0.2", "a"),
        pod("x", "b", "10.0.0.3", "b"),
        policy(
            "x",
            "b",
            json!({
                "podSelector": {"matchLabels": {"app": "b"}},
                "ingress": [{
                    "from": [{"podSelector": {"matchLabels": {"app": "a"}}}],
                    "ports": [{"port": "web"}, {"port": 1000, "endPort": 1999}],
                }],
            }),
        ),
    ]
}

#[test]
fn pods_that_no_policy_distinguishes_are_one_row() {
    let world = world(small());
    let matrix = Matrix::of(&world, &Samples::of(&[&world]));
    let names = |groups: &[Group]| -> Vec<String> {
        groups.iter().map(|group| group.name.clone()).collect()
    };
    assert_eq!(names(&matrix.sources), ["x (all 3)"]);
    assert_eq!(names(&matrix.destinations), ["x/a-* (2)", "x/b"]);
    let text: Vec<Vec<Option<String>>> = matrix
        .cells
        .iter()
        .map(|row| row.iter().map(|cell| cell.as_ref().map(ToString::to_string)).collect())
        .collect();
    let cell = |text: &str| Some(text.to_owned());
    assert_eq!(text, [[cell("all"), cell("TCP 80, TCP 1000-1999")]]);
}

#[test]
fn a_pod_and_itself_do_not_hide_that_two_differ() {
    let to_b = policy(
        "x",
        "b",
        json!({
            "podSelector": {"matchLabels": {"app": "b"}}, "ingress": [],
        }),
    );
    let pods = [pod("x", "a", "10.0.0.1", "a"), pod("x", "b", "10.0.0.2", "b")];
    let world = world(pods.into_iter().chain([to_b]));
    let matrix = Matrix::of(&world, &Samples::of(&[&world]));
    let place = |groups: &[Group], name: &str| {
        groups.iter().position(|group| group.pods.iter().any(|pod| pod.name == name)).unwrap()
    };
    let cell = |from, to| {
        let (from, to) = (place(&matrix.sources, from), place(&matrix.destinations, to));
        matrix.cells[from][to].as_ref().map(ToString::to_string)
    };
    assert_eq!(cell("a", "b").as_deref(), Some("none"));
    assert_eq!(cell("b", "a").as_deref(), Some("all"));
}

#[test]
fn with_ports_alone_these_are_asked() {
    let world = world(small());
    let matrix = Matrix::of(&world, &Samples::only(&[(Protocol::Tcp, 81)]));
    assert_eq!(matrix.destinations.len(), 2);
    assert!(matrix.cells[0][1].as_ref().is_some_and(Allowed::is_none));
    let matrix = Matrix::of(&world, &Samples::only(&[(Protocol::Tcp, 1500)]));
    assert_eq!(matrix.destinations.len(), 1, "all are alike");
    assert!(matrix.cells[0][0].as_ref().is_some_and(Allowed::is_all));
}

#[test]
fn a_change_names_the_pods_on_both_ends() {
    let before = world(small());
    let closed = policy("x", "b", json!({"podSelector": {"matchLabels": {"app": "b"}}}));
    let added = pod("x", "c", "10.0.0.4", "c");
    let after = world(small().into_iter().chain([closed, added]));
    let changes = changes(&before, &after, &Samples::of(&[&before, &after]));
    assert_eq!(changes.count(), 2);
    let [change] = changes.pairs.as_slice() else { panic!("{:?}", changes.pairs) };
    assert_eq!((change.from.as_str(), change.to.as_str()), ("x/a-* (2)", "x/b"));
    assert_eq!(change.before.to_string(), "TCP 80, TCP 1000-1999");
    assert_eq!(change.after.to_string(), "none");
    assert_eq!(changes.new.len(), 1);
    assert!(changes.gone.is_empty());
}

#[test]
fn equal_changes_are_one_line() {
    let before = world(small());
    let closed = policy("x", "all", json!({"podSelector": {}}));
    let after = world(small().into_iter().chain([closed]));
    let changes = changes(&before, &after, &Samples::of(&[&before, &after]));
    let told: Vec<(&str, &str)> =
        changes.pairs.iter().map(|change| (change.from.as_str(), change.to.as_str())).collect();
    assert_eq!(told, [("x (all 3)", "x/a-* (2)")]);
    assert_eq!(changes.count(), 4);
}

#[test]
fn address_families_with_different_verdicts_are_distinguished() {
    let mut both = [pod("x", "a", "10.0.0.1", "a"), pod("x", "b", "10.0.0.2", "b")];
    for (pod, ip) in both.iter_mut().zip(["2001:db8::1", "2001:db8::2"]) {
        pod["status"]["podIPs"].as_array_mut().unwrap().push(json!({"ip": ip}));
    }
    let only_v4 = policy(
        "x",
        "b",
        json!({
            "podSelector": {"matchLabels": {"app": "b"}},
            "ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/8"}}]}],
        }),
    );
    let world = world(both.into_iter().chain([only_v4]));
    let name = |name: &str| Named { namespace: "x".to_owned(), name: name.to_owned() };
    let (a, b) = (world.pod(&name("a")).unwrap(), world.pod(&name("b")).unwrap());
    let samples = Samples::of(&[&world]);
    assert_eq!(samples.ask(&world, a, b).unwrap().to_string(), "IPv4: all; IPv6: none");
    assert_eq!(samples.ask(&world, b, a).unwrap().to_string(), "all");
}

#[test]
fn nothing_changes_between_a_world_and_itself() {
    let world = world(small());
    assert_eq!(changes(&world, &world, &Samples::of(&[&world])), Changes::default());
}

#[test]
fn a_service_leads_to_its_own_pods_and_ports() {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "b", "namespace": "x"},
        "spec": {"clusterIP": "172.20.0.1", "selector": {"app": "b"},
                 "ports": [{"port": 8080, "targetPort": "web"}]},
    });
    let world = world(small().into_iter().chain([service]));
    let ask = |to, service| {
        packet(&world, &Question { from: "x/a-1", to, protocol: "tcp", service: Some(service) })
    };
    let found = ask("x/b", "x/b").unwrap();
    assert_eq!(found.service, Some("172.20.0.1".parse().unwrap()));
    assert_eq!(
        found.segment,
        Segment::Ports { protocol: Protocol::Tcp, source: 40000, destination: 80 }
    );
    assert!(matches!(ask("x/b:81", "x/b"), Err(Unclear::OtherPorts { .. })));
    assert!(matches!(ask("x/a-2:80", "x/b"), Err(Unclear::NotBehind { .. })));
    assert!(matches!(ask("x/b:80", "x/c"), Err(Unclear::NoService(_))));
    assert!(matches!(ask("172.20.0.1:8080", "x/b"), Err(Unclear::ServiceAddress { .. })));
}

#[test]
fn who_sends_is_known_by_the_address() {
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
        "status": {"addresses": [{"type": "InternalIP", "address": "192.168.0.1"}]},
    });
    let world = world(small().into_iter().chain([node]));
    let origin = |from| {
        let question = Question { from, to: "x/b:80", protocol: "tcp", service: None };
        packet(&world, &question).unwrap().origin
    };
    assert!(matches!(origin("10.0.0.1"), Origin::Pod(pod) if pod.name == "a-1"));
    assert_eq!(origin("192.168.0.1"), Origin::Node("n".to_owned()));
    assert_eq!(origin("198.51.100.7"), Origin::Forwarded);
}

/// A selector by one of two labels, or of all.
fn selector() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        "[ab]".prop_map(|app| json!({"matchLabels": {"app": app}})),
        "p[0-5]".prop_map(|pod| json!({"matchExpressions": [
            {"key": "pod", "operator": "NotIn", "values": [pod]},
        ]})),
    ]
}

fn rule() -> impl Strategy<Value = Value> {
    let peer = prop_oneof![
        selector().prop_map(|pods| json!({"podSelector": pods, "namespaceSelector": {}})),
        selector().prop_map(|pods| json!({"podSelector": pods})),
        (0..8u8, 29..=32u8).prop_map(|(last, length)| {
            json!({"ipBlock": {"cidr": format!("10.0.0.{last}/{length}")}})
        }),
    ];
    let port = prop_oneof![
        Just(json!([])),
        Just(json!([{"port": "web"}])),
        (1..90u16, 0..5u16)
            .prop_map(|(port, more)| json!([{"port": port, "endPort": port + more}])),
        Just(json!([{"protocol": "UDP"}])),
    ];
    (peer, port).prop_map(|(peer, ports)| json!({"from": [peer], "ports": ports}))
}

fn worlds() -> impl Strategy<Value = Vec<Value>> {
    let policies =
        prop::collection::vec((selector(), prop::collection::vec(rule(), 0..3), "[xy]"), 0..4);
    (prop::collection::vec(("[xy]", "[ab]"), 1..6), policies).prop_map(|(pods, policies)| {
        let mut objects = Vec::new();
        for (number, (namespace, app)) in pods.iter().enumerate() {
            let ip = format!("10.0.0.{}", number + 1);
            objects.push(pod(namespace, &format!("p{number}"), &ip, app));
        }
        for (number, (pods, rules, namespace)) in policies.into_iter().enumerate() {
            let spec = json!({"podSelector": pods, "ingress": rules});
            objects.push(policy(&namespace, &format!("n{number}"), spec));
        }
        objects
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_matrix_agrees_with_verdict_for_each_pair_and_port(
        objects in worlds(),
        port in 1..100u16,
        udp in any::<bool>(),
    ) {
        let world = world(objects);
        let matrix = Matrix::of(&world, &Samples::of(&[&world]));
        let protocol = if udp { Protocol::Udp } else { Protocol::Tcp };
        let only = Matrix::of(&world, &Samples::only(&[(protocol, port)]));
        let place = |groups: &[Group], pod: &Named| {
            groups.iter().position(|group| group.pods.contains(pod)).unwrap()
        };
        let cell = |matrix: &Matrix, one: &Named, two: &Named| {
            let (row, column) = (place(&matrix.sources, one), place(&matrix.destinations, two));
            matrix.cells[row][column].clone()
        };
        for from in world.pods() {
            for to in world.pods() {
                let (one, two) = (ask::named(from), ask::named(to));
                if one == two {
                    continue;
                }
                let packet = Packet {
                    origin: Origin::Pod(one.clone()),
                    source: from.addresses[0],
                    destination: to.addresses[0],
                    service: None,
                    segment: Segment::Ports { protocol, source: 40000, destination: port },
                    state: State::New,
                };
                let passes = verdict(&world, &packet).decision == Decision::Allow;
                let asked = cell(&only, &one, &two);
                prop_assert_eq!(asked.as_ref().unwrap().is_all(), passes);
                let asked = cell(&matrix, &one, &two);
                prop_assert_eq!(
                    asked.as_ref().unwrap().has(protocol, port, &Samples::of(&[&world])), passes
                );
            }
        }
    }
}
