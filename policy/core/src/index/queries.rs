//! Queries for one node, and for single groups and policies.

use super::{
    Index,
    delta::{
        Change, Deltas, GroupDelta, GroupId, GroupState, MemberKey, Needs, NodeDelta, NodeState,
        PolicyDelta, PolicyId, PolicyState, Role, Snapshot,
    },
};
use crate::PolicyKey;
use std::{collections::BTreeSet, sync::Arc};

impl Index {
    /// All objects that one node needs now: its own, and the groups and policies with it in their
    /// span. The returned spans have only this node, and applied-to groups have only its pods. The cost is in
    /// proportion to the result.
    pub fn snapshot_for(&self, node: &str) -> Snapshot {
        let span = BTreeSet::from([node.to_owned()]);
        let Needs { own, applied, address, policies } = self.needs_of(node);
        let mut snapshot = Snapshot::default();
        for (id, members) in applied {
            let group = self.group(Role::Applied, id);
            let holds = group.map(|group| self.groups[group].holds(Role::Applied));
            let members = members.into_iter().map(|member| (member.key(), member)).collect();
            let state =
                GroupState { members, holds: holds.unwrap_or_default(), span: span.clone() };
            snapshot.groups.insert((Role::Applied, id), state);
        }
        for id in address {
            let state = self.group_state(Role::Address, id).unwrap_or_default();
            let state = GroupState { span: span.clone(), ..state };
            snapshot.groups.insert((Role::Address, id), state);
        }
        for (id, key) in policies {
            let state = self.policy_state(&key).unwrap_or_default();
            snapshot.policies.insert(id, PolicyState { span: span.clone(), ..state });
        }
        if own != NodeState::default() {
            snapshot.nodes.insert(node.to_owned(), own);
        }
        snapshot
    }

    /// Names of the objects that one node needs, without their content. The cost is in proportion to the node's
    /// own objects and does not depend on the size of the groups.
    pub fn needs_of(&self, node: &str) -> Needs {
        let mut needs = Needs { own: self.node_state(node), ..Needs::default() };
        let Some(number) = self.entities.nodes.find(node) else { return needs };
        let mut policies = BTreeSet::new();
        for pod in self.entities.residents(number) {
            let set = self.entities.entities[*pod].set;
            for group in self.groups_of(&self.matching.sets[set].selections) {
                let Some(applied) = &self.groups[group].applied else { continue };
                policies.extend(applied.policies.iter());
                let members = needs.applied.entry(self.groups[group].id).or_default();
                members.push(self.entities.member(&self.matching, *pod));
            }
        }
        let groups = |policy: u32| self.policies[policy].address.iter();
        let address: BTreeSet<u32> = policies.iter().flat_map(|policy| groups(*policy)).collect();
        needs.address = address.into_iter().map(|group| self.groups[group].id).collect();
        needs.policies = policies
            .into_iter()
            .map(|policy| (self.policy_id(policy), self.policy_key(policy)))
            .collect();
        needs
    }

    /// The part of an event for one node: it updates an earlier [`snapshot_for`](Self::snapshot_for).
    /// The caller must call this before the next event. A group or policy that the node newly needs is complete
    /// and `Added`. If the node no longer needs it, it is `Removed`.
    pub fn deltas_for(&self, node: &str, deltas: &Deltas) -> Deltas {
        let here = Here {
            index: self,
            node,
            number: self.entities.nodes.find(node),
            own: deltas.nodes.iter().find(|delta| delta.node == node),
        };
        Deltas {
            groups: deltas.groups.iter().filter_map(|delta| here.group(delta)).collect(),
            policies: deltas.policies.iter().filter_map(|delta| here.policy(delta)).collect(),
            nodes: here.own.into_iter().cloned().collect(),
        }
    }

