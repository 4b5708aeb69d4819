//! Policy changes for the report of enforcement.

use control_hub::{Hub, Needed, NeededBy};
use policy_core::{compile, index::Event};
use policy_objects::{Meta, Object, Phase, Pod};
use std::collections::BTreeMap;

fn pod(name: &str, node: &str) -> Pod {
    let meta = Meta {
        namespace: "shop".to_owned(),
        name: name.to_owned(),
        uid: format!("uid of {name}"),
        ..Meta::default()
    };
    Pod {
        meta,
        node: node.to_owned(),
        host_network: false,
        service_account: "default".to_owned(),
        phase: Phase::Live,
        addresses: Vec::new(),
        ports: Vec::new(),
    }
}

fn policy(hub: &mut Hub, generation: i64) {
    let object = serde_json::json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": "shop", "name": "closed", "uid": "closed"},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    });
    let object: Object = Object::read_value(&object).expect("an object").object;
    hub.policy(&compile(&object).expect("a policy"), generation);
}

fn all(nodes: &[&str], generation: i64) -> Option<Needed> {
    let nodes = nodes.iter().map(|node| (*node).to_owned()).collect();
    Some(Needed { generation, by: NeededBy::All(nodes) })
}

fn moved(node: &str, is_in: bool, generation: i64) -> Option<Needed> {
    let by = NeededBy::Moved(BTreeMap::from([(node.to_owned(), is_in)]));
    Some(Needed { generation, by })
}

#[test]
fn a_follower_of_policies_receives_all_after_the_first_lists() {
    let mut hub = Hub::new([1; 16], 1);
    hub.follow_policies();
    policy(&mut hub, 1);
    hub.apply(Event::Pod(&pod("a", "n1")));
    assert_eq!(hub.take_policies(100), Vec::new());
    hub.loaded();
    let changes =
        |hub: &mut Hub| hub.take_policies(100).into_iter().map(|change| change.now).collect();
    let first: Vec<_> = changes(&mut hub);
    assert_eq!(first, [all(&["n1"], 1)]);
    hub.apply(Event::Pod(&pod("b", "n2")));
    hub.apply(Event::Pod(&pod("c", "n2")));
    let next: Vec<_> = changes(&mut hub);
    assert_eq!(next, [moved("n2", true, 1)]);
    // Its spec alone.
    policy(&mut hub, 2);
    let next: Vec<_> = changes(&mut hub);
    assert_eq!(next, [Some(Needed { generation: 2, by: NeededBy::Moved(BTreeMap::new()) })]);
    // More nodes than are remembered one by one.
    for number in 0..40 {
        hub.apply(Event::Pod(&pod(&format!("p{number}"), &format!("m{number:02}"))));
    }
    let next: Vec<Option<Needed>> = changes(&mut hub);
    assert!(matches!(&next[0], Some(Needed { by: NeededBy::All(nodes), .. }) if nodes.len() == 42));
    hub.leave_policies();
    policy(&mut hub, 3);
    assert_eq!(hub.take_policies(100), Vec::new());
}
