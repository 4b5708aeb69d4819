//! Start of streams: the content that a node reports, and the updates that it receives.

use control_hub::{ClientState, Handshake, Hub, Stream};
use control_wire::{NodeSnapshot, parts, proto::Part};
use policy_core::{compile, index::Event};
use policy_objects::{Kind, Meta, Namespace, Object};
use prost::Message as _;
use std::collections::BTreeMap;

fn node(hub: &mut Hub, name: &str) {
    node_in(hub, name, serde_json::json!({}));
}

fn node_in(hub: &mut Hub, name: &str, labels: serde_json::Value) {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": labels},
        "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}]},
    });
    let Object::Node(node) = Object::read_value(&object).expect("an object").object else {
        panic!("a node")
    };
    hub.apply(Event::Node(&node));
}

fn policy(hub: &mut Hub, name: &str, uid: &str) {
    let object = serde_json::json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": "shop", "name": name, "uid": uid},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    });
    let object: Object = Object::read_value(&object).expect("an object").object;
    hub.policy(&compile(&object).expect("a policy"), 1);
}

fn loaded() -> Hub {
    let mut hub = Hub::new([1; 16], 1);
    node(&mut hub, "n1");
    hub.loaded();
    hub
}

fn compared(opened: Handshake) -> Stream {
    let Handshake::Compared(stream) = opened else { panic!("{opened:?}") };
    stream
}

#[test]
fn a_node_that_broke_off_before_its_first_generation_receives_all_of_it() {
    let mut hub = loaded();
    // The welcome has reached it, and it was forgotten since.
    let says = ClientState { epoch: hub.epoch().to_vec(), ..ClientState::default() };
    let stream = compared(hub.open_stream("n1", &says));
    let update = hub.next_update(&stream).expect("an update");
    assert!(!update.changes.is_empty());
}

#[test]
fn a_node_receives_its_zone_and_each_change_of_it() {
    let in_zone = |zone: &str| serde_json::json!({"topology.kubernetes.io/zone": zone});
    let mut hub = Hub::new([1; 16], 1);
    node_in(&mut hub, "n1", in_zone("a"));
    node_in(&mut hub, "n2", in_zone("b"));
    hub.loaded();
    let stream = compared(hub.open_stream("n1", &ClientState::default()));
    let mut held = NodeSnapshot::default();
    held.start_stream(&hub.epoch());
    let mut receive = |hub: &mut Hub| {
        let update = hub.next_update(&stream)?;
        for part in parts(update.generation, &update.changes) {
            held.receive(Part::decode(part).expect("a part")).expect("it can be applied");
        }
        hub.acknowledge(&stream, update.generation);
        Some(held.zone.clone())
    };
    assert_eq!(receive(&mut hub), Some(Some("a".into())));
    node_in(&mut hub, "n1", in_zone("c"));
    assert_eq!(receive(&mut hub), Some(Some("c".into())));
    node_in(&mut hub, "n1", in_zone("c"));
    node_in(&mut hub, "n2", in_zone("c"));
    assert_eq!(receive(&mut hub), None, "its own zone is the same");
    node(&mut hub, "n1");
    assert_eq!(receive(&mut hub), Some(None), "it has no label");
}

