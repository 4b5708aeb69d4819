//! From what an event touched to what it changed.

use super::{
    Index,
    delta::{
        Change, Deltas, GroupDelta, GroupId, Member, MemberKey, NodeDelta, PolicyDelta, PolicyId,
        Role,
    },
    groups::Counts,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Subject {
    Applied(u32),
    Address(u32),
    Policy(u32),
}

/// The objects that an event has touched so far. Changes that cancel out are not reported.
#[derive(Debug, Default)]
pub(super) struct Changes {
    pub(super) made: BTreeSet<(u32, Role)>,
    pub(super) gone: BTreeMap<(Role, u32), GroupId>,
    pub(super) unused: BTreeSet<(u32, Role)>,
    pub(super) holds: BTreeSet<(u32, Role)>,
    /// A member as it was, or as it is, in a group for a role.
    edits: Vec<(u32, Role, i32, Arc<Member>)>,
    /// Pods of an applied-to group by node.
    counts: Vec<(u32, u32, i32)>,
    pub(super) spans: Vec<(Subject, u32, i32)>,
    pub(super) policies: BTreeMap<u32, Change>,
    /// Policies that have moved in the one order.
    pub(super) tiers: BTreeSet<u32>,
    /// Complete deltas, with the nodes that needed the policy.
    pub(super) gone_policies: Vec<PolicyDelta>,
    /// An entity as it was, or as it is.
    pub(super) own: Vec<(i32, Arc<Member>)>,
}

/// An entity and where it is.
#[derive(Debug)]
pub(super) struct Seen {
    member: Arc<Member>,
    node: Option<u32>,
    groups: Vec<u32>,
}

impl Index {
    pub(super) fn see(&self, id: u32) -> Seen {
        let entity = &self.entities.entities[id];
        let member = self.entities.member(&self.matching, id);
        let groups = self.groups_of(&self.matching.sets[entity.set].selections);
        Seen { member, node: entity.node, groups }
    }

    pub(super) fn compare(&mut self, before: Option<&Seen>, after: Option<&Seen>) {
        let (was, is) = (before.map(|seen| &seen.member), after.map(|seen| &seen.member));
        if was != is {
            self.changes.own.extend(was.map(|member| (-1, member.clone())));
            self.changes.own.extend(is.map(|member| (1, member.clone())));
        }
        if let (Some(before), Some(after)) = (before, after) {
            let same = before.member == after.member;
            let stays = |others: &Seen, group: &u32| same && others.groups.contains(group);
            let left = before.groups.iter().filter(|group| !stays(after, group));
            left.for_each(|group| self.touch(*group, before, -1));
            let entered = after.groups.iter().filter(|group| !stays(before, group));
            entered.for_each(|group| self.touch(*group, after, 1));
            return;
        }
        before.into_iter().for_each(|seen| {
            seen.groups.iter().for_each(|group| self.touch(*group, seen, -1));
        });
        after.into_iter().for_each(|seen| {
            seen.groups.iter().for_each(|group| self.touch(*group, seen, 1));
        });
    }

    /// An entity enters or leaves one group.
    pub(super) fn shift(&mut self, group: u32, id: u32, way: i32) {
        let seen = self.see_alone(id);
        self.touch(group, &seen, way);
    }

    /// The same for one role, whatever the group lists now.
    pub(super) fn shift_as(&mut self, group: u32, role: Role, id: u32, way: i32) {
        let seen = self.see_alone(id);
        self.touch_as(group, role, &seen, way);
    }

    fn see_alone(&self, id: u32) -> Seen {
        let member = self.entities.member(&self.matching, id);
        Seen { member, node: self.entities.entities[id].node, groups: Vec::new() }
    }

    fn touch(&mut self, group: u32, seen: &Seen, way: i32) {
        for role in [Role::Applied, Role::Address] {
            if self.groups[group].lists(role) {
                self.touch_as(group, role, seen, way);
            }
        }
    }

    fn touch_as(&mut self, group: u32, role: Role, seen: &Seen, way: i32) {
        if !self.groups[group].has(role) {
            return;
        }
        if seen.member.counts(role) {
            self.changes.edits.push((group, role, way, seen.member.clone()));
        }
        if let (Some(node), Role::Applied) = (seen.node, role) {
            self.changes.counts.push((group, node, way));
        }
    }

    /// Ends an event: what it changed.
    pub(super) fn settle(&mut self) -> Deltas {
        self.settle_counts();
        self.drop_unused();
        let deltas = self.write();
        self.entities.forget();
        deltas
    }

    pub(super) fn settle_counts(&mut self) {
        let mut counts = std::mem::take(&mut self.changes.counts);
        counts.sort_unstable();
        for same in counts.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (group, node, _) = same[0];
            let way: i32 = same.iter().map(|(_, _, way)| way).sum();
            let Some(role) = &mut self.groups[group].applied else { continue };
            let crosses = match way {
                0 => false,
                1.. => role.pods.add(node, way.unsigned_abs()),
                _ => role.pods.take(node, way.unsigned_abs()),
            };
            if crosses {
                self.cross(group, node, way.signum());
            }
        }
    }

    fn write(&mut self) -> Deltas {
        let changes = std::mem::take(&mut self.changes);
        let mut groups = BTreeMap::new();
        for ((role, _), id) in &changes.gone {
            groups.insert((*role, *id), GroupDelta::new(*role, *id, Change::Removed));
        }
        for (group, role) in &changes.made {
            groups.insert((*role, self.groups[*group].id), self.whole(*group, *role));
        }
        let old = |group: u32, role: Role| {
            let there = self.groups.get(group).filter(|group| group.has(role));
            there.filter(|_| !changes.made.contains(&(group, role))).map(|group| group.id)
        };
        let mut delta = |role: Role, id: GroupId, then: &mut dyn FnMut(&mut GroupDelta)| {
            let key = (role, id);
            then(groups.entry(key).or_insert(GroupDelta::new(role, id, Change::Changed)));
        };
        for (group, role) in &changes.holds {
            let Some(id) = old(*group, *role) else { continue };
            let holds = self.groups[*group].holds(*role);
            delta(*role, id, &mut |delta| delta.holds = Some(holds.clone()));
        }
        for ((group, role, _), (before, after)) in net(&changes.edits) {
            let Some(id) = old(group, role).filter(|_| before != after) else { continue };
            delta(role, id, &mut |delta| match (before, after) {
                (_, Some(after)) => delta.added.push(after.clone()),
                (Some(before), None) => delta.removed.push(before.key()),
                (None, None) => {}
            });
        }
        let mut policies = self.written_policies(&changes);
        let mut spans = changes.spans.clone();
        spans.sort_unstable();
        for same in spans.chunk_by(|a, b| (a.0, a.1) == (b.0, b.1)) {
            let (subject, node, _) = same[0];
            let way: i32 = same.iter().map(|(_, _, way)| way).sum();
            if way == 0 {
                continue;
            }
            let (role, group) = match subject {
                Subject::Applied(group) => (Role::Applied, group),
                Subject::Address(group) => (Role::Address, group),
                Subject::Policy(policy) => {
                    self.moved(&mut policies, &changes, policy, node, way);
                    continue;
                }
            };
            let gone = || changes.gone.get(&(role, group)).copied();
            let Some(id) = old(group, role).or_else(gone) else { continue };
            let name = self.entities.nodes[node].to_string();
            delta(role, id, &mut |delta| {
                let list = if way > 0 { &mut delta.entered } else { &mut delta.left };
                list.push(name.clone());
            });
        }
        let mut deltas = Deltas {
            groups: groups.into_values().collect(),
            policies: policies.into_values().collect(),
            nodes: own(&changes.own),
        };
        for delta in &mut deltas.groups {
            delta.entered.sort_unstable();
            delta.left.sort_unstable();
        }
        for delta in &mut deltas.policies {
            delta.entered.sort_unstable();
            delta.left.sort_unstable();
        }
        deltas
    }

    fn written_policies(&self, changes: &Changes) -> BTreeMap<PolicyId, PolicyDelta> {
        let mut policies = BTreeMap::new();
        for gone in &changes.gone_policies {
            policies.insert(gone.id.clone(), gone.clone());
        }
        for (policy, change) in &changes.policies {
            let Some(_) = self.policies.get(*policy) else { continue };
            let delta = match change {
                Change::Added => self.whole_policy(*policy),
                Change::Changed | Change::Removed => {
                    let uses = Some(self.uses_of(*policy));
                    PolicyDelta { uses, ..self.policy_delta(*policy, *change) }
                }
            };
            policies.insert(delta.id.clone(), delta);
        }
        for policy in &changes.tiers {
            let Some(used) = self.policies.get(*policy) else { continue };
            let delta = self.policy_delta(*policy, Change::Changed);
            policies.entry(delta.id.clone()).or_insert(delta).tier = Some(used.tier);
        }
        policies
    }

    fn moved(
        &self,
        policies: &mut BTreeMap<PolicyId, PolicyDelta>,
        changes: &Changes,
        policy: u32,
        node: u32,
        way: i32,
    ) {
        let is_new = changes.policies.get(&policy) == Some(&Change::Added);
        if is_new || self.policies.get(policy).is_none() {
            return;
        }
        let delta = self.policy_delta(policy, Change::Changed);
        let delta = policies.entry(delta.id.clone()).or_insert(delta);
        let list = if way > 0 { &mut delta.entered } else { &mut delta.left };
        list.push(self.entities.nodes[node].to_string());
    }

    pub(super) fn whole(&self, group: u32, role: Role) -> GroupDelta {
        let mut delta = GroupDelta::new(role, self.groups[group].id, Change::Added);
        let lists = self.groups[group].lists(role);
        let entities = if lists { self.entities_of(group) } else { Vec::new() };
        let members = entities.into_iter().map(|id| self.entities.member(&self.matching, id));
        delta.added = members.filter(|member| member.counts(role)).collect();
        delta.added.sort_unstable();
        delta.holds = Some(self.groups[group].holds(role));
        delta.entered = self.span(group, role);
        delta
    }

    /// The nodes that need a group.
    pub(super) fn span(&self, group: u32, role: Role) -> Vec<String> {
        self.names(self.span_of(group, role).nodes())
    }

    pub(super) fn span_of(&self, group: u32, role: Role) -> &Counts {
        use super::groups::Span;
        match role {
            Role::Applied => self.pods(group),
            Role::Address => match self.groups[group].address.as_ref().map(|role| &role.span) {
                Some(Span::Same(same, _)) => self.pods(*same),
                Some(Span::Counted(counts, _)) => counts,
                Some(Span::Nowhere) | None => const { &Counts::NONE },
            },
        }
    }

    /// Sorted.
    pub(super) fn names(&self, nodes: impl Iterator<Item = u32>) -> Vec<String> {
        let mut names: Vec<String> =
            nodes.map(|node| self.entities.nodes[node].to_string()).collect();
        names.sort_unstable();
        names
    }
}

