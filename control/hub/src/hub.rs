//! The hub.

mod announce;
mod deltas;
mod pending_namespaces;
mod report;
mod stream;

pub use announce::Announce;
pub use report::{AgentReport, PolicyReport};
pub use stream::{ClientState, Handshake, Stream, Update};

use crate::{
    announced::Announced,
    encoded::EncodedPolicy,
    history::History,
    mirrors::Mirrors,
    objects::{Moves, Objects},
    outside::Outside,
    policies::{uid_of, uid_text},
    policy_changes::{Needed, NeededBy, PolicyChange, PolicyChanges},
    queue::{NodeQueue, Transition},
    reached::Reached,
    wholes::Wholes,
};
use control_wire::{Entry, Features, KINDS, ObjectId, ObjectKind};
use policy_core::{
    Policy, PolicyKey, Rule, Tier, compile,
    index::{Event, Index},
};
use policy_objects::Object;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Sizes of the hub's content, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measures {
    /// The newest generation.
    pub generation: u64,
    pub policies: usize,
    /// Groups of both roles.
    pub groups: usize,
    /// Nodes with a stream.
    pub streams: usize,
    /// Objects that are pending for nodes, all nodes together.
    pub owed: usize,
    /// Bytes of what changed of groups, kept for nodes that are behind.
    pub history_bytes: usize,
    /// Pods with addresses that their agents have announced and no status has confirmed.
    pub announced: usize,
}

/// The version of a replica, as far as streams depend on it.
#[derive(Clone, Debug)]
pub struct Capabilities {
    /// The kinds of object that it sends.
    pub kinds: BTreeSet<ObjectKind>,
    /// The match features that its rules use.
    pub features: Features,
    /// The match features that a rule uses, beyond those of the first version of the protocol.
    pub requires: fn(&Rule) -> Vec<u32>,
}

impl Default for Capabilities {
    fn default() -> Self {
        let (kinds, features) = (KINDS.into(), Features::supported());
        Self { kinds, features, requires: |_| Vec::new() }
    }
}

/// All objects, and the state of each node's stream.
#[derive(Debug)]
pub struct Hub {
    index: Index,
    epoch: [u8; 16],
    loading: bool,
    generation: u64,
    policies: BTreeMap<String, EncodedPolicy>,
    history: History,
    wholes: Wholes,
    nodes: BTreeMap<String, NodeQueue>,
    streams: u64,
    reached: Reached,
    touched: BTreeSet<String>,
    announced: Announced,
    outside: Outside,
    mirrors: Mirrors,
    /// By unread namespace: nodes, and UIDs of their pods that are withheld from them until it is read.
    unread: BTreeMap<String, BTreeSet<(String, String)>>,
    turns: PolicyChanges,
    capabilities: Capabilities,
    objects: Objects,
}

impl Hub {
    /// One without objects: they are applied until all are [`loaded`](Self::loaded). The epoch is 16 random
    /// bytes, another at each start; the seed is the index's.
    pub fn new(epoch: [u8; 16], seed: u64) -> Self {
        Self {
            index: Index::new(seed),
            epoch,
            loading: true,
            generation: 0,
            policies: BTreeMap::new(),
            history: History::default(),
            wholes: Wholes::default(),
            nodes: BTreeMap::new(),
            streams: 0,
            reached: Reached::default(),
            touched: BTreeSet::new(),
            announced: Announced::default(),
            outside: Outside::default(),
            mirrors: Mirrors::default(),
            unread: BTreeMap::new(),
            turns: PolicyChanges::default(),
            capabilities: Capabilities::default(),
            objects: Objects::default(),
        }
    }

    /// The same replica with other capabilities, before the first stream.
    #[must_use]
    pub fn with_capabilities(self, capabilities: Capabilities) -> Self {
        Self { capabilities, ..self }
    }

    /// This run of the replica.
    pub fn epoch(&self) -> [u8; 16] {
        self.epoch
    }

    /// Returns the index of group membership.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Records that all first lists are read. Nodes receive updates from now on.
    pub fn loaded(&mut self) {
        self.index.loaded();
        self.loading = false;
        self.generation = 1;
        let uids: Vec<String> = self.policies.keys().cloned().collect();
        uids.iter().for_each(|uid| _ = self.encode_anew(uid));
        if self.turns.are_asked_for() {
            self.follow_policies();
        }
    }

    /// True if the first lists are read.
    pub fn is_loaded(&self) -> bool {
        !self.loading
    }

    /// Records that all events of a kind up to this resource version have been applied.
    pub fn reach(&mut self, kind: &str, version: u64) {
        self.reached.raise(kind, version);
    }

    /// Records a relist of a kind with all of it as of this resource version. That is less than before if the
    /// cluster was set back to an earlier state.
    pub fn relisted(&mut self, kind: &str, version: u64) {
        self.reached.set(kind, version);
    }

    /// Records that the cluster no longer has a kind and that the controller does not read it.
    pub fn unreach(&mut self, kind: &str) {
        self.reached.forget(kind);
    }

    /// Returns the last applied resource version of each kind.
    pub fn reached(&self) -> &BTreeMap<String, u64> {
        self.reached.kinds()
    }

