//! Links between policies and groups, and the spans that follow from them.

use super::{
    Index,
    delta::{GroupId, Role},
    groups::{Address, Applied, Counts, Group, GroupKey, Makeup},
    ids::Ids,
    matching::Borrowed,
    settle::Subject,
    source::Source,
};

impl Index {
    /// The group of a source, for a role; made if it is not there.
    pub(super) fn acquire(&mut self, source: &Source<'_>, role: Role) -> u32 {
        let id = match source {
            Source::Pods(wanted) => {
                let selection = self.matching.select(wanted);
                self.group_of(selection, || source.id())
            }
            Source::Members(of) => match self.groups.find(GroupKey::Members(of)) {
                Some(id) => id,
                None => self.make_members(of, source.id()),
            },
            Source::Service(name) => match self.groups.find(GroupKey::Service(name)) {
                Some(id) => id,
                None => self.make_service(name, source.id()),
            },
        };
        self.give(id, role);
        id
    }

    pub(super) fn acquire_borrowed(&mut self, borrowed: Borrowed<'_>, role: Role) -> u32 {
        let selection = self.matching.select_borrowed(borrowed);
        let id = self.group_of(selection, || borrowed.id());
        self.give(id, role);
        id
    }

    fn group_of(&mut self, selection: u32, id: impl FnOnce() -> GroupId) -> u32 {
        // A new selection has no groups.
        let found = match self.matching.selections[selection].groups.is_empty() {
            true => None,
            false => self.groups.find(GroupKey::Selection(selection)),
        };
        found.unwrap_or_else(|| {
            let makeup = Makeup::Selection(selection);
            let id = self.add_group(id(), makeup);
            self.matching.selections[selection].groups.insert(id);
            id
        })
    }

    fn give(&mut self, id: u32, role: Role) {
        if !self.groups[id].has(role) {
            match role {
                Role::Applied => {
                    let (policies, pods) = (Ids::default(), self.count(id));
                    self.groups[id].applied = Some(Applied { policies, pods });
                }
                Role::Address => self.groups[id].address = Some(Address::default()),
            }
            if !self.loading {
                self.changes.made.insert((id, role));
            }
        }
    }

    pub(super) fn add_group(&mut self, id: GroupId, makeup: Makeup) -> u32 {
        let group = self.groups.insert(Group::new(id, makeup));
        if !self.loading {
            self.by_id.insert(id, group);
        }
        group
    }

    fn count(&self, group: u32) -> Counts {
        let mut pods = Counts::default();
        if !self.loading {
            let nodes = self.entities_of(group).into_iter();
            nodes.filter_map(|id| self.entities.entities[id].node).for_each(|node| {
                pods.add(node, 1);
            });
        }
        pods
    }

