//! ClusterGroups and Groups, and the Services that they speak of.

use super::{
    Index,
    delta::{Change, GroupId, Holds, Role},
    entities::one_less,
    groups::{Makeup, Members, Vips},
    ids::Ids,
    matching::PodSelection,
    source::{Dependency, MembersOf, Source},
};
use crate::world::{GroupScope, GroupWalk, Lookup, odd_service};
use policy_objects::{GroupSpec, Named, Read, Selector, Service};
use std::{borrow::Cow, collections::BTreeMap, net::IpAddr};

#[derive(Debug, Default)]
pub(super) struct NamedObjects {
    pub(super) groups: BTreeMap<Named, Read<GroupSpec>>,
    /// Services with a selector or an address, or whose selector is not understood.
    services: BTreeMap<Named, Served>,
    /// Addresses of Services, and of how many.
    vips: BTreeMap<IpAddr, u32>,
}

/// Fields of a Service that policies read.
#[derive(Debug)]
struct Served {
    selector: Read<Option<Selector>>,
    vips: Read<Vec<IpAddr>>,
}

/// Current content of a group, and the objects that it depends on.
struct Made {
    wanted: Vec<PodSelection<'static>>,
    holds: [Holds; 2],
    things: Vec<Dependency>,
}

impl Lookup for NamedObjects {
    fn group(&self, name: &Named) -> Option<&Read<GroupSpec>> {
        self.groups.get(name)
    }

    fn service(&self, name: &Named) -> Option<&Read<Option<Selector>>> {
        self.services.get(name).map(|served| &served.selector)
    }
}

impl NamedObjects {
    /// A Service is there, or, without, gone.
    pub(super) fn serve(&mut self, name: Named, service: Option<&Service>) {
        let served = service.map(|Service { selector, cluster_ips, .. }| {
            let vips = match cluster_ips {
                Read::Unknown(unknown) => Read::Unknown(unknown.clone()),
                Read::Known(addresses) => {
                    let mut vips: Vec<IpAddr> =
                        addresses.iter().map(IpAddr::to_canonical).collect();
                    vips.sort_unstable();
                    vips.dedup();
                    Read::Known(vips)
                }
            };
            Served { selector: selector.clone(), vips }
        });
        let none = Read::Known(Vec::new());
        let served =
            served.filter(|served| served.selector != Read::Known(None) || served.vips != none);
        for vip in served.iter().filter_map(|served| served.vips.known()).flatten() {
            *self.vips.entry(*vip).or_default() += 1;
        }
        let before = match served {
            Some(served) => self.services.insert(name, served),
            None => self.services.remove(&name),
        };
        for vip in before.iter().filter_map(|before| before.vips.known()).flatten() {
            one_less(&mut self.vips, *vip);
        }
    }

    /// True if a Service has the address.
    pub(super) fn is_of_service(&self, address: IpAddr) -> bool {
        self.vips.contains_key(&address)
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.vips.len()
    }

    /// Content of the group of a Service's addresses.
    fn vips(&self, name: &Named) -> Holds {
        match self.services.get(name).map(|served| &served.vips) {
            None => Holds::default(),
            Some(Read::Known(vips)) => Holds { vips: vips.clone(), ..Holds::default() },
            Some(Read::Unknown(unknown)) => {
                Holds { unusable: Some(odd_service(name, unknown)), ..Holds::default() }
            }
        }
    }

    /// As [`crate::World::members`] and [`crate::World::subjects`], by name.
    fn resolve(&self, of: &MembersOf) -> Made {
        let walk = match &of.thing {
            Dependency::Group(group) => GroupWalk::of_group(self, group),
            Dependency::Service(service) => GroupWalk::of_service(self, service),
        };
        let GroupWalk { members, unusable, doubt, groups, services } = walk;
        let mut wanted: Vec<_> =
            members.pods.into_iter().filter_map(|(scope, pods)| of.limit(scope, pods)).collect();
        if of.space.is_none() && of.spaces.is_none() && unusable.is_none() {
            wanted.extend(members.nodes.into_iter().map(|selector| {
                let (space, selector) = (Some(Cow::Borrowed("")), Cow::Owned(selector));
                PodSelection { space, spaces: None, selector }
            }));
        }
        let blocks = if unusable.is_none() { members.blocks } else { Vec::new() };
        let applied = Holds { unusable: doubt, ..Holds::default() };
        let address = Holds { blocks, unusable, ..Holds::default() };
        let things = groups.into_iter().map(Dependency::Group);
        let things = things.chain(services.into_iter().map(Dependency::Service)).collect();
        Made { wanted, holds: [applied, address], things }
    }
}

