//! Services that the agent reads itself.

use super::{part, policy};
use crate::{
    Applied, Desired, Effect, Node, OwnRead,
    store::{Record, replay},
};
use config_model::Time;
use control_wire::{
    NodeSnapshot, ObjectKind,
    proto::{Bookmark, Change, Reached},
};
use service_objects::{ObjectName, Service, Slice};
use std::collections::BTreeMap;

fn name(of: &str) -> ObjectName {
    ObjectName::new("shop", of)
}

fn service(of: &str, port: u16) -> Service {
    let spec = serde_json::json!({"clusterIP": "10.100.0.1", "ports": [{"port": port}]});
    let metadata = serde_json::json!({"namespace": "shop", "name": of});
    Service::read(&serde_json::json!({"metadata": metadata, "spec": spec})).unwrap()
}

fn slice(of: &str) -> Slice {
    let labels = serde_json::json!({"kubernetes.io/service-name": of});
    let metadata = serde_json::json!({"namespace": "shop", "name": of, "labels": labels});
    let slice = serde_json::json!({"metadata": metadata, "addressType": "IPv4", "endpoints": []});
    Slice::read(&slice).unwrap()
}

/// A node that serves Services, and what it has persisted.
struct Scenario {
    node: Node,
    records: Vec<Record>,
}

impl Scenario {
    fn of(node: Node) -> Self {
        Self { node: node.named("n1", true), records: Vec::new() }
    }

    fn empty() -> Self {
        Self::of(Node::new(Default::default(), BTreeMap::new(), &BTreeMap::new()))
    }

    /// A node that has lost a replica, which had sent a policy and the Services `a` and `b`.
    fn alone() -> Self {
        let mut scenario = Self::empty();
        scenario.node.began("127.0.0.1:1".parse().unwrap(), &[1; 16], false);
        let services = [(&service("a", 80)).into(), (&service("b", 80)).into()];
        let changes = [policy(1, &[0]), services.to_vec()].concat();
        scenario.node.part(part(7, changes), Time(0));
        let reached = [("Pod", 40), ("Service", 41)];
        let reached = reached.map(|(kind, version)| Reached { kind: kind.to_owned(), version });
        let bookmark = Bookmark { generation: 7, reached: reached.into(), ..Bookmark::default() };
        scenario.node.bookmark(&bookmark, Time(0));
        scenario.node.disconnected("it has ended".to_owned());
        assert!(scenario.applied().is_some());
        scenario
    }

    /// The state that the backend receives and applies.
    fn applied(&mut self) -> Option<Desired> {
        let mut given = None;
        for effect in self.node.take_effects() {
            match effect {
                Effect::Apply(desired) => given = Some(desired),
                Effect::Persist(records) => self.records.extend(records),
                Effect::Acknowledge(_)
                | Effect::Announce(_)
                | Effect::Answer { .. }
                | Effect::Observe
                | Effect::Report(_)
                | Effect::Resync(_) => {}
            }
        }
        if let Some(desired) = &given {
            self.node.applied(desired.revision, Applied::complete(desired), Time(0));
        }
        given
    }

    /// The snapshot, at the start of a stream as after a replay.
    fn held(&self) -> NodeSnapshot {
        let mut held = (*self.node.image().0).clone();
        let epoch = held.epoch.clone();
        held.start_stream(&epoch);
        held
    }

    fn read(&mut self, read: OwnRead, version: u64) -> Option<Desired> {
        let read = OwnRead { version: Some(version), ..read };
        self.node.read_services(&read, Time(0)).unwrap();
        self.applied()
    }
}

fn list(services: &[Service]) -> OwnRead {
    let objects = services.iter().map(Change::from).collect();
    let kind = ObjectKind::SERVICE;
    OwnRead { kind, is_list: true, objects, removed: Vec::new(), version: None }
}

fn names(desired: &Desired) -> Vec<ObjectName> {
    desired.services.services.keys().cloned().collect()
}

#[test]
fn a_node_without_a_replica_serves_the_services_that_it_reads_itself() {
    let mut scenario = Scenario::alone();
    let desired = scenario.read(list(&[service("b", 81), service("c", 80)]), 50).unwrap();
    assert_eq!(names(&desired), [name("b"), name("c")]);
    assert_eq!(desired.services.services.get(&name("b")).unwrap().ports[0].port, 81);
    assert_eq!(desired.state.policies.len(), 1, "the policies of the replica stay");
    let changed = desired.changed.unwrap().services.services;
    assert_eq!(changed, [name("a"), name("b"), name("c")].into());
    let objects = vec![(&slice("c")).into(), (&service("z", 80)).into()];
    let slices = OwnRead { kind: ObjectKind::SLICE, objects, ..list(&[]) };
    assert_eq!(scenario.read(slices, 51).unwrap().services.slices.len(), 1);
    // The same objects again are no change.
    assert!(scenario.read(list(&[service("b", 81), service("c", 80)]), 52).is_none());
    let removed = vec![name("b"), name("unknown")];
    let changes = OwnRead { is_list: false, removed, ..list(&[service("d", 80)]) };
    let desired = scenario.read(changes, 53).unwrap();
    assert_eq!(names(&desired), [name("c"), name("d")]);
    // Another node process has the same state from the disk.
    let replayed = replay(scenario.records.clone());
    assert_eq!(replayed.stopped, None);
    assert_eq!(replayed.held, scenario.held());
    let mut next = Scenario::of(Node::new(replayed.held, BTreeMap::new(), &BTreeMap::new()));
    assert_eq!(names(&next.applied().unwrap()), [name("c"), name("d")]);
    assert_eq!(names(&next.read(list(&[service("e", 80)]), 60).unwrap()), [name("e")]);
}

#[test]
fn the_next_replica_compares_each_object_and_has_read_as_much() {
    let mut scenario = Scenario::alone();
    assert!(scenario.read(list(&[service("b", 80)]), 50).is_some());
    let hello = scenario.node.hello(false);
    assert_ne!(hello.epoch, [1; 16], "the generation is not the one of that replica");
    assert_eq!(hello.holds.len(), 3, "{:?}", hello.holds);
    let has_read = |service: u64| BTreeMap::from([("Service".to_owned(), service)]);
    assert_eq!((scenario.node.lag(&has_read(45)), scenario.node.lag(&has_read(50))), (5, 0));
    // The same replica again, and its next generation.
    scenario.node.began("127.0.0.1:1".parse().unwrap(), &[1; 16], false);
    scenario.node.part(part(8, vec![(&service("a", 80)).into()]), Time(0));
    assert_eq!(names(&scenario.applied().unwrap()), [name("a"), name("b")]);
    let held = scenario.held();
    assert_eq!(replay(scenario.records).held, held);
}

#[test]
fn a_node_ignores_its_own_reading_beside_a_replica_and_before_the_first_state() {
    let mut following = Scenario::alone();
    following.node.began("127.0.0.1:1".parse().unwrap(), &[1; 16], false);
    assert!(following.read(list(&[service("c", 80)]), 50).is_none());
    let mut scenario = Scenario::empty();
    assert!(scenario.read(list(&[service("c", 80)]), 50).is_none(), "its pods would be open");
}
