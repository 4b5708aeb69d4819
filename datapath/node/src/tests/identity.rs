//! The node in the states that the backend receives.

use super::part;
use crate::{Applied, Desired, Effect, Node, NodeIdentity};
use config_model::Time;
use control_wire::encode;
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
    let mut node = Node::new(Default::default(), BTreeMap::new(), &BTreeMap::new()).named("n1");
    node.began("127.0.0.1:1".parse().unwrap(), &[1; 16], false);
    for (generation, zone) in [(1, None), (2, Some("a")), (3, Some("b"))] {
        node.part(part(generation, vec![encode::node(&[], zone)]), Time(0));
        assert_eq!(*applied(&mut node).node, identity(zone));
    }
    // The first state of the next process, from the disk.
    let (held, local) = node.image();
    let restarted = Node::new((*held).clone(), (*local).clone(), &BTreeMap::new());
    assert_eq!(*applied(&mut restarted.named("n1")).node, identity(Some("b")));
}
