//! A large group and its digest are cached from change to change: they equal those of a replica that has read
//! everything again.

use control_hub::{ClientState, Handshake, Hub, Update};
use control_wire::{Entry, NodeSnapshot, parts, proto};
use policy_core::{compile, index::Event};
use policy_objects::{Kind, Meta, Namespace, Object, Phase, Pod};
use proptest::{collection::vec, prelude::*};
use prost::Message as _;
use std::{collections::BTreeMap, net::IpAddr};

/// Pods by number, with the last byte of their address.
type Pods = BTreeMap<u8, u8>;

fn pod(number: u16, last: u8) -> Pod {
    let node = if number == 0 { "n1" } else { "n2" };
    let [high, low] = number.to_be_bytes();
    Pod {
        meta: Meta {
            namespace: "shop".to_owned(),
            name: format!("web-{number}"),
            uid: format!("uid of {number}"),
            created: "2026-01-31T10:00:00Z".to_owned(),
            ..Meta::default()
        },
        node: node.to_owned(),
        host_network: false,
        service_account: "default".to_owned(),
        phase: Phase::Live,
        addresses: vec![IpAddr::from([10, high, low, last])],
        ports: Vec::new(),
    }
}

fn crowd(role: &str) -> Namespace {
    let labels = [("role".to_owned(), role.to_owned())].into();
    Namespace { meta: Meta { name: "crowd".to_owned(), labels, ..Meta::default() } }
}

/// So many pods besides those that change; all of them are peers of the one on the node.
fn hub(epoch: u8, seed: u64, besides: u16, pods: &Pods) -> Hub {
    let mut hub = Hub::new([epoch; 16], seed);
    for number in 0..besides {
        hub.apply(Event::Pod(&pod(1_000 + number, 1)));
    }
    hub.apply(Event::Pod(&pod(0, 1)));
    for (number, last) in pods {
        hub.apply(Event::Pod(&pod(1 + u16::from(*number), *last)));
    }
    let object = serde_json::json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": "shop", "name": "closed", "uid": "closed"},
        "spec": {"podSelector": {}, "ingress": [{"from": [{"podSelector": {}}]}]},
    });
    let object: Object = Object::read_value(&object).expect("an object").object;
    hub.policy(&compile(&object).expect("a policy"), 1);
    hub.loaded();
    hub
}

/// Applies the updates for a node that reports this content.
fn follow(hub: &mut Hub, says: &ClientState, held: &mut NodeSnapshot) -> usize {
    let Handshake::Compared(stream) = hub.open_stream("n1", says) else { panic!("not compared") };
    let update = hub.next_update(&stream).expect("a new stream receives a generation");
    held.start_stream(&hub.epoch());
    take(held, &update);
    update.changes.len()
}

fn take(held: &mut NodeSnapshot, update: &Update) {
    for part in parts(update.generation, &update.changes) {
        held.receive(proto::Part::decode(part).expect("a part")).expect("it can be applied");
    }
}

fn change(hub: &mut Hub, pods: &mut Pods, number: u8, last: Option<u8>) {
    let name = format!("web-{}", 1 + u16::from(number));
    match last {
        Some(last) => {
            pods.insert(number, last);
            hub.apply(Event::Pod(&pod(1 + u16::from(number), last)));
        }
        None => {
            pods.remove(&number);
            hub.apply(Event::Gone { kind: Kind::Pod, namespace: "shop", name: &name, uid: "" });
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Rounds of changes, each followed by a new stream. With 250 additional pods the group is sometimes large and
    /// sometimes small; with 1,000 it is always large.
    #[test]
    fn a_cached_group_equals_that_of_a_fresh_replica(
        besides in prop::sample::select(vec![250_u16, 1_000]),
        rounds in vec(vec((0_u8..24, any::<Option<u8>>()), 0..12), 1..6),
    ) {
        let mut pods = Pods::new();
        let mut one = hub(1, 1, besides, &pods);
        for round in rounds {
            for (number, last) in round {
                change(&mut one, &mut pods, number, last);
            }
            let mut held = NodeSnapshot::default();
            follow(&mut one, &ClientState::default(), &mut held);
            let group = held.addresses.values().next().expect("the peers");
            prop_assert_eq!(group.members.len(), usize::from(besides) + 1 + pods.len());
            let mut fresh = hub(2, 7, besides, &pods);
            let mut from_fresh = NodeSnapshot::default();
            follow(&mut fresh, &ClientState::default(), &mut from_fresh);
            prop_assert_eq!(&held.addresses, &from_fresh.addresses);
            let says = ClientState {
                epoch: held.epoch.clone(),
                generation: held.generation,
                holds: held.digests().into_iter().collect(),
                ..ClientState::default()
            };
            prop_assert_eq!(follow(&mut fresh, &says, &mut held), 0);
            // And a node that lacks a change receives it.
            change(&mut one, &mut pods, 30, Some(1));
            let says = ClientState { epoch: vec![9; 16], ..says };
            prop_assert!(follow(&mut one, &says, &mut held) > 0);
            prop_assert_eq!(held.digests().len(), from_fresh.digests().len());
            change(&mut one, &mut pods, 30, None);
        }
    }
}

/// A relabeled Namespace adds and removes more members at once than one message may have.
#[test]
fn a_change_of_many_members_is_split_and_applied_whole() {
    const CROWD: u16 = 5_000;
    let object = |value: serde_json::Value| Object::read_value(&value).expect("an object").object;
    let policy = object(serde_json::json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": "shop", "name": "crowd", "uid": "crowd"},
        "spec": {"podSelector": {}, "ingress": [
            {"from": [{"namespaceSelector": {"matchLabels": {"role": "peer"}}}]}]},
    }));
    let filled = |role: &str, epoch: u8, seed: u64| {
        let mut hub = Hub::new([epoch; 16], seed);
        hub.apply(Event::Namespace(&crowd(role)));
        hub.apply(Event::Pod(&pod(0, 1)));
        for number in 1..=CROWD {
            let mut one = pod(number, 1);
            one.meta.namespace = "crowd".to_owned();
            one.meta.name = format!("{number:0>253}");
            hub.apply(Event::Pod(&one));
        }
        hub.policy(&compile(&policy).expect("a policy"), 1);
        hub.loaded();
        hub
    };
    let mut hub = filled("other", 1, 1);
    let Handshake::Compared(stream) = hub.open_stream("n1", &ClientState::default()) else {
        panic!("not compared")
    };
    let mut held = NodeSnapshot::default();
    held.start_stream(&hub.epoch());
    take(&mut held, &hub.next_update(&stream).expect("an update"));
    for (role, members) in [("peer", CROWD), ("other", 0)] {
        hub.apply(Event::Namespace(&crowd(role)));
        let update = hub.next_update(&stream).expect("a change");
        assert_eq!(update.changes.len(), 3, "cut at 2,000 members");
        let largest = update.changes.iter().map(Entry::len).max();
        assert!(largest.is_some_and(|bytes| bytes < 1 << 20), "{largest:?}");
        take(&mut held, &update);
        let mut from_fresh = NodeSnapshot::default();
        follow(&mut filled(role, 2, 7), &ClientState::default(), &mut from_fresh);
        assert_eq!(held.addresses, from_fresh.addresses);
        let group = held.addresses.values().next().expect("the peers");
        assert_eq!(group.members.len(), usize::from(members));
        assert_eq!(held.digests(), from_fresh.digests());
    }
}