    /// A node's addresses and its pods, also those that no policy is about.
    pub fn node_state(&self, node: &str) -> NodeState {
        let member = |id| self.entities.member(&self.matching, id);
        let itself = self.entities.find(&self.matching, "", node);
        let addresses = itself.map(|id| member(id).addresses.clone()).unwrap_or_default();
        let number = self.entities.nodes.find(node);
        let pods = number.map_or(&[][..], |number| self.entities.residents(number));
        let pods = pods.iter().map(|id| member(*id)).map(|pod| (pod.key(), pod)).collect();
        NodeState { addresses, pods }
    }

    /// A group for a role, as it is now.
    pub fn group_state(&self, role: Role, id: GroupId) -> Option<GroupState> {
        self.group(role, id).map(|group| self.state(group, role))
    }

    /// The nodes that need a group, in the order of their names.
    pub fn group_span(&self, role: Role, id: GroupId) -> Vec<String> {
        self.group(role, id).map(|group| self.span(group, role)).unwrap_or_default()
    }

    /// The groups behind this one, as many as this, in the order of their ids; each for each of its roles.
    pub fn groups_behind(&self, id: GroupId, most: usize) -> Vec<(GroupId, Vec<Role>)> {
        let ids = self.groups.ids().map(|group| (self.groups[group].id, group));
        let mut ids: Vec<(GroupId, u32)> = ids.filter(|(other, _)| *other > id).collect();
        ids.sort_unstable();
        ids.truncate(most);
        let roles = |group: u32| {
            let roles = [Role::Applied, Role::Address].into_iter();
            roles.filter(|role| self.groups[group].has(*role)).collect()
        };
        ids.into_iter().map(|(id, group)| (id, roles(group))).collect()
    }

    /// True if a node needs a group.
    pub fn is_needed(&self, role: Role, id: GroupId, node: &str) -> bool {
        let node = self.entities.nodes.find(node);
        let group = self.group(role, id);
        node.zip(group).is_some_and(|(node, group)| self.span_of(group, role).has(node))
    }

    /// A policy, as it is now.
    pub fn policy_state(&self, key: &PolicyKey) -> Option<PolicyState> {
        self.find_policy(key).map(|id| self.state_of(id))
    }

    /// The nodes that need a policy, in the order of their names.
    pub fn policy_span(&self, key: &PolicyKey) -> Vec<String> {
        let nodes = |id| self.names(self.union(&self.policies[id].applied).into_iter());
        self.find_policy(key).map(nodes).unwrap_or_default()
    }

    pub fn policy_names(&self) -> Vec<(PolicyId, PolicyKey)> {
        self.policies.ids().map(|id| (self.policy_id(id), self.policy_key(id))).collect()
    }

    /// The node that a pod is bound to, if policy knows that pod.
    pub fn node_of(&self, namespace: &str, name: &str) -> Option<&str> {
        let pod = self.entities.find(&self.matching, namespace, name)?;
        self.entities.entities[pod].node.map(|node| &*self.entities.nodes[node])
    }

    /// True if a pod is in an applied-to group.
    pub fn is_about(&self, id: GroupId, namespace: &str, name: &str) -> bool {
        let Some(group) = self.group(Role::Applied, id) else { return false };
        let found = self.entities.find(&self.matching, namespace, name);
        found.is_some_and(|pod| {
            let set = self.entities.entities[pod].set;
            self.groups_of(&self.matching.sets[set].selections).contains(&group)
        })
    }

    fn group(&self, role: Role, id: GroupId) -> Option<u32> {
        self.by_id.find(&self.groups, id).filter(|group| self.groups[*group].has(role))
    }

    fn state(&self, group: u32, role: Role) -> GroupState {
        let GroupDelta { added, holds, entered, .. } = self.whole(group, role);
        GroupState {
            members: added.into_iter().map(|member| (member.key(), member)).collect(),
            holds: holds.unwrap_or_default(),
            span: entered.into_iter().collect(),
        }
    }

    fn state_of(&self, policy: u32) -> PolicyState {
        let PolicyDelta { tier, uses, entered, .. } = self.whole_policy(policy);
        let (tier, uses) = (tier.unwrap_or_default(), uses.unwrap_or_default());
        PolicyState { tier, uses, span: entered.into_iter().collect() }
    }
}