/// As it was and as it is.
type Both<'a> = (Option<&'a Arc<Member>>, Option<&'a Arc<Member>>);
type Net<'a> = BTreeMap<(u32, Role, MemberKey), Both<'a>>;

/// Changes at each node, from an entity's old and new state.
pub(super) fn own(edits: &[(i32, Arc<Member>)]) -> Vec<NodeDelta> {
    let mut net: BTreeMap<(&String, MemberKey), Both<'_>> = BTreeMap::new();
    for (way, member) in edits {
        let mut key = member.key();
        let node = match key.namespace.as_str() {
            "" => {
                key.uid.clear();
                &member.name
            }
            _ => &member.node,
        };
        if node.is_empty() {
            continue;
        }
        let (before, after) = net.entry((node, key)).or_default();
        if *way < 0 {
            *before = before.or(Some(member));
        } else {
            *after = Some(member);
        }
    }
    let mut nodes: BTreeMap<&String, NodeDelta> = BTreeMap::new();
    for ((node, key), (before, after)) in net {
        let addresses =
            |member: Option<&Arc<Member>>| member.map(|member| member.addresses.clone());
        let (was, is) = (addresses(before).unwrap_or_default(), addresses(after));
        let is_node = key.namespace.is_empty();
        let is = is.unwrap_or_default();
        if before == after || is_node && was == is {
            continue;
        }
        let delta = nodes.entry(node);
        let delta = delta.or_insert(NodeDelta { node: node.clone(), ..NodeDelta::default() });
        match after {
            _ if is_node => delta.addresses = Some(is),
            Some(after) => delta.added.push(after.clone()),
            None => delta.removed.push(key),
        }
    }
    nodes.into_values().collect()
}

/// Each member of each group as it was and as it is.
fn net(edits: &[(u32, Role, i32, Arc<Member>)]) -> Net<'_> {
    let mut net = Net::new();
    for (group, role, way, member) in edits {
        let (before, after) = net.entry((*group, *role, member.key())).or_default();
        if *way < 0 {
            *before = before.or(Some(member));
        } else {
            *after = Some(member);
        }
    }
    net
}
