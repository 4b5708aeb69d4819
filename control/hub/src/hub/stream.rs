//! Streams: their start, and the updates of each.

use super::Hub;
use crate::{
    policies::uid_text,
    queue::{NodeQueue, Pending},
    wholes::Whole,
};
use control_wire::{
    Digest, EncodedBookmark, Entry, Features, KINDS, KnownId, ObjectId, ObjectKind, digest_of,
    encode, entry, model,
    proto::{self, change},
};
use policy_core::index::{GroupId, Member, Needs, NodeState, Role};
use std::collections::{BTreeMap, BTreeSet};

/// Time for which a node without a stream is remembered, in milliseconds. Within it the node resumes.
const REMEMBERED_MS: u64 = 60_000;

/// A node's stream.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stream {
    /// Owner of the stream.
    pub node: String,
    /// A node has one: those with lower numbers are over.
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
    /// This replica has read less than the node holds: so far.
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

impl Hub {
    /// Opens a stream for a node and ends its previous one.
    pub fn open_stream(&mut self, node: &str, holds: &ClientState) -> Handshake {
        if self.loading {
            return Handshake::NotYet;
        }
        let is_behind = |(kind, version): (&String, &u64)| {
            // A kind that was not read here at all, neither.
            self.reached.kinds().get(kind).is_none_or(|reached| reached < version)
        };
        if !holds.take_behind && holds.reached.iter().any(is_behind) {
            return Handshake::Behind(self.reached.kinds().clone());
        }
        self.streams += 1;
        let stream = Stream { node: node.to_owned(), number: self.streams };
        self.touched.insert(node.to_owned());
        let outbox = self.nodes.entry(node.to_owned()).or_default();
        (outbox.stream, outbox.alone_since) = (stream.number, None);
        let kinds = self.capabilities.kinds.intersection(&holds.kinds).copied().collect();
        let features = self.capabilities.features.shared_with(&holds.features);
        let is_same_agent = outbox.negotiate(kinds, features);
        let is_ours = holds.epoch == self.epoch;
        // A node that has started and received nothing yet holds no generation, whatever its content.
        if is_ours && is_same_agent && holds.generation > 0 && outbox.resume(holds.generation) {
            return Handshake::Resumed(stream);
        }
        let owed = self.compare(node, &holds.holds);
        let generation = self.generation;
        self.nodes.entry(node.to_owned()).or_default().owe(owed, generation);
        Handshake::Compared(stream)
    }

    /// Returns the node's next update; `None` if it has been sent everything or does not keep up.
    pub fn next_update(&mut self, stream: &Stream) -> Option<Update> {
        let generation = self.generation;
        let outbox = self.mine(stream).filter(|outbox| outbox.is_due())?;
        let (owed, base) = outbox.take(generation);
        let features = outbox.features().clone();
        let shared = |object: &ObjectId| {
            matches!(object.kind, ObjectKind::POLICY | ObjectKind::ADDRESS_GROUP)
        };
        let own = if owed.keys().all(shared) {
            NodeState::default()
        } else {
            self.index.node_state(&stream.node)
        };
        let mut changes = Vec::new();
        for (object, owed) in owed {
            changes.extend(self.changes(&object, &owed, &own, base, &features));
        }
        Some(Update { generation, changes })
    }

    /// Records the node's ack of a generation. Returns true if more is to be sent, as the node keeps up again.
    pub fn acknowledge(&mut self, stream: &Stream, generation: u64) -> bool {
        let Some(outbox) = self.mine(stream) else { return false };
        outbox.held(generation);
        outbox.is_due()
    }

    /// Returns the first generation in flight that the node has not acknowledged.
    pub fn awaited(&self, stream: &Stream) -> Option<u64> {
        let outbox = self.nodes.get(&stream.node);
        outbox.filter(|outbox| outbox.stream == stream.number)?.awaited()
    }

    /// Returns the node's position once it holds the last update; `None` while objects are pending.
    pub fn bookmark(&self, stream: &Stream) -> Option<EncodedBookmark> {
        let outbox = self.nodes.get(&stream.node)?;
        let is_even = outbox.stream == stream.number && outbox.is_even();
        is_even.then(|| EncodedBookmark { generation: outbox.last(), reach: self.reached.said() })
    }

    /// The kinds of object that the stream carries.
    pub fn kinds(&self, stream: &Stream) -> BTreeSet<ObjectKind> {
        self.nodes.get(&stream.node).map(|queue| queue.kinds().clone()).unwrap_or_default()
    }

    /// True if this is still the node's stream.
    pub fn is_current(&self, stream: &Stream) -> bool {
        self.nodes.get(&stream.node).is_some_and(|outbox| outbox.stream == stream.number)
    }

    /// A stream broke off, at a time in milliseconds. The node is remembered for a while.
    pub fn close_stream(&mut self, stream: &Stream, now_ms: u64) {
        if let Some(outbox) = self.mine(stream) {
            outbox.alone_since = Some(now_ms);
        }
    }

    /// Forgets nodes that did not return, objects that no node needs, and announcements that no status has confirmed
    /// for a minute. Nodes may have pending objects afterward.
    pub fn tidy(&mut self, now_ms: u64) {
        self.lapse(now_ms);
        self.nodes.retain(|_, outbox| {
            outbox.alone_since.is_none_or(|since| now_ms.saturating_sub(since) < REMEMBERED_MS)
        });
        let generation = self.generation;
        self.nodes.values_mut().for_each(|outbox| outbox.rest(generation));
        let needed = self.nodes.values().map(NodeQueue::base).min();
        self.history.forget(needed.unwrap_or(self.generation));
    }

