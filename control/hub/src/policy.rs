//! Policy as a source of objects: policies, their groups, and each node's own pods and addresses.
//!
//! A policy is encoded when it changes. Nodes get a pending object only if the encoding differs from the one before,
//! and all nodes of the span need the same bytes soon. A NetworkPolicy is not kept in another form beside them.
//! A group is encoded when a node needs it whole. Groups are large and change often, and their nodes receive recorded
//! changes. A group that no new node needs is never encoded whole.

mod announce;
mod announced;
mod claims;
mod content;
mod deltas;
mod encoded;
mod group_cache;
mod mirrors;
mod model;
mod outside;
mod pending_namespaces;
mod policy_changes;
mod refused;
mod report;

pub use announce::Announce;
pub use policy_changes::{Needed, NeededBy, PolicyChange};
pub use refused::AnnounceError;
pub use report::PolicyReport;

use crate::distributor::Generation;
use announce::NodeFacts;
use announced::Announced;
use control_wire::ObjectId;
use encoded::EncodedPolicy;
use group_cache::GroupCache;
use mirrors::Mirrors;
use model::{uid_of, uid_text};
use outside::Outside;
use pending_namespaces::PendingNamespaces;
use policy_changes::PolicyChanges;
use policy_core::{
    Policy, PolicyKey, Rule, Tier, compile,
    index::{Event, Index},
};
use policy_objects::Object;
use std::{collections::BTreeMap, sync::Arc};

/// All objects that policy reads, and what nodes receive of them.
#[derive(Debug)]
pub struct PolicySource {
    index: Index,
    is_loaded: bool,
    /// By UID.
    policies: BTreeMap<String, EncodedPolicy>,
    groups: GroupCache,
    announced: Announced,
    outside: Outside,
    mirrors: Mirrors,
    /// The facts about each node that only this node receives, by its name.
    facts: BTreeMap<String, NodeFacts>,
    pending_namespaces: PendingNamespaces,
    changes: PolicyChanges,
    /// The match features that a rule uses, beyond those of the first version of the protocol.
    requires: fn(&Rule) -> Vec<u32>,
}

impl PolicySource {
    /// Creates a source without objects. `seed` randomizes the hash tables of the index.
    pub fn new(seed: u64) -> Self {
        Self {
            index: Index::new(seed),
            is_loaded: false,
            policies: BTreeMap::new(),
            groups: GroupCache::default(),
            announced: Announced::default(),
            outside: Outside::default(),
            mirrors: Mirrors::default(),
            facts: BTreeMap::new(),
            pending_namespaces: PendingNamespaces::default(),
            changes: PolicyChanges::default(),
            requires: |_| Vec::new(),
        }
    }

    pub(crate) fn set_requires(&mut self, requires: fn(&Rule) -> Vec<u32>) {
        self.requires = requires;
    }

    /// Returns the index of group membership.
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Applies an added or changed policy. `spec_generation` is that of its spec.
    pub fn policy(
        &mut self,
        policy: &Policy,
        spec_generation: i64,
        generation: &mut Generation<'_>,
    ) {
        let deltas = self.index.apply(Event::Policy(policy));
        self.distribute(&deltas, generation);
        let uid = uid_of(policy);
        let moves = policy.place.tier != Tier::NetworkPolicy;
        let form = moves.then(|| Arc::new(policy.clone()));
        let Some(state) = self.index.policy_state(&policy.key) else { return };
        self.changes.moved(&uid, &policy.key, &[], &[]);
        let encoded = EncodedPolicy::new(policy, spec_generation, &state, self.requires, form);
        let is_same = self.policies.get(&uid).is_some_and(|was| was.entry == encoded.entry);
        self.policies.insert(uid.clone(), encoded);
        if !is_same {
            generation.changed(&ObjectId::policy(&uid), &state.span);
        }
    }

    /// Applies an event of any object. Policies use [`policy`](Self::policy) instead, as a policy's converted form
    /// lacks its generation.
    pub fn apply(&mut self, event: Event<'_>, generation: &mut Generation<'_>) {
        if let Event::Policy(policy) = event {
            return self.policy(policy, 0, generation);
        }
        if let Event::PolicyView(view) = event {
            // Nodes receive its form, not its groups alone.
            let object = Object::NetworkPolicy(view.clone().into());
            let spec_generation = object.meta().generation;
            if let Some(policy) = compile(&object) {
                self.policy(&policy, spec_generation, generation);
            }
            return;
        }
        if !self.is_loaded {
            self.remove_early(&event);
        }
        self.object(event, generation);
    }

    /// Removes a policy before all first lists are read, when the index returns no deltas.
    fn remove_early(&mut self, event: &Event<'_>) {
        let Event::Gone { kind, namespace, name, uid } = event else { return };
        let (namespace, name) = ((*namespace).to_owned(), (*name).to_owned());
        let key = PolicyKey { kind: *kind, namespace, name };
        let uid = if uid.is_empty() { key.to_string() } else { (*uid).to_owned() };
        self.policies.remove(&uid);
    }

    /// Completes the first lists: the index resolves groups and tiers now, so each policy is encoded again.
    pub(crate) fn complete(&mut self) {
        self.index.loaded();
        self.is_loaded = true;
        let uids: Vec<String> = self.policies.keys().cloned().collect();
        uids.iter().for_each(|uid| _ = self.encode_again(uid));
        if self.changes.are_collected() {
            self.follow_policies();
        }
    }

    /// Starts to collect changes of policies. The first changes are all existing policies.
    pub(crate) fn follow_policies(&mut self) {
        let all = self.index.policy_names();
        self.changes.begin(all.into_iter().map(|(id, key)| (uid_text(&id), key)));
    }

    pub(crate) fn leave_policies(&mut self) {
        self.changes.end();
    }

    pub(crate) fn take_policies(&mut self, nodes: usize) -> Vec<PolicyChange> {
        let (mut changes, mut count) = (Vec::new(), 0);
        while self.is_loaded
            && count < nodes
            && let Some((uid, mark)) = self.changes.pop()
        {
            let generation = self.policies.get(&uid).map(|policy| policy.generation);
            let now = generation.map(|generation| {
                let all = || NeededBy::All(self.index.policy_span(&mark.key));
                Needed { generation, by: mark.moves.map_or_else(all, NeededBy::Moved) }
            });
            count += 1 + match now.as_ref().map(|needed| &needed.by) {
                Some(NeededBy::All(nodes)) => nodes.len(),
                Some(NeededBy::Moved(nodes)) => nodes.len(),
                None => 0,
            };
            changes.push(PolicyChange { uid, key: mark.key, now });
        }
        changes
    }

    /// Returns the number of policies.
    pub(crate) fn policies(&self) -> usize {
        self.policies.len()
    }

    /// Returns the number of pods with announced addresses.
    pub(crate) fn announced(&self) -> usize {
        self.announced.len()
    }
}
