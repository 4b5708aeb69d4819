//! Pending objects of each node.
//!
//! The queue holds *objects*, not messages. An update of an object is the difference between the last version
//! that the node received and the version at its turn. So a slow node receives fewer updates and misses nothing.
//! Its memory is bounded by the number of objects that it needs.

use control_wire::{Features, ObjectId, ObjectKind};
use policy_core::index::GroupId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Maximum number of unacknowledged generations in flight to a node.
const WINDOW: usize = 4;

/// A node's, from its first stream until long after its last.
#[derive(Debug, Default)]
pub(crate) struct NodeQueue {
    /// The node's current stream; earlier ones have ended.
    pub(crate) stream: u64,
    /// Since when it has none, in milliseconds.
    pub(crate) alone_since: Option<u64>,
    /// Last generation of which the node was sent everything except pending objects.
    told: u64,
    /// The generation by which the node knows what it holds.
    holds: u64,
    owed: BTreeMap<ObjectId, Pending>,
    under_way: VecDeque<InFlight>,
    /// A new stream is sent a generation even if it contains no changes.
    greet: bool,
    /// The kinds of object that the agent knows and this replica sends: the node is owed no others.
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
    owed: BTreeMap<ObjectId, Pending>,
}

/// Pending state of one object for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// The node has the object, so it is sent a removal if it no longer needs the object.
    pub(crate) has: bool,
    /// The node needs the object.
    pub(crate) needs: bool,
    /// The node's version is not the base of the recorded changes, so it is sent the whole object.
    pub(crate) whole: bool,
    /// Of an applied-to group: which pods of the node came and went.
    pub(crate) pods: BTreeMap<String, bool>,
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

impl NodeQueue {
    pub(crate) fn turn(&mut self, object: &ObjectId, turn: Transition) {
        if !self.kinds.contains(&object.kind) {
            return;
        }
        let fresh = || Pending { has: turn != Transition::Entered, ..Pending::default() };
        let owed = self.owed.entry(object.clone()).or_insert_with(fresh);
        owed.needs = turn != Transition::Left;
        owed.whole |= turn == Transition::Entered;
        if !owed.has && !owed.needs {
            self.owed.remove(object);
        }
    }

    /// A pod of the node came into an applied-to group, or went.
    pub(crate) fn pod(&mut self, group: GroupId, uid: &str, is_in: bool) {
        if !self.kinds.contains(&ObjectKind::APPLIED_GROUP) {
            return;
        }
        let fresh = || Pending { has: true, needs: true, ..Pending::default() };
        let owed = self.owed.entry(ObjectId::applied(group)).or_insert_with(fresh);
        owed.pods.insert(uid.to_owned(), is_in);
    }

    /// Sets what the agent of a new stream understands. Returns whether that is the same as before: otherwise the
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
    pub(crate) fn owe(&mut self, owed: BTreeMap<ObjectId, Pending>, generation: u64) {
        self.owed = owed;
        self.under_way.clear();
        (self.told, self.holds, self.greet) = (generation, generation, true);
    }

    /// Records the node's ack of a generation.
    pub(crate) fn held(&mut self, generation: u64) {
        while self.under_way.front().is_some_and(|first| first.generation <= generation) {
            self.holds = self.under_way.pop_front().map_or(self.holds, |first| first.generation);
        }
    }

    /// Returns the first unacknowledged generation in flight.
    pub(crate) fn awaited(&self) -> Option<u64> {
        self.under_way.front().map(|told| told.generation)
    }

    /// Resumes at the point where the previous stream broke off; updates in flight may be lost. Returns true if
    /// the node's generation is one from which the differences are known.
    pub(crate) fn resume(&mut self, generation: u64) -> bool {
        let was_told = self.under_way.iter().any(|told| told.generation == generation);
        if generation != self.holds && !was_told {
            return false;
        }
        self.held(generation);
        self.told = self.base();
        let mut owed = BTreeMap::new();
        for told in self.under_way.drain(..) {
            told.owed.into_iter().for_each(|(object, later)| add(&mut owed, object, later));
        }
        for (object, later) in std::mem::take(&mut self.owed) {
            add(&mut owed, object, later);
        }
        (self.owed, self.greet) = (owed, true);
        true
    }

    /// True if objects are pending and the node keeps up.
    pub(crate) fn is_due(&self) -> bool {
        (self.greet || !self.owed.is_empty()) && self.under_way.len() < WINDOW
    }

    /// True if the node has been sent everything.
    pub(crate) fn is_even(&self) -> bool {
        !self.greet && self.owed.is_empty()
    }

    /// Takes the pending objects, to be sent as of this generation. Also returns the generation sent before.
    pub(crate) fn take(&mut self, generation: u64) -> (BTreeMap<ObjectId, Pending>, u64) {
        let (owed, before) = (std::mem::take(&mut self.owed), self.told);
        self.under_way.push_back(InFlight { generation, before, owed: owed.clone() });
        (self.told, self.greet) = (generation, false);
        (owed, before)
    }

    /// Returns the last generation that the node acknowledged.
    pub(crate) fn holds(&self) -> u64 {
        self.holds
    }

    /// Returns the generation of the last update that was sent to the node.
    pub(crate) fn last(&self) -> u64 {
        self.under_way.back().map_or(self.holds, |told| told.generation)
    }

    /// Returns the generation after which this node may need changes.
    pub(crate) fn base(&self) -> u64 {
        self.under_way.front().map_or(self.told, |told| told.before)
    }

    /// Advances a node without pending objects to this generation; changes up to it did not concern the node.
    pub(crate) fn rest(&mut self, generation: u64) {
        if self.is_even() && self.under_way.is_empty() {
            self.told = generation;
        }
    }

    /// Returns the number of pending objects, a measure of the memory.
    pub(crate) fn len(&self) -> usize {
        self.owed.len() + self.under_way.iter().map(|told| told.owed.len()).sum::<usize>()
    }
}

/// Two debts one after the other are one.
fn add(owed: &mut BTreeMap<ObjectId, Pending>, object: ObjectId, later: Pending) {
    let Some(earlier) = owed.get_mut(&object) else {
        owed.insert(object, later);
        return;
    };
    earlier.needs = later.needs;
    earlier.whole |= later.whole;
    earlier.pods.extend(later.pods);
    if !earlier.has && !earlier.needs {
        owed.remove(&object);
    }
}
