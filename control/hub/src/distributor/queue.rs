//! Pending objects of each node.
//!
//! The queue holds *objects*, not messages. An update of an object is the difference between the last version
//! that the node received and the version at the time of sending. So a slow node receives fewer updates and misses
//! nothing. The memory of a queue is bounded by the number of objects that the node needs.

use control_wire::{Features, ObjectId, ObjectKind};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of unacknowledged generations in flight to a node.
const WINDOW: usize = 4;

/// Queue of one node, from its first stream until the node has had no stream for a minute.
#[derive(Debug, Default)]
pub(crate) struct NodeQueue {
    /// The node's current stream; earlier ones have ended.
    pub(crate) stream: u64,
    /// Time at which the last stream ended, in milliseconds; `None` while there is one.
    pub(crate) disconnected_ms: Option<u64>,
    /// Last generation of which the node was sent everything except pending objects.
    sent: u64,
    /// Last generation that the node acknowledged.
    acknowledged: u64,
    pending: BTreeMap<ObjectId, Pending>,
    in_flight: VecDeque<InFlight>,
    /// A new stream is sent a generation even if it contains no changes.
    is_new_stream: bool,
    /// The kinds of object that the agent knows and this replica sends: objects of other kinds are never pending.
    kinds: BTreeSet<ObjectKind>,
    /// The match features that both understand.
    features: Features,
}

/// A sent update whose arrival is not acknowledged.
#[derive(Debug)]
struct InFlight {
    generation: u64,
    /// Generation that was sent before this one.
    before: u64,
    objects: BTreeMap<ObjectId, Pending>,
}

/// Pending state of one object for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pending {
    /// The node has the object, so it is sent a removal if it no longer needs the object.
    pub(crate) is_held: bool,
    /// The node needs the object.
    pub(crate) is_needed: bool,
    /// The node's version is not the base of the recorded changes, so it is sent the whole object.
    is_whole: bool,
    /// Elements of the node's version that were added (true) or removed (false).
    elements: BTreeMap<String, bool>,
}

/// Change of an object from the view of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// The node has another version of it.
    Changed,
    /// The node needs it now.
    Entered,
    /// The node no longer needs it.
    Left,
}

impl Pending {
    /// The state of an object that the node needs and has in no version or an unknown one.
    pub(crate) fn whole(is_held: bool) -> Self {
        Self { is_held, is_needed: true, is_whole: true, ..Self::default() }
    }

    /// The state of an object that the node has and does not need.
    pub(crate) fn removal() -> Self {
        Self { is_held: true, ..Self::default() }
    }

    /// True if the node must receive the whole object. Otherwise it has the version to which its recorded changes or
    /// its [`elements`](Self::elements) apply.
    pub fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Elements of the node's version that were added (true) or removed (false) since that version.
    pub fn elements(&self) -> &BTreeMap<String, bool> {
        &self.elements
    }

    /// Adds a later state of the same object.
    fn merge(&mut self, later: Self) {
        self.is_needed = later.is_needed;
        self.is_whole |= later.is_whole;
        self.elements.extend(later.elements);
    }

    fn is_void(&self) -> bool {
        !self.is_held && !self.is_needed
    }
}

impl NodeQueue {
    pub(crate) fn mark(&mut self, object: &ObjectId, transition: Transition) {
        if !self.kinds.contains(&object.kind) {
            return;
        }
        let is_held = transition != Transition::Entered;
        let fresh = || Pending { is_held, ..Pending::default() };
        let pending = self.pending.entry(object.clone()).or_insert_with(fresh);
        pending.is_needed = transition != Transition::Left;
        pending.is_whole |= transition == Transition::Entered;
        if pending.is_void() {
            self.pending.remove(object);
        }
    }

    /// Records an element that was added to the node's version of an object, or removed from it.
    pub(crate) fn element(&mut self, object: &ObjectId, element: &str, is_added: bool) {
        if !self.kinds.contains(&object.kind) {
            return;
        }
        let fresh = || Pending { is_held: true, is_needed: true, ..Pending::default() };
        let pending = self.pending.entry(object.clone()).or_insert_with(fresh);
        pending.elements.insert(element.to_owned(), is_added);
    }