impl MembersOf {
    /// The pods that this group may have; `None`: it can have none.
    fn limit(&self, scope: GroupScope, pods: Selector) -> Option<PodSelection<'static>> {
        let (space, spaces) = match scope {
            GroupScope::Namespace(name) => (Some(Cow::Owned(name)), None),
            GroupScope::Namespaces(selector) if selector.requirements.is_empty() => (None, None),
            GroupScope::Namespaces(selector) => (None, Some(Cow::Owned(selector))),
        };
        let mut source = Source::Pods(PodSelection { space, spaces, selector: Cow::Owned(pods) });
        if let Some(more) = &self.spaces {
            source = source.within_spaces(more);
        }
        let source = match &self.space {
            Some(name) => source.within_space(name),
            None => Some(source),
        };
        match source? {
            Source::Pods(wanted) => Some(wanted),
            Source::Members(_) | Source::Service(_) => None,
        }
    }
}

impl Index {
    pub(super) fn make_members(&mut self, of: &MembersOf, id: GroupId) -> u32 {
        let (selections, holds) = (Ids::default(), Default::default());
        let members = Members { of: of.clone(), selections, holds };
        let group = self.add_group(id, Makeup::Members(Box::new(members)));
        self.resolve(group, of);
        group
    }

    /// Sets a group to the content of its current objects.
    fn resolve(&mut self, group: u32, of: &MembersOf) {
        let Made { wanted, holds, things } = self.named.resolve(of);
        self.dependents.extend(things.into_iter().map(|thing| (thing, group)));
        let selections: Ids = wanted.iter().map(|wanted| self.matching.select(wanted)).collect();
        for selection in selections.iter() {
            self.matching.selections[selection].groups.insert(group);
        }
        let Makeup::Members(members) = &mut self.groups[group].makeup else { return };
        for role in ROLES {
            if members.holds[role as usize] != holds[role as usize] {
                self.changes.holds.insert((group, role));
            }
        }
        let doubt = |holds: &[Holds; 2]| holds[Role::Applied as usize].unusable.clone();
        let doubted = doubt(&members.holds) != doubt(&holds);
        members.holds = holds;
        let old = std::mem::replace(&mut members.selections, selections.clone());
        for selection in old.iter().filter(|selection| !selections.contains(*selection)) {
            self.part(group, selection);
        }
        if doubted && !self.loading {
            for policy in self.groups[group].policies(Role::Applied) {
                self.changes.policies.entry(*policy).or_insert(Change::Changed);
            }
        }
    }

    pub(super) fn make_service(&mut self, name: &Named, id: GroupId) -> u32 {
        let (of, holds) = (name.clone(), self.named.vips(name));
        let group = self.add_group(id, Makeup::Service(Box::new(Vips { of, holds })));
        self.dependents.insert((Dependency::Service(name.clone()), group));
        group
    }

    /// Removes all dependencies of a group.
    pub(super) fn forget_things(&mut self, group: u32) {
        let things = match &self.groups[group].makeup {
            Makeup::Selection(_) => return,
            Makeup::Members(members) => self.named.resolve(&members.of).things,
            Makeup::Service(service) => vec![Dependency::Service(service.of.clone())],
        };
        for thing in things {
            self.dependents.remove(&(thing, group));
        }
    }

    /// A ClusterGroup, a Group or a Service is new, has changed or is gone.
    pub(super) fn change(&mut self, thing: &Dependency, change: impl FnOnce(&mut NamedObjects)) {
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
            let holds = self.named.vips(&service.of);
            if service.holds != holds {
                service.holds = holds;
                self.changes.holds.insert((group, Role::Address));
            }
        }
    }

    /// Rebuilds a group whose content has changed.
    fn remake(&mut self, group: u32, of: &MembersOf) {
        if self.loading {
            return self.resolve(group, of);
        }
        let before = ROLES.map(|role| self.listed(group, role));
        self.resolve(group, of);
        for (role, before) in ROLES.into_iter().zip(before) {
            let after = self.listed(group, role);
            for id in before.iter().filter(|id| after.binary_search(id).is_err()) {
                self.shift_as(group, role, *id, -1);
            }
            for id in after.iter().filter(|id| before.binary_search(id).is_err()) {
                self.shift_as(group, role, *id, 1);
            }
        }
    }

    /// Everything that a group has as members for a role, and more that does not count for it.
    fn listed(&self, group: u32, role: Role) -> Vec<u32> {
        let it = &self.groups[group];
        if it.has(role) && it.lists(role) { self.entities_of(group) } else { Vec::new() }
    }
}

const ROLES: [Role; 2] = [Role::Applied, Role::Address];
