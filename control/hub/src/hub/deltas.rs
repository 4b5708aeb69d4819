//! From what happened to what each node is owed.

use super::Hub;
use crate::{encoded::EncodedPolicy, policies::uid_text, queue::Transition, wholes::sent_member};
use control_wire::{
    Entry, ObjectId, encode, entry,
    proto::{self, change},
};
use policy_core::index::{Change, Deltas, GroupDelta, MemberKey, NodeDelta, PolicyDelta, Role};

impl Hub {
    pub(super) fn deltas(&mut self, deltas: &Deltas) {
        if deltas.is_empty() {
            return;
        }
        self.generation += 1;
        for delta in &deltas.groups {
            match delta.role {
                Role::Address => self.address(delta),
                Role::Applied => self.applied(delta, &deltas.nodes),
            }
        }
        for delta in &deltas.policies {
            self.policy_delta(delta);
        }
        for delta in &deltas.nodes {
            self.node(delta);
        }
    }

    /// Every pod of the node has an entry, also one that no policy is about.
    fn node(&mut self, delta: &NodeDelta) {
        let Some(outbox) = self.nodes.get_mut(&delta.node) else { return };
        if delta.addresses.is_some() {
            outbox.turn(&ObjectId::node(), Transition::Changed);
        }
        for pod in &delta.removed {
            outbox.turn(&ObjectId::pod(&pod.uid), Transition::Left);
        }
        // New, or another: the end of one that the node never had does no harm.
        for pod in &delta.added {
            outbox.turn(&ObjectId::pod(&pod.uid), Transition::Changed);
        }
        self.touched.insert(delta.node.clone());
    }

    fn address(&mut self, delta: &GroupDelta) {
        let (id, object) = (delta.id, ObjectId::address(delta.id));
        let changes = !delta.added.is_empty() || !delta.removed.is_empty() || delta.holds.is_some();
        match delta.change {
            Change::Changed if changes => self.wholes.change(delta),
            Change::Changed => {}
            Change::Added | Change::Removed => self.wholes.forget(id),
        }
        // A node that has just started to need it is sent the whole object, without changes.
        self.turn_all(&object, &delta.left, Transition::Left);
        self.turn_all(&object, &delta.entered, Transition::Entered);
        match delta.change {
            Change::Added => self.history.begin(id, self.generation),
            Change::Removed => self.history.end(id),
            Change::Changed if changes => {
                for entry in address_changes(delta) {
                    self.history.add(id, self.generation, entry);
                }
                let span = self.index.group_span(Role::Address, id);
                self.turn_all(&object, &span, Transition::Changed);
            }
            Change::Changed => {}
        }
    }

    fn applied(&mut self, delta: &GroupDelta, nodes: &[NodeDelta]) {
        let object = ObjectId::applied(delta.id);
        self.turn_all(&object, &delta.left, Transition::Left);
        self.turn_all(&object, &delta.entered, Transition::Entered);
        if delta.change != Change::Changed {
            return;
        }
        for key in &delta.removed {
            let here = || self.index.node_of(&key.namespace, &key.name);
            if let Some(node) = left(nodes, key).or_else(here).map(ToOwned::to_owned) {
                self.pod_of_group(&node, delta, &key.uid, false);
            }
        }
        for member in &delta.added {
            // The member is now on another node, or on none.
            if let Some(node) = left(nodes, &member.key()) {
                self.pod_of_group(node, delta, &member.uid, false);
            }
            if !member.node.is_empty() {
                self.pod_of_group(&member.node, delta, &member.uid, true);
            }
        }
    }

    fn pod_of_group(&mut self, node: &str, delta: &GroupDelta, uid: &str, is_in: bool) {
        // A node that has just started to need it is sent the whole object; a node that does not need it has none.
        let is_new = delta.entered.iter().any(|name| name == node);
        if is_new || !self.index.is_needed(Role::Applied, delta.id, node) {
            return;
        }
        if let Some(outbox) = self.nodes.get_mut(node) {
            outbox.pod(delta.id, uid, is_in);
            self.touched.insert(node.to_owned());
        }
    }

    fn policy_delta(&mut self, delta: &PolicyDelta) {
        let uid = uid_text(&delta.id);
        let object = ObjectId::policy(&uid);
        match delta.change {
            Change::Added => self.turns.whole(&uid, &delta.key),
            Change::Changed | Change::Removed => {
                self.turns.moved(&uid, &delta.key, &delta.entered, &delta.left);
            }
        }
        self.turn_all(&object, &delta.left, Transition::Left);
        self.turn_all(&object, &delta.entered, Transition::Entered);
        if delta.change == Change::Removed {
            self.policies.remove(&uid);
        } else if (delta.tier.is_some() || delta.uses.is_some()) && self.encode_anew(&uid) {
            let span = self.index.policy_span(&delta.key);
            self.turn_all(&object, &span, Transition::Changed);
        }
    }

    /// Encodes a policy of which another object decides something. Returns whether it is another now.
    pub(super) fn encode_anew(&mut self, uid: &str) -> bool {
        let Some(was) = self.policies.get_mut(uid) else { return false };
        let Some(form) = was.form.clone() else { return false };
        let Some(state) = self.index.policy_state(&form.key) else { return false };
        let (generation, requires) = (was.generation, self.capabilities.requires);
        let is = EncodedPolicy::new(&form, generation, &state, requires, Some(form.clone()));
        std::mem::replace(was, is).entry != was.entry
    }

    pub(super) fn turn_all<'a>(
        &mut self,
        object: &ObjectId,
        nodes: impl IntoIterator<Item = &'a String>,
        turn: Transition,
    ) {
        for node in nodes {
            if let Some(outbox) = self.nodes.get_mut(node) {
                outbox.turn(object, turn);
                self.touched.insert(node.clone());
            }
        }
    }
}

/// The node that a pod has left.
fn left<'a>(nodes: &'a [NodeDelta], pod: &MemberKey) -> Option<&'a str> {
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

/// As many members of a group come or go in one change: of the largest names that is less than a megabyte.
const CHANGE_MEMBERS: usize = 2_000;