    /// Everything in a group, each once.
    pub(super) fn entities_of(&self, group: u32) -> Vec<u32> {
        let selections = self.groups[group].selections();
        let sets = selections.iter().flat_map(|selection| self.matching.sets_of(*selection));
        let mut found: Vec<u32> =
            sets.flat_map(|set| self.matching.sets[set].entities.as_slice()).copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The groups that hold what these selections select.
    pub(super) fn groups_of(&self, selections: &Ids) -> Vec<u32> {
        let mut found = Vec::new();
        self.groups_into(selections, &mut found);
        found
    }

    /// The same, into a list that is used again.
    pub(super) fn groups_into(&self, selections: &Ids, found: &mut Vec<u32>) {
        let groups = |selection: u32| self.matching.selections[selection].groups.as_slice();
        found.clear();
        found.extend(selections.iter().flat_map(groups));
        if selections.as_slice().len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
    }

    /// A policy uses its groups from now on.
    pub(super) fn link(&mut self, policy: u32) {
        let (applied, address) = self.uses(policy);
        for group in applied.iter() {
            if let Some(role) = &mut self.groups[group].applied {
                role.policies.insert(policy);
            }
        }
        for group in address.iter() {
            if let Some(role) = &mut self.groups[group].address {
                role.policies.insert(policy);
            }
        }
        if !self.loading {
            for node in self.union(&applied) {
                self.changes.spans.push((Subject::Policy(policy), node, 1));
            }
            self.link_spans(policy);
        }
    }

    /// Adds the span of a policy to its groups. Unchanged spans are not reported. Stored for all groups, they
    /// would be larger than the index.
    pub(super) fn link_spans(&mut self, policy: u32) {
        let (applied, address) = self.uses(policy);
        for group in address.iter() {
            let Some(mut role) = self.groups[group].address.take() else { continue };
            let mut spans = std::mem::take(&mut self.changes.spans);
            for from in applied.iter() {
                let first = role.span.same().unwrap_or(from);
                role.span.add(from, self.pods(from), self.pods(first), |node| {
                    if !self.loading {
                        spans.push((Subject::Address(group), node, 1));
                    }
                });
            }
            self.changes.spans = spans;
            self.groups[group].address = Some(role);
        }
    }

    /// A policy uses its groups no longer.
    pub(super) fn unlink(&mut self, policy: u32) {
        let (applied, address) = self.uses(policy);
        for node in self.union(&applied) {
            self.changes.spans.push((Subject::Policy(policy), node, -1));
        }
        for group in address.iter() {
            let Some(mut role) = self.groups[group].address.take() else { continue };
            role.policies.remove(policy);
            for from in applied.iter() {
                for node in role.span.take(self.pods(from)) {
                    self.changes.spans.push((Subject::Address(group), node, -1));
                }
            }
            self.groups[group].address = Some(role);
            self.changes.unused.insert((group, Role::Address));
        }
        for group in applied.iter() {
            if let Some(role) = &mut self.groups[group].applied {
                role.policies.remove(policy);
            }
            self.changes.unused.insert((group, Role::Applied));
        }
    }

    fn uses(&self, policy: u32) -> (Ids, Ids) {
        let used = &self.policies[policy];
        (used.applied.clone(), used.address.clone())
    }

    /// The nodes with pods of one of these.
    pub(super) fn union(&self, applied: &Ids) -> Vec<u32> {
        let mut nodes: Vec<u32> =
            applied.iter().flat_map(|group| self.pods(group).nodes()).collect();
        if applied.as_slice().len() > 1 {
            nodes.sort_unstable();
            nodes.dedup();
        }
        nodes
    }

    pub(super) fn pods(&self, group: u32) -> &Counts {
        self.groups[group].applied.as_ref().map_or(const { &Counts::NONE }, |role| &role.pods)
    }

    /// Updates spans if a node gains or loses its pods of an applied-to group.
    pub(super) fn cross(&mut self, group: u32, node: u32, way: i32) {
        self.changes.spans.push((Subject::Applied(group), node, way));
        let Some(role) = &self.groups[group].applied else { return };
        let mut same = Vec::new();
        for policy in role.policies.clone().iter() {
            let (applied, address) = self.uses(policy);
            let elsewhere = |other: u32| other != group && self.pods(other).has(node);
            if !applied.iter().any(elsewhere) {
                self.changes.spans.push((Subject::Policy(policy), node, way));
            }
            for id in address.iter() {
                let Some(role) = &mut self.groups[id].address else { continue };
                match role.span.count(node, way) {
                    None => same.push(id),
                    Some(true) => self.changes.spans.push((Subject::Address(id), node, way)),
                    Some(false) => {}
                }
            }
        }
        same.sort_unstable();
        same.dedup();
        self.changes.spans.extend(same.into_iter().map(|id| (Subject::Address(id), node, way)));
    }

    /// Drops roles that no policy uses, and groups without role.
    pub(super) fn drop_unused(&mut self) {
        for (id, role) in std::mem::take(&mut self.changes.unused) {
            let there = self.groups.get(id).is_some_and(|group| group.has(role));
            if !there || !self.groups[id].policies(role).is_empty() {
                continue;
            }
            match role {
                Role::Applied => {
                    let left = self.groups[id].applied.take().unwrap_or_default().pods;
                    let left = left.nodes().map(|node| (Subject::Applied(id), node, -1));
                    self.changes.spans.extend(left);
                }
                Role::Address => self.groups[id].address = None,
            }
            if !self.changes.made.remove(&(id, role)) {
                self.changes.gone.insert((role, id), self.groups[id].id);
            }
            if self.groups[id].has(Role::Applied) || self.groups[id].has(Role::Address) {
                continue;
            }
            self.forget_things(id);
            let selections = self.groups[id].selections().to_vec();
            selections.into_iter().for_each(|selection| self.part(id, selection));
            self.by_id.remove(self.groups[id].id, id);
            self.groups.remove(id);
        }
    }

    /// A group holds a selection no longer.
    pub(super) fn part(&mut self, group: u32, selection: u32) {
        self.matching.selections[selection].groups.remove(group);
        if self.matching.selections[selection].groups.is_empty() {
            self.matching.unselect(selection);
        }
    }
}
