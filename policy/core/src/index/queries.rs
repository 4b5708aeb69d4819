//! Queries for one node, and for single groups and policies.

use super::{
    Index,
    delta::{
        GroupDelta, GroupId, GroupState, Needs, NodeState, PolicyDelta, PolicyId, PolicyState, Role,
    },
};
use crate::PolicyKey;
use std::collections::BTreeSet;

impl Index {
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