#[test]
fn a_node_receives_the_notice_of_its_deletion() {
    let tainted = |taints: serde_json::Value| {
        let object = serde_json::json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "n1"},
            "spec": {"taints": taints}, "status": {},
        });
        let object = Object::read_value(&object).expect("an object").object;
        let Object::Node(node) = object else { panic!("a node") };
        node
    };
    let mut hub = loaded();
    let stream = compared(hub.open_stream("n1", &ClientState::default()));
    let mut held = NodeSnapshot::default();
    held.start_stream(&hub.epoch());
    let mut receive = |hub: &mut Hub| {
        let update = hub.next_update(&stream)?;
        for part in parts(update.generation, &update.changes) {
            held.receive(Part::decode(part).expect("a part")).expect("it can be applied");
        }
        hub.acknowledge(&stream, update.generation);
        Some(held.is_leaving)
    };
    assert_eq!(receive(&mut hub), Some(false));
    let leaving = tainted(serde_json::json!([{"key": "ToBeDeletedByClusterAutoscaler"}]));
    hub.apply(Event::Node(&leaving));
    assert_eq!(receive(&mut hub), Some(true));
    hub.apply(Event::Node(&leaving));
    assert_eq!(receive(&mut hub), None, "nothing has changed");
    hub.apply(Event::Node(&tainted(serde_json::json!([{"key": "other"}]))));
    assert_eq!(receive(&mut hub), Some(false), "the autoscaler keeps the node");
    hub.apply(Event::Gone { kind: Kind::Node, namespace: "", name: "n1", uid: "n1" });
    assert_eq!(receive(&mut hub), Some(true), "it is deleted");
}

#[test]
fn a_replica_without_a_kind_is_behind_a_node_that_holds_it() {
    let mut hub = loaded();
    hub.reach("Pod", 9);
    let reached = |of: &[(&str, u64)]| -> BTreeMap<String, u64> {
        of.iter().map(|(kind, version)| ((*kind).to_owned(), *version)).collect()
    };
    let says =
        ClientState { reached: reached(&[("Pod", 9), ("Tier", 7)]), ..ClientState::default() };
    assert_eq!(hub.open_stream("n1", &says), Handshake::Behind(reached(&[("Pod", 9)])));
    compared(hub.open_stream("n1", &ClientState { take_behind: true, ..says.clone() }));
    hub.reach("Tier", 7);
    compared(hub.open_stream("n1", &says));
    // Objects that are no longer in the cluster are not sent.
    hub.unreach("Tier");
    assert_eq!(hub.reached(), &reached(&[("Pod", 9)]));
}

#[test]
fn nodes_receive_lower_versions_after_a_restore_and_the_replica_is_no_longer_behind() {
    let mut hub = loaded();
    hub.reach("Pod", 90);
    let stream = compared(hub.open_stream("n1", &ClientState::default()));
    hub.next_update(&stream).expect("an update");
    hub.relisted("Pod", 40);
    hub.reach("Pod", 41);
    let marked = hub.bookmark(&stream).expect("an even node");
    let marked: Vec<u64> = marked.message().reached.iter().map(|reached| reached.version).collect();
    assert_eq!(marked, [41]);
    let says = |version| ClientState {
        reached: BTreeMap::from([("Pod".to_owned(), version)]),
        ..ClientState::default()
    };
    assert!(matches!(hub.open_stream("n2", &says(90)), Handshake::Behind(_)));
    compared(hub.open_stream("n2", &says(41)));
}

#[test]
fn a_policy_deleted_during_the_first_lists_is_removed() {
    let mut hub = Hub::new([1; 16], 1);
    for (name, uid) in [("a", "1"), ("a", "2"), ("b", "3")] {
        policy(&mut hub, name, uid);
    }
    for (name, uid) in [("a", "1"), ("b", "3")] {
        let kind = Kind::NetworkPolicy;
        hub.apply(Event::Gone { kind, namespace: "shop", name, uid });
    }
    node(&mut hub, "n1");
    hub.loaded();
    assert_eq!(hub.measures().policies, 1);
    let there = hub.policies_behind("", 1).into_iter().map(|look| look.policy.uid);
    assert_eq!(there.collect::<Vec<_>>(), ["2"]);
    let stream = compared(hub.open_stream("n1", &ClientState::default()));
    let update = hub.next_update(&stream).map(|update| update.changes.len());
    assert_eq!(update, Some(1), "the node itself: no pod of it needs the policy");
}

