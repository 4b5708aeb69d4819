//! The seam between sources of objects and the distributor.

use crate::distributor::{Generation, Pending};
use control_wire::{Digest, Entry, Features, ObjectId, ObjectKind};
use std::collections::{BTreeMap, BTreeSet};

/// A source of objects that nodes need: policy, and others beside it.
///
/// Each object has an [`ObjectId`], one encoding that all nodes share, and a span, which is the set of nodes that
/// need it. A source owns its objects and their spans. It reports each change of an object or a span to the
/// [`Generation`] of that change. [`Distributor::change`](crate::Distributor::change) passes both. The distributor
/// keeps the pending objects of each node and asks the source for their content at the time of sending. So a slow node
/// receives the newest version only.
///
/// Sources have disjoint kinds of object. A pair of sources is a source.
pub trait Source {
    /// Returns the objects that a node needs now, with the digests of their encodings. This is the inverse of the
    /// spans. The distributor calls it for a stream that does not resume, and compares the digests with the node's.
    fn needs(&mut self, recipient: &Recipient<'_>) -> Vec<(ObjectId, Digest)>;

    /// Appends the changes that bring these objects of a node up to date. A source skips objects that are not its
    /// own, and its objects that the node must not receive yet. An encoding that several nodes need is made once and
    /// cloned, which costs a reference count.
    fn encode(
        &mut self,
        recipient: &Recipient<'_>,
        objects: &[(ObjectId, Pending)],
        changes: &mut Vec<Entry>,
    );

    /// Completes the first lists. The distributor accepts no stream before this call.
    fn loaded(&mut self) {}

    /// Ends what expires with time. `now_ms` is in milliseconds of the caller's monotonic clock.
    fn expire(&mut self, _now_ms: u64, _generation: &mut Generation<'_>) {}
}

/// The node for which objects are needed or encoded, and its agent.
#[derive(Clone, Copy, Debug)]
pub struct Recipient<'a> {
    pub node: &'a str,
    /// The kinds of object that the stream carries.
    pub kinds: &'a BTreeSet<ObjectKind>,
    /// The match features that both the replica and the agent understand.
    pub features: &'a Features,
    /// The last applied resource version of each kind of Kubernetes object. A kind that is absent is not read.
    pub reached: &'a BTreeMap<String, u64>,
}

impl<A: Source, B: Source> Source for (A, B) {
    fn needs(&mut self, recipient: &Recipient<'_>) -> Vec<(ObjectId, Digest)> {
        let mut needs = self.0.needs(recipient);
        needs.append(&mut self.1.needs(recipient));
        needs
    }

    fn encode(
        &mut self,
        recipient: &Recipient<'_>,
        objects: &[(ObjectId, Pending)],
        changes: &mut Vec<Entry>,
    ) {
        self.0.encode(recipient, objects, changes);
        self.1.encode(recipient, objects, changes);
    }

    fn loaded(&mut self) {
        self.0.loaded();
        self.1.loaded();
    }

    fn expire(&mut self, now_ms: u64, generation: &mut Generation<'_>) {
        self.0.expire(now_ms, generation);
        self.1.expire(now_ms, generation);
    }
}