    /// The newest generation.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the address and port for reports; empty if no replica takes them now.
    pub fn reports_to(&self) -> &str {
        self.reached.reports_to()
    }

    /// Sets the receiver of reports and sends it to all nodes.
    pub fn set_reports_to(&mut self, at: &str) {
        if self.reached.report_to(at) {
            self.touched.extend(self.nodes.keys().cloned());
        }
    }

    /// Takes in what happened to a policy. The generation is that of its spec.
    pub fn policy(&mut self, policy: &Policy, generation: i64) {
        let deltas = self.index.apply(Event::Policy(policy));
        let before = self.generation;
        self.deltas(&deltas);
        let uid = uid_of(policy);
        let moves = policy.place.tier != Tier::NetworkPolicy;
        let form = moves.then(|| Arc::new(policy.clone()));
        let Some(state) = self.index.policy_state(&policy.key) else { return };
        self.turns.moved(&uid, &policy.key, &[], &[]);
        let encoded =
            EncodedPolicy::new(policy, generation, &state, self.capabilities.requires, form);
        let same = self.policies.get(&uid).is_some_and(|was| was.entry == encoded.entry);
        self.policies.insert(uid.clone(), encoded);
        if !same && !self.loading {
            self.generation = before + 1;
            self.turn_all(&ObjectId::policy(&uid), &state.span, Transition::Changed);
        }
    }

    /// Applies an event of any object. Policies use [`policy`](Self::policy) instead, as a policy's converted form
    /// lacks its generation.
    pub fn apply(&mut self, event: Event<'_>) {
        if let Event::Policy(policy) = event {
            return self.policy(policy, 0);
        }
        if let Event::PolicyView(lent) = event {
            // Nodes receive its form, not its groups alone.
            let object = Object::NetworkPolicy(lent.clone().into());
            let generation = object.meta().generation;
            if let Some(policy) = compile(&object) {
                self.policy(&policy, generation);
            }
            return;
        }
        if self.loading {
            self.gone_early(&event);
        }
        self.object(event);
    }

    /// Removes a policy before all first lists are read, when the index returns no deltas.
    fn gone_early(&mut self, event: &Event<'_>) {
        let Event::Gone { kind, namespace, name, uid } = event else { return };
        let (namespace, name) = ((*namespace).to_owned(), (*name).to_owned());
        let key = PolicyKey { kind: *kind, namespace, name };
        let uid = if uid.is_empty() { key.to_string() } else { (*uid).to_owned() };
        self.policies.remove(&uid);
    }

    /// Adds or replaces an object of another source than policy: its encoding, which all nodes share, and the nodes that
    /// need it. It reaches the nodes whose agents know its kind.
    pub fn put_object(&mut self, id: &ObjectId, entry: Entry, span: BTreeSet<String>) {
        let moves = self.objects.put(id, entry, span);
        self.move_object(id, &moves);
    }

    pub fn remove_object(&mut self, id: &ObjectId) {
        let moves = self.objects.remove(id);
        self.move_object(id, &moves);
    }

    fn move_object(&mut self, id: &ObjectId, moves: &Moves) {
        if self.loading || moves.is_empty() {
            return;
        }
        self.generation += 1;
        self.turn_all(id, &moves.left, Transition::Left);
        self.turn_all(id, &moves.entered, Transition::Entered);
        self.turn_all(id, &moves.changed, Transition::Changed);
    }

    /// Returns the nodes that got pending objects since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.touched)
    }

    /// Starts to collect changes of policies for [`take_policies`](Self::take_policies). The first changes are all
    /// existing policies.
    pub fn follow_policies(&mut self) {
        let all = self.index.policy_names();
        self.turns.begin(all.into_iter().map(|(id, key)| (uid_text(&id), key)));
    }

    /// Stops the collection of policy changes.
    pub fn leave_policies(&mut self) {
        self.turns.end();
    }

    /// Returns policy changes since the last call: as many as have so many nodes together, and at least one.
    /// Empty if all changes have been returned, and before the first lists are read.
    pub fn take_policies(&mut self, nodes: usize) -> Vec<PolicyChange> {
        let (mut turns, mut told) = (Vec::new(), 0);
        while !self.loading
            && told < nodes
            && let Some((uid, mark)) = self.turns.pop()
        {
            let generation = self.policies.get(&uid).map(|kept| kept.generation);
            let now = generation.map(|generation| {
                let all = || NeededBy::All(self.index.policy_span(&mark.key));
                Needed { generation, by: mark.moves.map_or_else(all, NeededBy::Moved) }
            });
            told += 1 + match now.as_ref().map(|needed| &needed.by) {
                Some(NeededBy::All(nodes)) => nodes.len(),
                Some(NeededBy::Moved(nodes)) => nodes.len(),
                None => 0,
            };
            turns.push(PolicyChange { uid, key: mark.key, now });
        }
        turns
    }

    pub fn measures(&self) -> Measures {
        let streams = self.nodes.values().filter(|outbox| outbox.alone_since.is_none());
        Measures {
            generation: self.generation,
            policies: self.policies.len(),
            groups: self.index.len(),
            streams: streams.count(),
            owed: self.nodes.values().map(NodeQueue::len).sum(),
            history_bytes: self.history.bytes(),
            announced: self.announced.len(),
        }
    }
}
