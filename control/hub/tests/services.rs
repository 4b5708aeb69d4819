//! Services and EndpointSlices: each node that serves Services receives all of them.

use control_hub::{Capabilities, ClientState, Handshake, Hub, Stream};
use control_wire::{KINDS, NodeSnapshot, ObjectId, ObjectKind, SERVICE_KINDS, parts, proto::Part};
use prost::Message as _;
use serde_json::json;
use service_objects::{ObjectName, Service, Slice};
use std::collections::{BTreeMap, BTreeSet};

fn service(name: &str, port: u16) -> Service {
    Service::read(&json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {"clusterIPs": ["172.20.0.1"], "ports": [{"port": port}]},
    }))
    .expect("a Service")
}

fn slice(name: &str, address: &str) -> Slice {
    Slice::read(&json!({
        "metadata": {
            "namespace": "shop", "name": name, "labels": {"kubernetes.io/service-name": "web"},
        },
        "addressType": "IPv4",
        "ports": [{"port": 8080}],
        "endpoints": [{"addresses": [address], "nodeName": "n1"}],
    }))
    .expect("a slice")
}

/// A replica that reads Services.
fn serving() -> Hub {
    let capabilities = Capabilities { kinds: KINDS.into(), ..Capabilities::default() };
    Hub::new([1; 16], 1).with_capabilities(capabilities)
}

/// An agent and its snapshot.
struct Agent {
    serves: bool,
    held: NodeSnapshot,
    stream: Option<Stream>,
}

impl Agent {
    fn new(serves: bool) -> Self {
        Self { serves, held: NodeSnapshot::default(), stream: None }
    }

    fn open(&mut self, hub: &mut Hub, node: &str) {
        let is_known = |kind: &ObjectKind| self.serves || !SERVICE_KINDS.contains(kind);
        let state = ClientState {
            holds: self.held.digests().into_iter().collect(),
            kinds: KINDS.into_iter().filter(is_known).collect(),
            ..ClientState::default()
        };
        let Handshake::Compared(stream) = hub.open_stream(node, &state) else { panic!("compared") };
        self.held.start_stream(&hub.epoch());
        self.stream = Some(stream);
    }

    /// Receives the next update. Returns the number of its changes of Services and slices; `None` without an update.
    fn receive(&mut self, hub: &mut Hub) -> Option<usize> {
        let stream = self.stream.as_ref()?;
        let update = hub.next_update(stream)?;
        let mut changed = 0;
        for part in parts(update.generation, &update.changes) {
            let progress = self.held.receive(Part::decode(part).expect("a part"));
            if let control_wire::Progress::Applied(changes) = progress.expect("it can be applied") {
                let is_service = |id: &ObjectId| SERVICE_KINDS.contains(&id.kind);
                changed += changes.iter().filter(|(id, _)| is_service(id)).count();
            }
        }
        hub.acknowledge(stream, update.generation);
        Some(changed)
    }

    fn names(&self) -> (BTreeSet<ObjectName>, BTreeSet<ObjectName>) {
        (self.held.services.keys().cloned().collect(), self.held.slices.keys().cloned().collect())
    }
}

fn name(name: &str) -> ObjectName {
    ObjectName::new("shop", name)
}

#[test]
fn nodes_that_serve_services_receive_all_of_them_and_each_change() {
    let mut hub = serving();
    hub.set_service(&service("web", 80));
    hub.set_slice(&slice("web-a", "10.0.0.1"));
    hub.loaded();
    let mut agents = BTreeMap::from([
        ("n1", Agent::new(true)),
        ("n2", Agent::new(true)),
        ("n3", Agent::new(false)),
    ]);
    for (node, agent) in &mut agents {
        agent.open(&mut hub, node);
        assert_eq!(agent.receive(&mut hub), Some(if agent.serves { 2 } else { 0 }), "{node}");
    }
    let mut receive = |hub: &mut Hub| -> Vec<Option<usize>> {
        agents.values_mut().map(|agent| agent.receive(hub)).collect()
    };
    hub.set_slice(&slice("web-b", "10.0.0.2"));
    hub.set_service(&service("web", 81));
    assert_eq!(receive(&mut hub), [Some(2), Some(2), None]);
    // Fields that nodes do not read make no generation.
    let generation = hub.generation();
    hub.set_service(&service("web", 81));
    assert_eq!((hub.generation(), receive(&mut hub)), (generation, vec![None; 3]));
    hub.remove_slice(&name("web-a"));
    hub.remove_slice(&name("of no list"));
    assert_eq!(receive(&mut hub), [Some(1), Some(1), None]);
    for agent in agents.values().filter(|agent| agent.serves) {
        assert_eq!(agent.names(), ([name("web")].into(), [name("web-b")].into()));
        assert_eq!(*agent.held.services[&name("web")], service("web", 81));
        assert_eq!(*agent.held.slices[&name("web-b")], slice("web-b", "10.0.0.2"));
    }
}

#[test]
fn a_node_that_returns_receives_the_differences_only() {
    let mut hub = serving();
    for number in 0..10 {
        hub.set_service(&service(&format!("s{number}"), 80));
    }
    hub.loaded();
    let mut agent = Agent::new(true);
    agent.open(&mut hub, "n1");
    assert_eq!(agent.receive(&mut hub), Some(10));
    hub.set_service(&service("s1", 81));
    hub.remove_service(&name("s2"));
    hub.set_service(&service("s10", 80));
    // Another replica would have the same encodings.
    agent.open(&mut hub, "n1");
    assert_eq!(agent.receive(&mut hub), Some(3));
    assert_eq!(agent.held.services.len(), 10);
    assert!(!agent.held.services.contains_key(&name("s2")));
    assert_eq!(agent.receive(&mut hub), None);
}

#[test]
fn a_replica_that_does_not_read_services_removes_none() {
    let mut hub = serving();
    hub.set_service(&service("web", 80));
    hub.loaded();
    let mut agent = Agent::new(true);
    agent.open(&mut hub, "n1");
    assert_eq!(agent.receive(&mut hub), Some(1));
    let mut other = Hub::new([2; 16], 1);
    other.loaded();
    agent.open(&mut other, "n1");
    agent.receive(&mut other);
    assert_eq!(agent.names().0, [name("web")].into());
}
