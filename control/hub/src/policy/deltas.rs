//! From the deltas of the index to the pending objects of nodes.

use super::{PolicySource, encoded::EncodedPolicy, group_cache::sent_member, model::uid_text};
use crate::distributor::Generation;
use control_wire::{
    Entry, ObjectId, encode, entry,
    proto::{self, change},
};
use policy_core::index::{Change, Deltas, GroupDelta, MemberKey, NodeDelta, PolicyDelta, Role};

impl PolicySource {
    pub(super) fn distribute(&mut self, deltas: &Deltas, generation: &mut Generation<'_>) {
        if deltas.is_empty() {
            return;
        }
        generation.begin();
        for delta in &deltas.groups {
            match delta.role {
                Role::Address => self.address_delta(delta, generation),
                Role::Applied => self.applied_delta(delta, &deltas.nodes, generation),
            }
        }
        for delta in &deltas.policies {
            self.policy_delta(delta, generation);
        }
        for delta in &deltas.nodes {
            node_delta(delta, generation);
        }
    }

    fn address_delta(&mut self, delta: &GroupDelta, generation: &mut Generation<'_>) {
        let (id, object) = (delta.id, ObjectId::address(delta.id));
        let changes = !delta.added.is_empty() || !delta.removed.is_empty() || delta.holds.is_some();
        match delta.change {
            Change::Changed if changes => self.groups.change(delta),
            Change::Changed => {}
            Change::Added | Change::Removed => self.groups.forget(id),
        }
        // A node that has just started to need it is sent the whole object, without changes.
        generation.left(&object, &delta.left);
        generation.entered(&object, &delta.entered);
        match delta.change {
            Change::Added => generation.begin_history(&object),
            Change::Removed => generation.end_history(&object),
            Change::Changed if changes => {
                for entry in address_changes(delta) {
                    generation.record(&object, entry);
                }
                generation.changed(&object, &self.index.group_span(Role::Address, id));
            }
            Change::Changed => {}
        }
    }

    fn applied_delta(
        &self,
        delta: &GroupDelta,
        nodes: &[NodeDelta],
        generation: &mut Generation<'_>,
    ) {
        let object = ObjectId::applied(delta.id);
        generation.left(&object, &delta.left);
        generation.entered(&object, &delta.entered);
        if delta.change != Change::Changed {
            return;
        }
        // A node that has just started to need the group is sent all of it; a node that does not need it has none.
        let needs = |node: &str| {
            let is_new = delta.entered.iter().any(|name| name == node);
            !is_new && self.index.is_needed(Role::Applied, delta.id, node)
        };
        let mut pod = |node: &str, uid: &str, is_in: bool| {
            if needs(node) {
                generation.element(&object, node, uid, is_in);
            }
        };
        for key in &delta.removed {
            let here = || self.index.node_of(&key.namespace, &key.name);
            if let Some(node) = previous_node(nodes, key).or_else(here) {
                pod(node, &key.uid, false);
            }
        }
        for member in &delta.added {
            // The member is now on another node, or on none.
            if let Some(node) = previous_node(nodes, &member.key()) {
                pod(node, &member.uid, false);
            }
            if !member.node.is_empty() {
                pod(&member.node, &member.uid, true);
            }
        }
    }

    fn policy_delta(&mut self, delta: &PolicyDelta, generation: &mut Generation<'_>) {
        let uid = uid_text(&delta.id);
        let object = ObjectId::policy(&uid);
        match delta.change {
            Change::Added => self.changes.whole(&uid, &delta.key),
            Change::Changed | Change::Removed => {
                self.changes.moved(&uid, &delta.key, &delta.entered, &delta.left);
            }
        }
        generation.left(&object, &delta.left);
        generation.entered(&object, &delta.entered);
        if delta.change == Change::Removed {
            self.policies.remove(&uid);
        } else if (delta.tier.is_some() || delta.uses.is_some()) && self.encode_again(&uid) {
            generation.changed(&object, &self.index.policy_span(&delta.key));
        }
    }

    /// Encodes a policy whose content depends on an object that has changed. Returns whether the encoding differs.
    pub(super) fn encode_again(&mut self, uid: &str) -> bool {
        let Some(was) = self.policies.get_mut(uid) else { return false };
        let Some(form) = was.form.clone() else { return false };
        let Some(state) = self.index.policy_state(&form.key) else { return false };
        let generation = was.generation;
        let is = EncodedPolicy::new(&form, generation, &state, self.requires, Some(form.clone()));
        std::mem::replace(was, is).entry != was.entry
    }
}

/// Every pod of the node has an entry, also one that no policy is about.
fn node_delta(delta: &NodeDelta, generation: &mut Generation<'_>) {
    if !generation.follows(&delta.node) {
        return;
    }
    let node = [&delta.node];
    if delta.addresses.is_some() {
        generation.changed(&ObjectId::node(), node);
    }
    for pod in &delta.removed {
        generation.left(&ObjectId::pod(&pod.uid), node);
    }
    // New or changed: the removal of a pod that the node never had is harmless.
    for pod in &delta.added {
        generation.changed(&ObjectId::pod(&pod.uid), node);
    }
}

/// Returns the node that a pod has left.
fn previous_node<'a>(nodes: &'a [NodeDelta], pod: &MemberKey) -> Option<&'a str> {
    let left = nodes.iter().find(|node| node.removed.contains(pod));
    left.map(|node| node.node.as_str())
}

/// Splits a group's change if many members come or go at once, as messages are bounded. Removals are first, as a
/// new member may have the key of a removed one. The node applies the whole generation or nothing of it.
fn address_changes(delta: &GroupDelta) -> Vec<Entry> {
    let change = || proto::AddressChange { id: delta.id.0.to_vec(), ..Default::default() };
    let removed = delta.removed.chunks(CHANGE_MEMBERS).map(|keys| {
        let removed = keys.iter().map(encode::member_key).collect();
        proto::AddressChange { removed, ..change() }
    });
    let added = delta.added.chunks(CHANGE_MEMBERS).map(|members| {
        let added = members.iter().map(|member| sent_member(member)).collect();
        proto::AddressChange { added, ..change() }
    });
    let holds = delta.holds.as_ref().map(encode::holds);
    let holds = holds.map(|holds| proto::AddressChange { holds: Some(holds), ..change() });
    let changes = removed.chain(added).chain(holds);
    changes.map(|change| entry(&change::Of::AddressChange(change).into())).collect()
}

/// Maximum number of members in one change. With the longest names that is less than a megabyte.
const CHANGE_MEMBERS: usize = 2_000;
