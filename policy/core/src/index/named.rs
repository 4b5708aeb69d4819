//! ClusterGroups and Groups, and the Services that they speak of.

use super::{
    Index,
    delta::{GroupId, Holds},
    groups::{Group, GroupKey, Makeup, Members},
    ids::Ids,
    matching::Wanted,
    source::{MembersOf, Source},
};
use policy_objects::{GroupSpec, Named, Read, Selector};
use std::{borrow::Cow, collections::BTreeMap};

/// What a group's members depend on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Group(Named),
    Service(Named),
}

#[derive(Debug, Default)]
pub(super) struct NamedThings {
    pub(super) groups: BTreeMap<Named, Read<GroupSpec>>,
    /// Those with a selector.
    pub(super) services: BTreeMap<Named, Selector>,
}

/// What a group is made of now, and what that depends on.
struct Made {
    wanted: Vec<Wanted<'static>>,
    holds: Holds,
    things: Vec<Thing>,
}

impl NamedThings {
    /// As [`crate::World::members`], by name: a group that cannot be used is empty, with the reason.
    fn resolve(&self, of: &MembersOf) -> Made {
        let mut made = Made { wanted: Vec::new(), holds: Holds::default(), things: Vec::new() };
        if let Err(why) = self.walk(of, &mut made) {
            made.wanted.clear();
            made.holds = Holds { blocks: Vec::new(), unusable: Some(why) };
        }
        made
    }

    fn walk(&self, of: &MembersOf, made: &mut Made) -> Result<(), String> {
        let name = &of.group;
        let spec = self.spec(name, made)?;
        let GroupSpec::Children(children) = spec else {
            self.add(of, name, spec, made);
            return Ok(());
        };
        // Every child is looked at, so that it is known of each that the group depends on it.
        let mut outcome = Ok(());
        for child in children {
            let child = Named { namespace: name.namespace.clone(), name: child.clone() };
            match self.spec(&child, made) {
                Ok(GroupSpec::Children(_)) => {
                    outcome = outcome.and(Err(format!(
                        "{} has the child {}, which has children itself: a group is nested once",
                        title(name),
                        child.name
                    )));
                }
                Ok(spec) => self.add(of, &child, spec, made),
                Err(why) => {
                    outcome = outcome.and(Err(format!("{}: of its children, {why}", title(name))))
                }
            }
        }
        outcome
    }

    fn spec(&self, name: &Named, made: &mut Made) -> Result<&GroupSpec, String> {
        made.things.push(Thing::Group(name.clone()));
        match self.groups.get(name) {
            Some(Read::Known(spec)) => Ok(spec),
            Some(Read::Unknown(unknown)) => {
                Err(format!("{} is not understood: {}", title(name), unknown.why))
            }
            None => Err(format!("{} does not exist", title(name))),
        }
    }

    fn add(&self, of: &MembersOf, name: &Named, spec: &GroupSpec, made: &mut Made) {
        match spec {
            GroupSpec::Empty | GroupSpec::Children(_) => {}
            GroupSpec::Pods { namespaces, pods } => {
                let space = namespaces.is_none().then(|| name.namespace.clone());
                let space = space.filter(|namespace| !namespace.is_empty());
                made.pods(of, space, namespaces.clone(), pods.clone().unwrap_or_default());
            }
            GroupSpec::Blocks(blocks) => made.holds.blocks.extend(blocks.iter().cloned()),
            GroupSpec::Service(service) => {
                made.things.push(Thing::Service(service.clone()));
                if let Some(selector) = self.services.get(service) {
                    made.pods(of, Some(service.namespace.clone()), None, selector.clone());
                }
            }
            GroupSpec::Nodes(selector) if of.space.is_none() && of.spaces.is_none() => {
                let (space, selector) = (Some(Cow::Borrowed("")), Cow::Owned(selector.clone()));
                made.wanted.push(Wanted { space, spaces: None, selector });
            }
            GroupSpec::Nodes(_) => {}
        }
    }
}

impl Made {
    fn pods(
        &mut self,
        of: &MembersOf,
        space: Option<String>,
        spaces: Option<Selector>,
        selector: Selector,
    ) {
        let (space, spaces) = (space.map(Cow::Owned), spaces.map(Cow::Owned));
        let mut source = Source::Pods(Wanted { space, spaces, selector: Cow::Owned(selector) });
        if let Some(more) = &of.spaces {
            source = source.within_spaces(more);
        }
        let source = match &of.space {
            Some(name) => source.within_space(name),
            None => Some(source),
        };
        if let Some(Source::Pods(wanted)) = source {
            self.wanted.push(wanted);
        }
    }
}

impl Index {
    pub(super) fn make_members(&mut self, of: &MembersOf, id: GroupId) -> u32 {
        let (selections, holds) = (Ids::default(), Holds::default());
        let members = Members { of: of.clone(), selections, holds };
        let group = self.groups.insert(Group::new(id, Makeup::Members(Box::new(members))));
        self.resolve(group, of);
        group
    }

    /// Makes a group what its objects say now.
    fn resolve(&mut self, group: u32, of: &MembersOf) {
        let Made { wanted, holds, things } = self.named.resolve(of);
        self.dependents.extend(things.into_iter().map(|thing| (thing, group)));
        let selections: Ids = wanted.iter().map(|wanted| self.matching.select(wanted)).collect();
        for selection in selections.iter() {
            self.matching.selections[selection].groups.insert(group);
        }
        let Makeup::Members(members) = &mut self.groups[group].makeup else { return };
        if members.holds != holds {
            members.holds = holds;
            self.changes.holds.insert(group);
        }
        let old = std::mem::replace(&mut members.selections, selections.clone());
        for selection in old.iter().filter(|selection| !selections.contains(*selection)) {
            self.part(group, selection);
        }
    }

    pub(super) fn forget_members(&mut self, group: u32, of: &MembersOf) {
        for thing in self.named.resolve(of).things {
            self.dependents.remove(&(thing, group));
        }
    }

    /// A ClusterGroup, a Group or a Service is new, has changed or is gone.
    pub(super) fn change(&mut self, thing: &Thing, change: impl FnOnce(&mut NamedThings)) {
        let range = (thing.clone(), 0)..=(thing.clone(), u32::MAX);
        let groups: Vec<u32> = self.dependents.range(range).map(|(_, group)| *group).collect();
        let mut of = Vec::with_capacity(groups.len());
        for group in groups {
            let Some(GroupKey::Members(key)) = self.groups.get(group).map(key_of) else { continue };
            of.push((group, key.clone()));
        }
        of.iter().for_each(|(group, of)| self.forget_members(*group, of));
        change(&mut self.named);
        for (group, of) in of {
            let before = if self.loading { Vec::new() } else { self.entities_of(group) };
            self.resolve(group, &of);
            if self.loading {
                continue;
            }
            let after = self.entities_of(group);
            for id in before.iter().filter(|id| after.binary_search(id).is_err()) {
                self.shift(group, *id, -1);
            }
            for id in after.iter().filter(|id| before.binary_search(id).is_err()) {
                self.shift(group, *id, 1);
            }
        }
    }
}

fn key_of(group: &Group) -> GroupKey<'_> {
    use super::table::Keyed as _;
    group.key()
}

/// A group as people call it.
fn title(name: &Named) -> String {
    match name.namespace.as_str() {
        "" => format!("ClusterGroup {}", name.name),
        namespace => format!("Group {namespace}/{}", name.name),
    }
}
