//! Streams: their start, and the updates of each.

use super::{
    Distributor,
    queue::{NodeQueue, Pending},
};
use crate::source::{Recipient, Source};
use control_wire::{
    Digest, EncodedBookmark, Entry, Features, KINDS, ObjectId, ObjectKind, entry, proto::change,
};
use std::collections::{BTreeMap, BTreeSet};

/// Time for which a node without a stream is remembered, in milliseconds. Within it the node resumes.
const REMEMBERED_MS: u64 = 60_000;

/// A node's stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// Owner of the stream.
    pub node: String,
    /// A node has one stream: those with lower numbers have ended.
    pub number: u64,
}

/// Content that a node reports at the start of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientState {
    /// Run of the replica that sent the content; empty if the node has none.
    pub epoch: Vec<u8>,
    /// Generation in that run.
    pub generation: u64,
    /// Resource version up to which each kind was read for that generation.
    pub reached: BTreeMap<String, u64>,
    /// The objects.
    pub holds: BTreeMap<ObjectId, Digest>,
    /// The node accepts this replica even if the replica has read less.
    pub take_behind: bool,
    /// The kinds of object that its agent can hold. It may name kinds that this replica does not know.
    pub kinds: BTreeSet<ObjectKind>,
    /// The match features that its agent understands.
    pub features: Features,
}

impl Default for ClientState {
    /// An agent of this version that holds nothing.
    fn default() -> Self {
        Self {
            epoch: Vec::new(),
            generation: 0,
            reached: BTreeMap::new(),
            holds: BTreeMap::new(),
            take_behind: false,
            kinds: KINDS.into(),
            features: Features::supported(),
        }
    }
}

/// Start of a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Handshake {
    /// The node receives the changes since its generation.
    Resumed(Stream),
    /// The node receives the differences from its content.
    Compared(Stream),
    /// This replica has read less than the node holds: only up to these versions.
    Behind(BTreeMap<String, u64>),
    /// The first lists are not all read yet.
    NotYet,
}

/// Pending changes of a node, which it applies whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Update {
    /// Generation of the node after it has applied the update.
    pub generation: u64,
    pub changes: Vec<Entry>,
}

impl<S: Source> Distributor<S> {
    /// Opens a stream for a node and ends its previous one.
    pub fn open_stream(&mut self, node: &str, client: &ClientState) -> Handshake {
        let state = &mut self.state;
        if !state.is_loaded {
            return Handshake::NotYet;
        }
        // A kind that this replica has not read at all also counts as behind.
        let is_behind = |(kind, version): (&String, &u64)| {
            state.reached.kinds().get(kind).is_none_or(|reached| reached < version)
        };
        if !client.take_behind && client.reached.iter().any(is_behind) {
            return Handshake::Behind(state.reached.kinds().clone());
        }
        state.streams += 1;
        let stream = Stream { node: node.to_owned(), number: state.streams };
        state.touched.insert(node.to_owned());
        let queue = state.nodes.entry(node.to_owned()).or_default();
        (queue.stream, queue.disconnected_ms) = (stream.number, None);
        let kinds = state.kinds.intersection(&client.kinds).copied().collect();
        let features = state.features.shared_with(&client.features);
        let is_same_agent = queue.negotiate(kinds, features);
        let is_ours = client.epoch == state.epoch;
        // A node that has started and received nothing yet holds no generation, whatever its content.
        let can_resume = is_ours && is_same_agent && client.generation > 0;
        if can_resume && queue.resume(client.generation) {
            return Handshake::Resumed(stream);
        }
        let pending = self.compare(node, &client.holds);
        let generation = self.state.generation;
        self.state.nodes.entry(node.to_owned()).or_default().replace(pending, generation);
        Handshake::Compared(stream)
    }

    /// Returns the node's next update; `None` if it has been sent everything or does not keep up.
    pub fn next_update(&mut self, stream: &Stream) -> Option<Update> {
        let generation = self.state.generation;
        let queue = self.queue(stream).filter(|queue| queue.is_due())?;
        let (pending, base) = queue.take(generation);
        let (kinds, features) = (queue.kinds().clone(), queue.features().clone());
        let mut changes = Vec::new();
        let mut objects = Vec::new();
        for (object, pending) in pending {
            let recorded = || self.state.history.after(&object, base);
            if !pending.is_needed {
                changes.push(entry(&change::Of::Removed(object.to_proto()).into()));
            } else if !pending.is_whole()
                && let Some(recorded) = recorded()
            {
                changes.extend(recorded);
            } else {
                objects.push((object, pending));
            }
        }
        if !objects.is_empty() {
            let reached = self.state.reached.kinds();
            let (node, kinds, features) = (stream.node.as_str(), &kinds, &features);
            let recipient = Recipient { node, kinds, features, reached };
            self.source.encode(&recipient, &objects, &mut changes);
        }
        Some(Update { generation, changes })
    }