    fn mine(&mut self, stream: &Stream) -> Option<&mut NodeQueue> {
        self.nodes.get_mut(&stream.node).filter(|outbox| outbox.stream == stream.number)
    }

    /// Computes the pending objects of a node with this content.
    fn compare(
        &mut self,
        node: &str,
        holds: &BTreeMap<ObjectId, Digest>,
    ) -> BTreeMap<ObjectId, Pending> {
        let queue = self.nodes.get(node);
        let kinds = queue.map(|queue| queue.kinds().clone()).unwrap_or_default();
        let features = queue.map(|queue| queue.features().clone()).unwrap_or_default();
        // Objects of kinds that this replica does not send are not its own to remove.
        let mut owed: BTreeMap<ObjectId, Pending> = holds
            .keys()
            .filter(|object| kinds.contains(&object.kind))
            .map(|object| (object.clone(), Pending { has: true, ..Pending::default() }))
            .collect();
        for (object, digest) in self.part_of(node, &features) {
            if !kinds.contains(&object.kind) {
                continue;
            }
            if holds.get(&object) == Some(&digest) {
                owed.remove(&object);
            } else {
                let has = holds.contains_key(&object);
                owed.insert(
                    object,
                    Pending { has, needs: true, whole: true, ..Pending::default() },
                );
            }
        }
        owed
    }

    /// The objects that a node needs, with their digests.
    fn part_of(&mut self, node: &str, features: &Features) -> Vec<(ObjectId, Digest)> {
        let Needs { own, applied, address, policies } = self.index.needs_of(node);
        let others = self.objects.of_node(node);
        let mut part: Vec<_> = others.map(|(id, entry)| (id.clone(), entry.digest())).collect();
        for (id, _) in &policies {
            let uid = uid_text(id);
            let policy = self.policies.get_mut(&uid).map(|policy| policy.for_features(features));
            part.extend(policy.map(|entry| (ObjectId::policy(&uid), entry.digest())));
        }
        for id in address {
            part.extend(self.whole(id).map(|whole| (ObjectId::address(id), whole.digest)));
        }
        for (id, members) in &applied {
            let pods = members.iter().map(|member| member.uid.clone()).collect();
            let digest = digest_of(&encode::applied_group(*id, &pods));
            part.push((ObjectId::applied(*id), digest));
        }
        part.push((ObjectId::node(), digest_of(&encode::node(&own.addresses))));
        for pod in own.pods.values().filter(|pod| self.may_be_told(pod)).collect::<Vec<_>>() {
            part.push((ObjectId::pod(&pod.uid), digest_of(&self.sent_pod(pod))));
        }
        part
    }

    /// The pods of a node in an applied-to group.
    fn applied_on(&self, own: &NodeState, id: GroupId) -> model::AppliedGroup {
        let members =
            own.pods.keys().filter(|pod| self.index.is_about(id, &pod.namespace, &pod.name));
        members.map(|pod| pod.uid.clone()).collect()
    }

    /// Returns a group encoded for a node that does not have it.
    fn whole(&mut self, id: GroupId) -> Option<Whole> {
        let Self { wholes, index, .. } = self;
        wholes.get(id, || index.group_state(Role::Address, id))
    }

    fn sent_pod(&self, pod: &Member) -> proto::Change {
        let Member { namespace, name, uid, addresses, ports, .. } = pod.clone();
        let runtime_uid = self.mirrors.runtime_uid(&namespace, &name, &uid).unwrap_or_default();
        let runtime_uid = runtime_uid.to_owned();
        (&model::Pod { uid, namespace, name, addresses, ports, runtime_uid }).into()
    }

    fn changes(
        &mut self,
        object: &ObjectId,
        owed: &Pending,
        own: &NodeState,
        base: u64,
        features: &Features,
    ) -> Vec<Entry> {
        if !owed.needs {
            return vec![entry(&change::Of::Removed(object.to_proto()).into())];
        }
        let mut changes = Vec::new();
        match object.known() {
            Some(KnownId::Policy(uid)) => {
                let policy = self.policies.get_mut(uid);
                changes.extend(policy.map(|policy| policy.for_features(features)));
            }
            Some(KnownId::Node) => {
                changes.push(entry(&encode::node(&own.addresses)));
            }
            Some(KnownId::Pod(uid)) => {
                let pod = own.pods.values().find(|pod| pod.uid == uid);
                let told = pod.filter(|pod| self.may_be_told(pod));
                changes.extend(told.map(|pod| entry(&self.sent_pod(pod))));
            }
            Some(KnownId::Address(id)) => {
                let since = if owed.whole { None } else { self.history.after(id, base) };
                match since {
                    Some(since) => changes.extend(since),
                    None => {
                        changes
                            .extend(self.whole(id).iter().flat_map(|whole| whole.entries.to_vec()));
                    }
                }
            }
            Some(KnownId::Applied(id)) if !owed.whole => {
                changes.push(applied_change(id, &owed.pods))
            }
            Some(KnownId::Applied(id)) => {
                changes.push(entry(&encode::applied_group(id, &self.applied_on(own, id))));
            }
            None => changes.extend(self.objects.get(object).cloned()),
        }
        changes
    }
}

fn applied_change(id: GroupId, pods: &BTreeMap<String, bool>) -> Entry {
    let of = |is_in: bool| {
        pods.iter().filter(|(_, of)| **of == is_in).map(|(uid, _)| uid.clone()).collect()
    };
    let change = proto::AppliedChange { id: id.0.to_vec(), added: of(true), removed: of(false) };
    entry(&change::Of::AppliedChange(change).into())
}