/// One node, after an event.
struct Here<'a> {
    index: &'a Index,
    node: &'a str,
    number: Option<u32>,
    own: Option<&'a NodeDelta>,
}

/// Change of a node's need for an object.
enum Need {
    Begins,
    Stays,
    Ends,
    Never,
}

impl Here<'_> {
    fn need(&self, entered: &[String], left: &[String], is_in: impl Fn(u32) -> bool) -> Need {
        let has = |nodes: &[String]| nodes.binary_search_by(|name| (**name).cmp(self.node)).is_ok();
        match self.number {
            _ if has(left) => Need::Ends,
            _ if has(entered) => Need::Begins,
            Some(number) if is_in(number) => Need::Stays,
            Some(_) | None => Need::Never,
        }
    }

    fn group(&self, delta: &GroupDelta) -> Option<GroupDelta> {
        let GroupDelta { role, id, ref entered, ref left, .. } = *delta;
        let group = self.index.group(role, id);
        let has = |node| group.is_some_and(|group| self.index.span_of(group, role).has(node));
        match self.need(entered, left, has) {
            Need::Never => None,
            Need::Ends => {
                let left = vec![self.node.to_owned()];
                Some(GroupDelta { left, ..GroupDelta::new(role, id, Change::Removed) })
            }
            Need::Begins => {
                let mut whole = self.index.whole(group?, role);
                if role == Role::Applied {
                    whole.added.retain(|member| member.node == self.node);
                }
                Some(GroupDelta { entered: vec![self.node.to_owned()], ..whole })
            }
            Need::Stays => {
                let (entered, left) = (Vec::new(), Vec::new());
                let mut delta = GroupDelta { entered, left, ..delta.clone() };
                if role == Role::Applied {
                    self.own_pods(&mut delta);
                }
                let says = !delta.added.is_empty() || !delta.removed.is_empty();
                (says || delta.holds.is_some()).then_some(delta)
            }
        }
    }

    /// Limits an applied-to group to the node's own pods.
    fn own_pods(&self, delta: &mut GroupDelta) {
        let added = std::mem::take(&mut delta.added);
        let (own, others) = added.into_iter().partition(|member| member.node == self.node);
        delta.added = own;
        delta.removed.retain(|pod| self.was_here(pod));
        let others: Vec<Arc<_>> = others;
        let moved = others.iter().map(|member| member.key()).filter(|pod| self.was_here(pod));
        delta.removed.extend(moved);
        delta.removed.sort_unstable();
    }

    /// True if a pod was on this node before the event: it has left the node or is still there.
    fn was_here(&self, pod: &MemberKey) -> bool {
        let gone = self.own.is_some_and(|own| own.removed.contains(pod));
        let index = self.index;
        let found = || index.entities.find(&index.matching, &pod.namespace, &pod.name);
        let is_here = |id| index.entities.entities[id].node == self.number;
        gone || found().is_some_and(is_here)
    }

    fn policy(&self, delta: &PolicyDelta) -> Option<PolicyDelta> {
        let PolicyDelta { ref id, ref key, change, tier, ref uses, ref entered, ref left } = *delta;
        let policy = self.index.find_policy(key);
        let need = match change {
            Change::Removed => self.need(&[], left, |_| false),
            Change::Added | Change::Changed => self.need(entered, left, |node| {
                let used = policy.map(|policy| &self.index.policies[policy]);
                used.is_some_and(|used| used.applied.iter().any(|g| self.index.pods(g).has(node)))
            }),
        };
        let new = |change| PolicyDelta::new(id.clone(), key.clone(), change);
        let here = || vec![self.node.to_owned()];
        match need {
            Need::Never => None,
            Need::Ends => Some(PolicyDelta { left: here(), ..new(Change::Removed) }),
            Need::Begins => {
                Some(PolicyDelta { entered: here(), ..self.index.whole_policy(policy?) })
            }
            Need::Stays => (tier.is_some() || uses.is_some()).then(|| PolicyDelta {
                tier,
                uses: uses.clone(),
                ..new(change)
            }),
        }
    }
}