fn take(held: &mut NodeSnapshot, hub: &mut Hub, stream: &Stream) {
    let Some(update) = hub.next_update(stream) else { return };
    for part in parts(update.generation, &update.changes) {
        held.receive(Part::decode(part).expect("a part")).expect("it can be applied");
    }
    hub.acknowledge(stream, held.generation);
}

fn pod(hub: &mut Hub, namespace: &str) {
    let object = serde_json::json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "web", "namespace": namespace, "uid": format!("of {namespace}")},
        "spec": {"nodeName": "n1"}, "status": {},
    });
    let Object::Pod(pod) = Object::read_value(&object).expect("an object").object else {
        panic!("a pod")
    };
    hub.apply(Event::Pod(&pod));
}

fn namespace(hub: &mut Hub, name: &str) {
    let labels = [("team".to_owned(), "closed".to_owned())].into();
    let meta = Meta { name: name.to_owned(), labels, ..Meta::default() };
    hub.apply(Event::Namespace(&Namespace { meta }));
}

/// About the pods of namespaces with a label.
fn by_label(hub: &mut Hub) {
    let object = serde_json::json!({
        "apiVersion": "policy.networking.k8s.io/v1alpha2", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "closed", "uid": "closed"},
        "spec": {
            "tier": "Admin", "priority": 7,
            "subject": {"namespaces": {"matchLabels": {"team": "closed"}}},
            "ingress": [{"action": "Deny", "from": [{"namespaces": {}}]}],
        },
    });
    let object: Object = Object::read_value(&object).expect("an object").object;
    hub.policy(&compile(&object).expect("a policy"), 1);
}

#[test]
fn a_node_receives_a_pod_once_its_namespace_is_read() {
    let mut hub = Hub::new([1; 16], 1);
    node(&mut hub, "n1");
    by_label(&mut hub);
    namespace(&mut hub, "known");
    pod(&mut hub, "known");
    pod(&mut hub, "early");
    hub.reach("Namespace", 7);
    hub.loaded();
    let stream = compared(hub.open_stream("n1", &ClientState::default()));
    let mut held = NodeSnapshot::default();
    held.start_stream(&hub.epoch());
    take(&mut held, &mut hub, &stream);
    let pod_uids = |held: &NodeSnapshot| held.pods.keys().cloned().collect::<Vec<_>>();
    assert_eq!(pod_uids(&held), ["of known"]);
    // Another comes while the stream lasts.
    pod(&mut hub, "late");
    take(&mut held, &mut hub, &stream);
    assert_eq!(pod_uids(&held), ["of known"]);
    for (name, uid) in [("late", "of late"), ("early", "of early")] {
        namespace(&mut hub, name);
        take(&mut held, &mut hub, &stream);
        let is_about = held.applied.values().any(|pods| pods.contains(uid));
        assert!(is_about && held.pods.contains_key(uid), "{name}: its policy comes with it");
    }
    // A pod that no policy selects is sent as well.
    hub.apply(Event::Gone {
        kind: Kind::ClusterNetworkPolicy,
        namespace: "",
        name: "closed",
        uid: "",
    });
    pod(&mut hub, "open");
    namespace(&mut hub, "open");
    take(&mut held, &mut hub, &stream);
    assert!(held.pods.contains_key("of open"));
    // All content comes from another replica that has read everything before.
    let holds =
        ClientState { holds: held.digests().into_iter().collect(), ..ClientState::default() };
    let stream = compared(hub.open_stream("n1", &holds));
    assert_eq!(hub.next_update(&stream).map(|update| update.changes.len()), Some(0));
}

#[test]
fn a_replica_without_namespaces_waits_for_none() {
    let mut hub = Hub::new([1; 16], 1);
    pod(&mut hub, "shop");
    hub.loaded();
    let stream = compared(hub.open_stream("n1", &ClientState::default()));
    let mut held = NodeSnapshot::default();
    held.start_stream(&hub.epoch());
    take(&mut held, &mut hub, &stream);
    assert!(held.pods.contains_key("of shop"));
}
