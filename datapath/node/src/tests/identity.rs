//! The node in the states that the backend receives.

use super::{part, removed};
use crate::{Applied, Desired, Effect, Node, NodeIdentity};
use config_model::Time;
use control_wire::{ObjectId, ObjectKind, encode};
use service_objects::{ObjectName, Service};
use std::collections::BTreeMap;

fn applied(node: &mut Node) -> Desired {
    let desired = node.take_effects().into_iter().find_map(|effect| {
        let Effect::Apply(desired) = effect else { return None };
        Some(desired)
    });
    let desired = desired.unwrap();
    node.applied(desired.revision, Applied::complete(&desired), Time(0));
    desired
}

#[test]
fn the_backend_receives_the_name_and_the_zone_of_the_node() {
    let identity =
        |zone: Option<&str>| NodeIdentity { name: "n1".to_owned(), zone: zone.map(str::to_owned) };
    let mut node =
        Node::new(Default::default(), BTreeMap::new(), &BTreeMap::new()).named("n1", false);
    node.began("127.0.0.1:1".parse().unwrap(), &[1; 16], false);
    for (generation, zone) in [(1, None), (2, Some("a")), (3, Some("b"))] {
        node.part(part(generation, vec![encode::node(&[], zone, false)]), Time(0));
        assert_eq!(*applied(&mut node).node, identity(zone));
    }
    // The first state of the next process, from the disk.
    let (held, local) = node.image();
    let restarted = Node::new((*held).clone(), (*local).clone(), &BTreeMap::new());
    assert_eq!(*applied(&mut restarted.named("n1", false)).node, identity(Some("b")));
}

fn service(name: &str) -> Service {
    let metadata = serde_json::json!({"namespace": "shop", "name": name});
    Service::read(&serde_json::json!({"metadata": metadata})).unwrap()
}

#[test]
fn a_node_that_serves_hands_services_to_the_backend() {
    for serves in [true, false] {
        let node = Node::new(Default::default(), BTreeMap::new(), &BTreeMap::new());
        let mut node = node.named("n1", serves);
        node.began("127.0.0.1:1".parse().unwrap(), &[1; 16], false);
        let of = |name: &str| (&service(name)).into();
        node.part(part(1, vec![of("a"), of("b")]), Time(0));
        assert_eq!(applied(&mut node).services.services.len(), if serves { 2 } else { 0 });
        let name = |name: &str| ObjectName::new("shop", name);
        let changes = vec![of("c"), removed(&ObjectId::service(&name("a")))];
        node.part(part(2, changes), Time(0));
        let desired = applied(&mut node);
        let expected: Vec<ObjectName> =
            ["b", "c"].into_iter().filter(|_| serves).map(name).collect();
        assert_eq!(desired.services.services.keys().cloned().collect::<Vec<_>>(), expected);
        let changed = desired.changed.unwrap().services.services;
        assert_eq!(changed, [name("a"), name("c")].into());
        let kinds = node.hello(false).kinds;
        assert_eq!(kinds.contains(&ObjectKind::SERVICE.0), serves);
        assert_eq!(kinds.contains(&ObjectKind::SLICE.0), serves);
        let holds = node.hello(false).holds;
        let is_service = |id: &control_wire::proto::ObjectId| id.kind == ObjectKind::SERVICE.0;
        let services = holds.iter().filter(|held| held.id.as_ref().is_some_and(is_service));
        assert_eq!(services.count(), expected.len());
    }
}