    /// Records the node's ack of a generation. Returns true if more is to be sent, as the node keeps up again.
    pub fn acknowledge(&mut self, stream: &Stream, generation: u64) -> bool {
        let Some(queue) = self.queue(stream) else { return false };
        queue.acknowledge(generation);
        queue.is_due()
    }

    /// Returns the first generation in flight that the node has not acknowledged.
    pub fn awaited(&self, stream: &Stream) -> Option<u64> {
        let queue = self.state.nodes.get(&stream.node);
        queue.filter(|queue| queue.stream == stream.number)?.awaited()
    }

    /// Returns the node's position once it holds the last update; `None` while objects are pending.
    pub fn bookmark(&self, stream: &Stream) -> Option<EncodedBookmark> {
        let queue = self.state.nodes.get(&stream.node)?;
        let is_even = queue.stream == stream.number && queue.is_even();
        let reach = || self.state.reached.positions();
        is_even.then(|| EncodedBookmark { generation: queue.last(), reach: reach() })
    }

    /// Returns the kinds of object that the stream carries.
    pub fn kinds(&self, stream: &Stream) -> BTreeSet<ObjectKind> {
        self.state.nodes.get(&stream.node).map(|queue| queue.kinds().clone()).unwrap_or_default()
    }

    /// True if this is still the node's stream.
    pub fn is_current(&self, stream: &Stream) -> bool {
        self.state.nodes.get(&stream.node).is_some_and(|queue| queue.stream == stream.number)
    }

    /// Records the end of a stream, at a time in milliseconds. The node is remembered for a minute.
    pub fn close_stream(&mut self, stream: &Stream, now_ms: u64) {
        if let Some(queue) = self.queue(stream) {
            queue.disconnected_ms = Some(now_ms);
        }
    }

    /// Forgets nodes that did not return, history that no node needs, and what expires in the source. Nodes may have
    /// pending objects afterward.
    pub fn tidy(&mut self, now_ms: u64) {
        self.change(|source, generation| source.expire(now_ms, generation));
        let state = &mut self.state;
        state.nodes.retain(|_, queue| {
            queue.disconnected_ms.is_none_or(|since| now_ms.saturating_sub(since) < REMEMBERED_MS)
        });
        let generation = state.generation;
        state.nodes.values_mut().for_each(|queue| queue.advance(generation));
        let needed = state.nodes.values().map(NodeQueue::base).min();
        state.history.forget(needed.unwrap_or(generation));
    }

    fn queue(&mut self, stream: &Stream) -> Option<&mut NodeQueue> {
        self.state.nodes.get_mut(&stream.node).filter(|queue| queue.stream == stream.number)
    }

    /// Computes the pending objects of a node with this content.
    fn compare(
        &mut self,
        node: &str,
        holds: &BTreeMap<ObjectId, Digest>,
    ) -> BTreeMap<ObjectId, Pending> {
        let queue = self.state.nodes.get(node);
        let kinds = queue.map(|queue| queue.kinds().clone()).unwrap_or_default();
        let features = queue.map(|queue| queue.features().clone()).unwrap_or_default();
        // Objects of kinds that this replica does not send are not its own to remove.
        let held = holds.keys().filter(|object| kinds.contains(&object.kind));
        let mut pending: BTreeMap<ObjectId, Pending> =
            held.map(|object| (object.clone(), Pending::removal())).collect();
        let reached = self.state.reached.kinds();
        let recipient = Recipient { node, kinds: &kinds, features: &features, reached };
        for (object, digest) in self.source.needs(&recipient) {
            if !kinds.contains(&object.kind) {
                continue;
            }
            if holds.get(&object) == Some(&digest) {
                pending.remove(&object);
            } else {
                let is_held = holds.contains_key(&object);
                pending.insert(object, Pending::whole(is_held));
            }
        }
        pending
    }
}
