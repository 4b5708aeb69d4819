use super::fields;
use crate::{
    ContainerPort, Node, Note, Object, Operator, Phase, Pod, Protocol, Read, Requirement, Selector,
    Service, ServiceTarget, Severity,
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

fn read(kind: &str, spec: &Value, status: &Value) -> (Object, Vec<Note>) {
    let parsed = Object::read_value(&json!({
        "apiVersion": "v1", "kind": kind, "spec": spec, "status": status,
        "metadata": {"name": "a", "namespace": if kind == "Node" { "" } else { "x" }},
    }))
    .expect("an identity");
    (parsed.object, parsed.notes)
}

fn pod(spec: &Value, status: &Value) -> (Pod, Vec<Note>) {
    let (Object::Pod(pod), notes) = read("Pod", spec, status) else { panic!("another kind") };
    (pod, notes)
}

fn service(spec: &Value) -> (Service, Vec<Note>) {
    service_with(spec, &json!({}))
}

fn service_with(spec: &Value, status: &Value) -> (Service, Vec<Note>) {
    let (object, notes) = read("Service", spec, status);
    let Object::Service(service) = object else { panic!("another kind") };
    (service, notes)
}

fn port(name: &str, protocol: Protocol, port: u16) -> ContainerPort {
    ContainerPort { name: name.to_owned(), protocol, port }
}

#[test]
fn a_pod_has_defaults() {
    let (pod, notes) = pod(&json!({}), &json!(null));
    assert_eq!((pod.node.as_str(), pod.service_account.as_str()), ("", "default"));
    assert_eq!((pod.host_network, pod.phase), (false, Phase::Live));
    assert_eq!((pod.addresses, pod.ports, notes), (vec![], vec![], vec![]));
}

#[test]
fn a_pod_with_an_invalid_host_network_has_its_own_network_and_a_note() {
    for odd in [json!("true"), json!("yes"), json!(1), json!([true]), json!({"a": true})] {
        let (pod, notes) = pod(&json!({"hostNetwork": odd}), &json!({}));
        assert!(!pod.host_network, "{odd}");
        assert_eq!(fields(&notes, Severity::Error), ["spec.hostNetwork"], "{odd}");
    }
    for (plain, is) in [(json!(true), true), (json!(false), false), (json!(null), false)] {
        let (pod, notes) = pod(&json!({"hostNetwork": plain}), &json!({}));
        assert_eq!((pod.host_network, notes), (is, vec![]), "{plain}");
    }
}

#[test]
fn a_service_account_may_have_its_old_name() {
    let account = |spec: Value| {
        let (pod, notes) = pod(&spec, &json!({}));
        (pod.service_account, fields(&notes, Severity::Warning).len())
    };
    let old = json!({"serviceAccount": "old"});
    assert_eq!(account(old), ("old".to_owned(), 0));
    let empty = json!({"serviceAccountName": "", "serviceAccount": "old"});
    assert_eq!(account(empty), ("old".to_owned(), 0));
    let both = json!({"serviceAccountName": "a", "serviceAccount": "a"});
    assert_eq!(account(both), ("a".to_owned(), 0));
    let apart = json!({"serviceAccountName": "a", "serviceAccount": "old"});
    assert_eq!(account(apart), ("a".to_owned(), 1));
}

#[test]
fn nothing_of_another_kind_is_passed_over_in_silence() {
    let fields = |kind: &str, spec: Value, status: Value| {
        read(kind, &spec, &status).1.into_iter().map(|note| note.field).collect::<Vec<_>>()
    };
    let none = json!({});
    assert_eq!(fields("Pod", json!("x"), json!([1])), ["spec", "status"]);
    assert_eq!(fields("Pod", json!({"containers": [7]}), none.clone()), ["spec.containers[0]"]);
    let port = json!({"containers": [{"ports": [80]}]});
    assert_eq!(fields("Pod", port, none.clone()), ["spec.containers[0].ports[0]"]);
    let again = json!({"initContainers": [{"restartPolicy": true, "ports": []}]});
    assert_eq!(fields("Pod", again, none.clone()), ["spec.initContainers[0].restartPolicy"]);
    assert_eq!(fields("Pod", none.clone(), json!({"podIPs": [{}]})), ["status.podIPs[0]"]);
    assert_eq!(fields("Pod", none.clone(), json!({"phase": "failed"})), ["status.phase"]);
    assert_eq!(fields("Pod", none.clone(), json!({"phase": 1})), ["status.phase"]);
    let lone = json!({"addresses": [{"type": "InternalIP"}, {"address": "10.0.0.1"}, "10.0.0.2"]});
    let odd = ["status.addresses[0]", "status.addresses[1]", "status.addresses[2]"];
    // The last error is reported first, as for an item that is not an object.
    assert_eq!(
        BTreeSet::from_iter(fields("Node", none.clone(), lone)),
        odd.map(String::from).into()
    );
    assert_eq!(fields("Node", none.clone(), json!(7)), ["status"]);
    assert_eq!(
        fields("Service", json!({"clusterIPs": "10.0.0.1"}), none.clone()),
        ["spec.clusterIPs"]
    );
    assert_eq!(fields("Service", json!({"ports": [80]}), none.clone()), ["spec.ports[0]"]);
    assert_eq!(fields("Service", json!(7), none), ["spec"]);
}

#[test]
fn a_pod_is_ended_when_it_succeeded_or_failed_and_not_while_it_is_deleted() {
    for (phase, expected) in [
        ("Pending", Phase::Live),
        ("Running", Phase::Live),
        ("Unknown", Phase::Live),
        ("Succeeded", Phase::Ended),
        ("Failed", Phase::Ended),
    ] {
        assert_eq!(pod(&json!({}), &json!({"phase": phase})).0.phase, expected, "{phase}");
    }
}

#[test]
fn a_pod_has_every_address_of_both_families_or_the_one() {
    let addresses = |status: Value| {
        let (pod, notes) = pod(&json!({}), &status);
        let all: Vec<String> = pod.addresses.iter().map(ToString::to_string).collect();
        (all, fields(&notes, Severity::Error).len())
    };
    let both = json!({"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "2001:db8::1"}]});
    assert_eq!(addresses(both), (vec!["10.0.0.1".to_owned(), "2001:db8::1".to_owned()], 0));
    assert_eq!(addresses(json!({"podIP": "10.0.0.1"})), (vec!["10.0.0.1".to_owned()], 0));
    assert_eq!(addresses(json!({"podIP": "", "podIPs": []})), (vec![], 0));
    assert_eq!(addresses(json!({"podIP": "::ffff:10.0.0.1"})), (vec!["10.0.0.1".to_owned()], 0));
    let odd = json!({"podIPs": [{"ip": "10.0.0"}, {"ip": "10.0.0.2"}]});
    assert_eq!(addresses(odd), (vec!["10.0.0.2".to_owned()], 1));
}

#[test]
fn named_ports_are_those_of_containers_then_of_sidecars() {
    let (pod, notes) = pod(
        &json!({
            "initContainers": [
                {"ports": [{"name": "once", "containerPort": 1}]},
                {"restartPolicy": "Always", "ports": [{"name": "met", "containerPort": 9090}]},
            ],
            "containers": [{"ports": [
                {"name": "web", "containerPort": 80}, {"containerPort": 81},
                {"name": "dns", "protocol": "UDP", "containerPort": 53},
                {"name": "web", "containerPort": 8080}, {"name": "bad", "containerPort": 0},
            ]}],
        }),
        &json!({}),
    );
    assert_eq!(
        pod.ports,
        [
            port("web", Protocol::Tcp, 80),
            port("dns", Protocol::Udp, 53),
            port("web", Protocol::Tcp, 8080),
            port("met", Protocol::Tcp, 9090),
        ]
    );
    assert_eq!(fields(&notes, Severity::Warning), ["spec.containers[0].ports[3].name"]);
    assert_eq!(fields(&notes, Severity::Error), ["spec.containers[0].ports[4].containerPort"]);
}

#[test]
fn a_node_has_its_addresses_and_not_its_names() {
    let status = json!({"addresses": [
        {"type": "InternalIP", "address": "192.168.0.1"}, {"type": "Hostname", "address": "n1"},
        {"type": "ExternalIP", "address": "198.51.100.1"}, {"type": "InternalIP", "address": "x"},
    ]});
    let (Object::Node(Node { addresses, .. }), notes) = read("Node", &json!({}), &status) else {
        panic!("another kind")
    };
    let all: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    assert_eq!(all, ["192.168.0.1", "198.51.100.1"]);
    assert_eq!(fields(&notes, Severity::Error), ["status.addresses[3].address"]);
}

#[test]
fn a_node_that_is_deleted_or_tainted_by_the_autoscaler_is_leaving() {
    let is_leaving = |metadata: &Value, spec: &Value| {
        let node = json!({
            "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": spec, "status": {},
        });
        let parsed = Object::read_value(&node).expect("an identity");
        let Object::Node(node) = parsed.object else { panic!("another kind") };
        assert!(parsed.notes.is_empty(), "{:?}", parsed.notes);
        node.is_leaving
    };
    let (name, tainted) = (json!({"name": "n1"}), |key| json!({"taints": [{"key": key}]}));
    assert!(!is_leaving(&name, &json!({})));
    assert!(!is_leaving(&name, &tainted("node.kubernetes.io/unschedulable")));
    assert!(is_leaving(&name, &tainted("ToBeDeletedByClusterAutoscaler")));
    let deleted = json!({"name": "n1", "deletionTimestamp": "2026-03-01T00:00:00Z"});
    assert!(is_leaving(&deleted, &json!({})));
}

#[test]
fn a_service_has_addresses_ports_and_perhaps_a_selector() {
    let (read, notes) = service(&json!({
        "clusterIP": "10.100.0.1", "clusterIPs": ["10.100.0.1", "2001:db8::1"],
        "selector": {"app": "a"},
        "ports": [
            {"port": 80, "targetPort": 8080}, {"name": "dns", "protocol": "UDP", "port": 53},
            {"port": 81, "targetPort": "web"},
        ],
    }));
    assert_eq!(notes, []);
    assert_eq!(read.cluster_ips.known().map(Vec::len), Some(2));
    assert_eq!(read.selector, Read::Known(Some(Selector::equal("app", "a"))));
    let targets: Vec<_> = read.ports.into_iter().map(|port| port.target).collect();
    let web = ServiceTarget::Name("web".to_owned());
    assert_eq!(targets, [Some(ServiceTarget::Number(8080)), None, Some(web)]);
    let (headless, _) = service(&json!({"clusterIP": "None", "clusterIPs": ["None"]}));
    assert_eq!(headless.cluster_ips, Read::Known(vec![]));
    assert_eq!(headless.selector, Read::Known(None));
    let (bare, _) = service(&json!({"clusterIP": "10.100.0.2", "selector": {}}));
    assert_eq!(bare.cluster_ips.known().map(Vec::len), Some(1));
    assert_eq!(bare.selector, Read::Known(None));
}

#[test]
fn a_service_is_reached_at_external_addresses_and_at_its_load_balancers() {
    let outer = |spec: Value, status: Value| {
        let (read, notes) = service_with(&spec, &status);
        let all: Vec<String> = read.outer_ips.iter().map(ToString::to_string).collect();
        let odd = fields(&notes, Severity::Error).into_iter().map(ToOwned::to_owned);
        (all, odd.collect::<Vec<String>>())
    };
    let (all, notes) = outer(
        json!({"externalIPs": ["198.51.100.7", "2001:db8::7"], "loadBalancerIP": "198.51.100.8"}),
        json!({"loadBalancer": {"ingress": [
            {"ip": "198.51.100.9"}, {"hostname": "a.elb.amazonaws.com"},
        ]}}),
    );
    assert_eq!(all, ["198.51.100.7", "2001:db8::7", "198.51.100.9"]);
    assert!(notes.is_empty(), "{notes:?}");
    let (all, notes) = outer(
        json!({"externalIPs": ["x", "198.51.100.7", 7]}),
        json!({"loadBalancer": {"ingress": [{"ip": "y"}, "z", {"ip": "198.51.100.9"}]}}),
    );
    assert_eq!(all, ["198.51.100.7", "198.51.100.9"]);
    assert_eq!(
        notes,
        [
            "spec.externalIPs[0]",
            "spec.externalIPs[2]",
            "status.loadBalancer.ingress[1]",
            "status.loadBalancer.ingress[0].ip",
        ]
    );
    for odd in [json!("x"), json!({"loadBalancer": "x"}), json!({"loadBalancer": {"ingress": 1}})] {
        assert_eq!(outer(json!({}), odd).0, Vec::<String>::new());
    }
}

#[test]
fn a_service_that_is_not_understood_is_none_without_selector_or_address() {
    for spec in [json!({"selector": "a"}), json!({"selector": {"a": 1}}), json!("x")] {
        let (read, notes) = service(&spec);
        assert_eq!(read.selector.known(), None, "{spec}");
        assert!(!fields(&notes, Severity::Error).is_empty(), "{spec}");
    }
    for (spec, field) in [
        (json!({"clusterIP": "10.0.0.256"}), "spec.clusterIP"),
        (json!({"clusterIPs": ["10.0.0.1", 7]}), "spec.clusterIPs[1]"),
        (json!({"clusterIPs": "10.0.0.1"}), "spec.clusterIPs"),
    ] {
        let (read, notes) = service(&spec);
        assert_eq!(read.cluster_ips.known(), None, "{spec}");
        assert_eq!(fields(&notes, Severity::Error), [field]);
    }
}

#[test]
fn labels_of_a_services_selector_are_taken_as_they_are() {
    let (read, _) = service(&json!({"selector": {"a": "not a value"}}));
    let operator = Operator::In(BTreeSet::from(["not a value".to_owned()]));
    let expected = Requirement { key: "a".to_owned(), operator };
    assert_eq!(
        read.selector.known().cloned().flatten().expect("one").requirements,
        BTreeSet::from([expected])
    );
}
