//! The node's end of a stream, and functions that feed replicas.

use crate::scenario::Scenario;
use control_hub::{ClientState, Handshake, Hub, Stream};
use control_wire::{Changed, NodeSnapshot, ObjectId, Progress, parts, proto};
use policy_core::{compile, index::Event as IndexEvent};
use policy_objects::{Object, page::PolicyView};
use proptest::{prelude::*, test_runner::TestCaseError};
use prost::Message as _;
use std::collections::BTreeMap;

/// A node that follows a replica.
#[derive(Default)]
pub struct NodeClient {
    pub snapshot: NodeSnapshot,
    /// Index of the replica that the node follows.
    pub replica: usize,
    pub stream: Option<Stream>,
    /// Parts that the replica sent and the node has not received.
    pub sent: Vec<proto::Part>,
    /// The changes that were received.
    pub changed: Changed,
}

/// Feeds an object to a replica.
pub fn feed(hub: &mut Hub, object: &Object) {
    match object {
        Object::Pod(pod) => hub.apply(IndexEvent::Pod(pod)),
        Object::Namespace(namespace) => hub.apply(IndexEvent::Namespace(namespace)),
        Object::Node(node) => hub.apply(IndexEvent::Node(node)),
        Object::Service(service) => hub.apply(IndexEvent::Service(service)),
        Object::Tier(tier) => hub.apply(IndexEvent::Tier(tier)),
        Object::Group(group) => hub.apply(IndexEvent::Group(group)),
        Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => {
            let generation = object.meta().generation;
            hub.policy(&compile(object).expect("a policy is compiled"), generation);
        }
    }
}

/// Feeds an object, as a view of a page if it has one.
pub fn feed_view(hub: &mut Hub, object: &Object) {
    let view =
        if let Object::NetworkPolicy(policy) = object { PolicyView::of(policy) } else { None };
    match view {
        Some(view) => hub.apply(IndexEvent::PolicyView(&view)),
        None => feed(hub, object),
    }
}

/// The parts of the node's next update.
pub fn sent(hub: &mut Hub, stream: &Stream) -> Vec<proto::Part> {
    let Some(update) = hub.next_update(stream) else { return Vec::new() };
    let parts = parts(update.generation, &update.changes);
    parts.iter().map(|part| proto::Part::decode(&**part).expect("a part")).collect()
}

impl NodeClient {
    /// Loses the stream, with some of the parts in flight.
    pub fn disconnect(&mut self, hub: &mut Hub, now_ms: u64) {
        // Half of the parts in flight arrive.
        let half = self.sent.len() / 2;
        for part in self.sent.drain(..).take(half) {
            drop(self.snapshot.receive(part));
        }
        if let Some(stream) = self.stream.take() {
            hub.close_stream(&stream, now_ms);
        }
    }

    /// The node's stream. Opens it if there is none.
    pub fn open(&mut self, node: &str, hub: &mut Hub) -> Result<Stream, TestCaseError> {
        if let Some(stream) = &self.stream {
            return Ok(stream.clone());
        }
        let state = ClientState {
            epoch: self.snapshot.epoch.clone(),
            generation: self.snapshot.generation,
            reached: self.snapshot.reached.clone(),
            holds: self.snapshot.digests().into_iter().collect(),
            ..ClientState::default()
        };
        let handshake = hub.open_stream(node, &state);
        let (Handshake::Resumed(stream) | Handshake::Compared(stream)) = handshake else {
            return Err(TestCaseError::fail(format!("{handshake:?}")));
        };
        self.snapshot.start_stream(&hub.epoch());
        self.stream = Some(stream.clone());
        Ok(stream)
    }

    /// Receives and acknowledges all pending objects.
    pub fn follow(&mut self, node: &str, hub: &mut Hub) -> Result<(), TestCaseError> {
        let stream = self.open(node, hub)?;
        loop {
            let parts = std::mem::take(&mut self.sent);
            for part in parts {
                let taken = self
                    .snapshot
                    .receive(part)
                    .map_err(|fault| TestCaseError::fail(fault.to_string()))?;
                if let Progress::Applied(changed) = taken {
                    self.changed.merge(changed);
                    hub.acknowledge(&stream, self.snapshot.generation);
                }
            }
            self.sent = sent(hub, &stream);
            if self.sent.is_empty() {
                break;
            }
        }
        let bookmark =
            hub.bookmark(&stream).expect("a client that is up to date has a bookmark").message();
        prop_assert_eq!(bookmark.generation, self.snapshot.generation);
        self.snapshot.apply_bookmark(&bookmark);
        Ok(())
    }

    /// All objects of the snapshot.
    pub fn objects(&self) -> BTreeMap<ObjectId, proto::Change> {
        self.snapshot.objects().collect()
    }
}

/// A node that follows a replica which has just read the whole world.
pub fn fresh(scenario: &Scenario, node: &str) -> NodeClient {
    let mut hub = Hub::new([9; 16], 7);
    scenario.objects.iter().for_each(|object| feed(&mut hub, object));
    hub.loaded();
    let mut client = NodeClient::default();
    client.follow(node, &mut hub).expect("a stream");
    client
}
