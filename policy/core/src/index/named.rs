//! ClusterGroups and Groups, and the Services that they speak of.

use super::{
    Index,
    delta::{GroupId, Holds},
    groups::{Makeup, Members, Vips},
    ids::Ids,
    matching::Wanted,
    source::{MembersOf, Source},
};
use policy_objects::{GroupSpec, Named, Read, Selector, Service};
use std::{borrow::Cow, collections::BTreeMap, net::IpAddr};

/// What a group's members depend on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    Group(Named),
    Service(Named),
}

#[derive(Debug, Default)]
pub(super) struct NamedThings {
    pub(super) groups: BTreeMap<Named, Read<GroupSpec>>,
    /// Those with a selector or an address.
    services: BTreeMap<Named, Served>,
}

/// What policies can ask of a Service.
#[derive(Debug)]
struct Served {
    selector: Option<Selector>,
    vips: Box<[IpAddr]>,
}

/// What a group is made of now, and what that depends on.
struct Made {
    wanted: Vec<Wanted<'static>>,
    holds: Holds,
    things: Vec<Thing>,
}

impl NamedThings {
    /// A Service is there, or, without, gone.
    pub(super) fn serve(&mut self, name: Named, service: Option<&Service>) {
        let served = service.map(|Service { selector, cluster_ips, .. }| {
            let mut vips: Vec<IpAddr> = cluster_ips.iter().map(IpAddr::to_canonical).collect();
            vips.sort_unstable();
            vips.dedup();
            Served { selector: selector.clone(), vips: vips.into() }
        });
        match served.filter(|served| served.selector.is_some() || !served.vips.is_empty()) {
            Some(served) => drop(self.services.insert(name, served)),
            None => drop(self.services.remove(&name)),
        }
    }

    fn vips(&self, name: &Named) -> Vec<IpAddr> {
        self.services.get(name).map(|served| served.vips.to_vec()).unwrap_or_default()
    }

    /// As [`crate::World::members`], by name: a group that cannot be used is empty, with the reason.
    fn resolve(&self, of: &MembersOf) -> Made {
        let mut made = Made { wanted: Vec::new(), holds: Holds::default(), things: Vec::new() };
        if let Err(why) = self.walk(of, &mut made) {
            made.wanted.clear();
            made.holds = Holds { unusable: Some(why), ..Holds::default() };
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
                let served = self.services.get(service);
                if let Some(selector) = served.and_then(|served| served.selector.as_ref()) {
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
        let group = self.add_group(id, Makeup::Members(Box::new(members)));
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

    pub(super) fn make_service(&mut self, name: &Named, id: GroupId) -> u32 {
        let (of, vips) = (name.clone(), self.named.vips(name));
        let group = self.add_group(id, Makeup::Service(Box::new(Vips { of, vips })));
        self.dependents.insert((Thing::Service(name.clone()), group));
        group
    }

    /// Nothing that a group depends on is of matter to it any more.
    pub(super) fn forget_things(&mut self, group: u32) {
        let things = match &self.groups[group].makeup {
            Makeup::Selection(_) => return,
            Makeup::Members(members) => self.named.resolve(&members.of).things,
            Makeup::Service(service) => vec![Thing::Service(service.of.clone())],
        };
        for thing in things {
            self.dependents.remove(&(thing, group));
        }
    }

    /// A ClusterGroup, a Group or a Service is new, has changed or is gone.
    pub(super) fn change(&mut self, thing: &Thing, change: impl FnOnce(&mut NamedThings)) {
        let range = (thing.clone(), 0)..=(thing.clone(), u32::MAX);
        let groups: Vec<u32> = self.dependents.range(range).map(|(_, group)| *group).collect();
        let made_of = |group: &u32| match &self.groups[*group].makeup {
            Makeup::Members(members) => Some((*group, members.of.clone())),
            Makeup::Selection(_) | Makeup::Service(_) => None,
        };
        let made_of: Vec<_> = groups.iter().filter_map(made_of).collect();
        made_of.iter().for_each(|(group, _)| self.forget_things(*group));
        change(&mut self.named);
        for (group, of) in made_of {
            self.remake(group, &of);
        }
        for group in groups {
            let Makeup::Service(service) = &mut self.groups[group].makeup else { continue };
            let vips = self.named.vips(&service.of);
            if service.vips != vips {
                service.vips = vips;
                self.changes.holds.insert(group);
            }
        }
    }

    /// What a group is made of has changed.
    fn remake(&mut self, group: u32, of: &MembersOf) {
        if self.loading {
            return self.resolve(group, of);
        }
        let before = self.entities_of(group);
        self.resolve(group, of);
        let after = self.entities_of(group);
        for id in before.iter().filter(|id| after.binary_search(id).is_err()) {
            self.shift(group, *id, -1);
        }
        for id in after.iter().filter(|id| before.binary_search(id).is_err()) {
            self.shift(group, *id, 1);
        }
    }
}

/// A group as people call it.
fn title(name: &Named) -> String {
    match name.namespace.as_str() {
        "" => format!("ClusterGroup {}", name.name),
        namespace => format!("Group {namespace}/{}", name.name),
    }
}
