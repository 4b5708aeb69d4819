//! A node's end of a stream, and replicas that are told of objects.

use control_hub::{ClientState, Handshake, Hub, Stream};
use control_wire::{NodeSnapshot, ObjectId, Progress, parts, proto};
use policy_core::{compile, index::Event as Happened};
use policy_objects::{Object, page::PolicyView};
use proptest::{prelude::*, test_runner::TestCaseError};
use prost::Message as _;
use std::collections::BTreeMap;
use tests_policy::made::Made;

/// A node.
#[derive(Default)]
pub(crate) struct End {
    pub(crate) held: NodeSnapshot,
    /// Which replica it follows.
    pub(crate) replica: usize,
    pub(crate) stream: Option<Stream>,
    /// Parts that were sent and have not come.
    pub(crate) sent: Vec<proto::Part>,
}

pub(crate) fn feed(hub: &mut Hub, object: &Object) {
    match object {
        Object::Pod(pod) => hub.apply(Happened::Pod(pod)),
        Object::Namespace(namespace) => hub.apply(Happened::Namespace(namespace)),
        Object::Node(node) => hub.apply(Happened::Node(node)),
        Object::Service(service) => hub.apply(Happened::Service(service)),
        Object::Tier(tier) => hub.apply(Happened::Tier(tier)),
        Object::Group(group) => hub.apply(Happened::Group(group)),
        Object::NetworkPolicy(_) | Object::ClusterPolicy(_) | Object::AntreaPolicy(_) => {
            let generation = object.meta().generation;
            hub.policy(&compile(object).expect("a policy is compiled"), generation);
        }
    }
}

/// The same, of policies that a page can lend.
pub(crate) fn lend(hub: &mut Hub, object: &Object) {
    let lent =
        if let Object::NetworkPolicy(policy) = object { PolicyView::of(policy) } else { None };
    match lent {
        Some(lent) => hub.apply(Happened::PolicyView(&lent)),
        None => feed(hub, object),
    }
}

pub(crate) fn sent(hub: &mut Hub, stream: &Stream) -> Vec<proto::Part> {
    let Some(telling) = hub.next_update(stream) else { return Vec::new() };
    let parts = parts(telling.generation, &telling.changes);
    parts.iter().map(|part| proto::Part::decode(&**part).expect("a part")).collect()
}

impl End {
    pub(crate) fn breaks(&mut self, hub: &mut Hub, now_ms: u64) {
        // Half of what is on its way may have come.
        let half = self.sent.len() / 2;
        for part in self.sent.drain(..).take(half) {
            drop(self.held.receive(part));
        }
        if let Some(stream) = self.stream.take() {
            hub.close_stream(&stream, now_ms);
        }
    }

    /// The stream; it begins now if there is none.
    pub(crate) fn begin(&mut self, node: &str, hub: &mut Hub) -> Result<Stream, TestCaseError> {
        if let Some(stream) = &self.stream {
            return Ok(stream.clone());
        }
        let says = ClientState {
            epoch: self.held.epoch.clone(),
            generation: self.held.generation,
            reached: self.held.reached.clone(),
            holds: self.held.digests().into_iter().collect(),
            ..ClientState::default()
        };
        let begun = hub.open_stream(node, &says);
        let (Handshake::Resumed(stream) | Handshake::Compared(stream)) = begun else {
            return Err(TestCaseError::fail(format!("{begun:?}")));
        };
        self.held.start_stream(&hub.epoch());
        self.stream = Some(stream.clone());
        Ok(stream)
    }

    /// Takes all that there is.
    pub(crate) fn follow(&mut self, node: &str, hub: &mut Hub) -> Result<(), TestCaseError> {
        let stream = self.begin(node, hub)?;
        loop {
            let parts = std::mem::take(&mut self.sent);
            for part in parts {
                let taken = self
                    .held
                    .receive(part)
                    .map_err(|fault| TestCaseError::fail(fault.to_string()))?;
                if let Progress::Applied(_) = taken {
                    hub.acknowledge(&stream, self.held.generation);
                }
            }
            self.sent = sent(hub, &stream);
            if self.sent.is_empty() {
                break;
            }
        }
        let bookmark = hub.bookmark(&stream).expect("it has been told everything").message();
        prop_assert_eq!(bookmark.generation, self.held.generation);
        self.held.apply_bookmark(&bookmark);
        Ok(())
    }

    pub(crate) fn objects(&self) -> BTreeMap<ObjectId, proto::Change> {
        self.held.objects().collect()
    }
}

/// What a node holds that is told by a replica that has just read everything.
pub(crate) fn fresh(made: &Made, node: &str) -> End {
    let mut hub = Hub::new([9; 16], 7);
    made.objects.iter().for_each(|object| feed(&mut hub, object));
    hub.loaded();
    let mut end = End::default();
    end.follow(node, &mut hub).expect("a stream");
    end
}