    /// Sets what the agent of a new stream understands. Returns whether that is the same as before. Otherwise the
    /// pending objects are those of another agent, and the stream cannot resume.
    pub(crate) fn negotiate(&mut self, kinds: BTreeSet<ObjectKind>, features: Features) -> bool {
        let is_same = self.kinds == kinds && self.features == features;
        (self.kinds, self.features) = (kinds, features);
        is_same
    }

    pub(crate) fn kinds(&self) -> &BTreeSet<ObjectKind> {
        &self.kinds
    }

    pub(crate) fn features(&self) -> &Features {
        &self.features
    }

    /// Sets the pending objects of a node that has reported its content.
    pub(crate) fn replace(&mut self, pending: BTreeMap<ObjectId, Pending>, generation: u64) {
        self.pending = pending;
        self.in_flight.clear();
        (self.sent, self.acknowledged, self.is_new_stream) = (generation, generation, true);
    }

    /// Records the node's ack of a generation.
    pub(crate) fn acknowledge(&mut self, generation: u64) {
        while self.in_flight.front().is_some_and(|first| first.generation <= generation) {
            let first = self.in_flight.pop_front();
            self.acknowledged = first.map_or(self.acknowledged, |first| first.generation);
        }
    }

    /// Returns the first unacknowledged generation in flight.
    pub(crate) fn awaited(&self) -> Option<u64> {
        self.in_flight.front().map(|sent| sent.generation)
    }

    /// Resumes at the point where the previous stream broke off; updates in flight may be lost. Returns true if
    /// the node's generation is one from which the differences are known.
    pub(crate) fn resume(&mut self, generation: u64) -> bool {
        let was_sent = self.in_flight.iter().any(|sent| sent.generation == generation);
        if generation != self.acknowledged && !was_sent {
            return false;
        }
        self.acknowledge(generation);
        self.sent = self.base();
        let mut pending = BTreeMap::new();
        for sent in self.in_flight.drain(..) {
            sent.objects.into_iter().for_each(|(object, later)| add(&mut pending, object, later));
        }
        for (object, later) in std::mem::take(&mut self.pending) {
            add(&mut pending, object, later);
        }
        (self.pending, self.is_new_stream) = (pending, true);
        true
    }

    /// True if objects are pending and the window has room.
    pub(crate) fn is_due(&self) -> bool {
        (self.is_new_stream || !self.pending.is_empty()) && self.in_flight.len() < WINDOW
    }

    /// True if the node has been sent everything.
    pub(crate) fn is_even(&self) -> bool {
        !self.is_new_stream && self.pending.is_empty()
    }

    /// Takes the pending objects, to be sent as of this generation. Also returns the generation sent before.
    pub(crate) fn take(&mut self, generation: u64) -> (BTreeMap<ObjectId, Pending>, u64) {
        let (pending, before) = (std::mem::take(&mut self.pending), self.sent);
        self.in_flight.push_back(InFlight { generation, before, objects: pending.clone() });
        (self.sent, self.is_new_stream) = (generation, false);
        (pending, before)
    }

    /// Returns the last generation that the node acknowledged.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// Returns the generation of the last update that was sent to the node.
    pub(crate) fn last(&self) -> u64 {
        self.in_flight.back().map_or(self.acknowledged, |sent| sent.generation)
    }

    /// Returns the generation after which this node may need changes.
    pub(crate) fn base(&self) -> u64 {
        self.in_flight.front().map_or(self.sent, |sent| sent.before)
    }

    /// Advances a node without pending objects to this generation; changes up to it did not concern the node.
    pub(crate) fn advance(&mut self, generation: u64) {
        if self.is_even() && self.in_flight.is_empty() {
            self.sent = generation;
        }
    }

    /// Returns the number of pending and unacknowledged objects, a measure of the memory.
    pub(crate) fn len(&self) -> usize {
        self.pending.len() + self.in_flight.iter().map(|sent| sent.objects.len()).sum::<usize>()
    }
}

/// Adds a later state of an object to the pending objects.
fn add(pending: &mut BTreeMap<ObjectId, Pending>, object: ObjectId, later: Pending) {
    let Some(earlier) = pending.get_mut(&object) else {
        pending.insert(object, later);
        return;
    };
    earlier.merge(later);
    if earlier.is_void() {
        pending.remove(&object);
    }
}
