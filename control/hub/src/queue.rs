//! What each node has yet to be told.
//!
//! Nothing is queued: a node is owed *objects*, and what it is told of one is the difference between what it
//! last was told and what there is when its turn comes. So a node that is slow is told less often, costs
//! no more memory for it than objects that it needs, and misses nothing.

use control_wire::{Features, ObjectId, ObjectKind};
use policy_core::index::GroupId;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many generations may be on their way to a node that has not said that it holds them.
const WINDOW: usize = 4;

/// A node's, from its first stream until long after its last.
#[derive(Debug, Default)]
pub(crate) struct NodeQueue {
    /// Which stream is the node's; those before it are over.
    pub(crate) stream: u64,
    /// Since when it has none, in milliseconds.
    pub(crate) alone_since: Option<u64>,
    /// The generation as of which the node has been told everything but what it is owed.
    told: u64,
    /// The generation by which the node knows what it holds.
    holds: u64,
    owed: BTreeMap<ObjectId, Pending>,
    under_way: VecDeque<InFlight>,
    /// A new stream is told a generation even if there is nothing in it.
    greet: bool,
    /// The kinds of object that the agent knows and this replica sends: the node is owed no others.
    kinds: BTreeSet<ObjectKind>,
    /// The match features that both understand.
    features: Features,
}

/// What was told and may not have come.
#[derive(Debug)]
struct InFlight {
    generation: u64,
    /// As of which it had been told before.
    before: u64,
    owed: BTreeMap<ObjectId, Pending>,
}

/// What a node is owed of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pending {
    /// The node has one: it is told if it is to have none.
    pub(crate) has: bool,
    /// It is to have it.
    pub(crate) needs: bool,
    /// What it has is not what changed since: it is told all of it.
    pub(crate) whole: bool,
    /// Of an applied-to group: which pods of the node came and went.
    pub(crate) pods: BTreeMap<String, bool>,
}

/// What has happened to an object, seen from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transition {
    /// It is another.
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

    /// What a node is owed that said what it holds.
    pub(crate) fn owe(&mut self, owed: BTreeMap<ObjectId, Pending>, generation: u64) {
        self.owed = owed;
        self.under_way.clear();
        (self.told, self.holds, self.greet) = (generation, generation, true);
    }

    /// The node says that it holds a generation.
    pub(crate) fn held(&mut self, generation: u64) {
        while self.under_way.front().is_some_and(|first| first.generation <= generation) {
            self.holds = self.under_way.pop_front().map_or(self.holds, |first| first.generation);
        }
    }

    /// The first generation on its way of which the node has said nothing.
    pub(crate) fn awaited(&self) -> Option<u64> {
        self.under_way.front().map(|told| told.generation)
    }

    /// A stream begins where the one before it broke off: what was under way may be lost. Returns whether the
    /// node's generation is one from which that can be told.
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

    /// Whether there is something to tell, and the node keeps up.
    pub(crate) fn is_due(&self) -> bool {
        (self.greet || !self.owed.is_empty()) && self.under_way.len() < WINDOW
    }

    /// Whether it has been told everything.
    pub(crate) fn is_even(&self) -> bool {
        !self.greet && self.owed.is_empty()
    }

    /// Takes what is owed: it is told as of this generation. With it, as of which it was told before.
    pub(crate) fn take(&mut self, generation: u64) -> (BTreeMap<ObjectId, Pending>, u64) {
        let (owed, before) = (std::mem::take(&mut self.owed), self.told);
        self.under_way.push_back(InFlight { generation, before, owed: owed.clone() });
        (self.told, self.greet) = (generation, false);
        (owed, before)
    }

    /// The generation that the node said last that it holds.
    pub(crate) fn holds(&self) -> u64 {
        self.holds
    }

    /// The generation that it knows what it was told by.
    pub(crate) fn last(&self) -> u64 {
        self.under_way.back().map_or(self.holds, |told| told.generation)
    }

    /// The generation after which changes may have to be told to this node.
    pub(crate) fn base(&self) -> u64 {
        self.under_way.front().map_or(self.told, |told| told.before)
    }

    /// A node that lacks nothing has been told everything up to now, also what was none of its own.
    pub(crate) fn rest(&mut self, generation: u64) {
        if self.is_even() && self.under_way.is_empty() {
            self.told = generation;
        }
    }

    /// How many objects are owed; a measure of its memory.
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
