//! Members of a ClusterGroup or a Group.
//!
//! A group is not usable in each of these cases. The group does not exist. The group or one of its children is not
//! understood. A child has children itself, which includes any cycle. The group consists of pods of a Service
//! whose selector is not understood. The group consists of objects that are not pods and have no address here.
//! A rule with such a *peer* fails closed: Allow matches nothing; Drop, Reject and Pass deny all of their direction.
//!
//! As a *subject*, a missing group has no pods: one misspelled name must not deny all pods of the cluster.
//! A group that exists and is not understood may mean any pod. It stands for all pods of its scope, and a
//! Service stands for all pods of its namespace. A rule about these has a subject that is not understood: Allow
//! and Pass need to know their subject, denials do not. An object that is not a pod has no effect.
//!
//! A child that does not exist has no members, and the other children are the group.
//! A group of a Service that does not exist is usable and empty, as is a group of a Service
//! without a selector. Addresses and nodes of a group are peers and never subjects.

use crate::{Peer, Peers, Pods, World};
use policy_objects::{Block, Group, GroupSpec, Named, Read, Selector, Unknown};

/// Parts of a group; a member is in at least one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Pods of namespaces.
    pub pods: Vec<(GroupScope, Selector)>,
    /// Addresses.
    pub blocks: Vec<Block>,
    pub nodes: Vec<Selector>,
}

/// Of which namespaces a group's pods are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupScope {
    Namespace(String),
    Namespaces(Selector),
}

impl Members {
    /// True if the group is empty in every world.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.blocks.is_empty() && self.nodes.is_empty()
    }

    /// True if pods of namespaces other than a policy's own may be in it.
    pub(crate) fn is_beyond(&self, own: &str) -> bool {
        let beyond = |scope: &GroupScope| match scope {
            GroupScope::Namespace(name) => name != own,
            GroupScope::Namespaces(_) => true,
        };
        !own.is_empty() && self.pods.iter().any(|(scope, _)| beyond(scope))
    }
}

/// Pods of a group or behind a Service, as the subject of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subjects {
    /// These.
    pub pods: Vec<(GroupScope, Selector)>,
    /// Reason why they are more pods than intended.
    pub doubt: Option<String>,
}

/// Source of groups and Services.
pub(crate) trait Lookup {
    fn group(&self, name: &Named) -> Option<&Read<GroupSpec>>;
    fn service(&self, name: &Named) -> Option<&Read<Option<Selector>>>;
}

/// Parts of a group that were found, and the reasons for missing ones.
#[derive(Default)]
pub(crate) struct Walk {
    /// With all pods that a part may mean which is not understood.
    pub(crate) members: Members,
    /// The first of the reasons why it cannot be used.
    pub(crate) unusable: Option<String>,
    /// The first of them for which pods may be missing.
    pub(crate) doubt: Option<String>,
    /// The groups that were looked for.
    pub(crate) groups: Vec<Named>,
    pub(crate) services: Vec<Named>,
}

impl Walk {
    pub(crate) fn of_group(all: &impl Lookup, name: &Named) -> Self {
        let mut walk = Self::default();
        let Some(Read::Known(GroupSpec::Children(children))) = walk.spec(all, name) else {
            walk.add(all, name, "");
            return walk;
        };
        for child in children {
            let child = Named { namespace: name.namespace.clone(), name: child.clone() };
            match walk.spec(all, &child) {
                None => {}
                Some(Read::Known(GroupSpec::Children(_))) => {
                    let why = format!(
                        "{} has the child {}, which has children itself: a group is nested once",
                        title(name),
                        child.name
                    );
                    walk.doubts(whole_scope(name), why);
                }
                Some(_) => walk.add(all, &child, &format!("{}: of its children, ", title(name))),
            }
        }
        walk
    }

    pub(crate) fn of_service(all: &impl Lookup, name: &Named) -> Self {
        let mut walk = Self::default();
        walk.add_service(all, name, GroupScope::Namespace(name.namespace.clone()), "");
        walk
    }

    fn spec<'a>(&mut self, all: &'a impl Lookup, name: &Named) -> Option<&'a Read<GroupSpec>> {
        self.groups.push(name.clone());
        all.group(name)
    }

    /// Adds the content of one group; `of` is the prefix of the reasons.
    fn add(&mut self, all: &impl Lookup, name: &Named, of: &str) {
        let title = title(name);
        let spec = match all.group(name) {
            None => return self.lacks(format!("{of}{title} does not exist")),
            Some(Read::Unknown(unknown)) => {
                let why = format!("{of}{title} is not understood: {}", unknown.why);
                return self.doubts(whole_scope(name), why);
            }
            Some(Read::Known(spec)) => spec,
        };
        let members = &mut self.members;
        match spec {
            GroupSpec::Empty | GroupSpec::Children(_) => {}
            GroupSpec::Pods { namespaces, pods } => {
                let scope = match namespaces {
                    Some(selector) => GroupScope::Namespaces(selector.clone()),
                    None => whole_scope(name),
                };
                members.pods.push((scope, pods.clone().unwrap_or_default()));
            }
            GroupSpec::Blocks(blocks) => members.blocks.extend(blocks.iter().cloned()),
            GroupSpec::Service(service) => {
                self.add_service(all, service, whole_scope(name), &format!("{of}{title}: "));
            }
            GroupSpec::Nodes(selector) => members.nodes.push(selector.clone()),
            GroupSpec::External => {
                self.lacks(format!("{of}{title} is of external entities, which are not supported"))
            }
        }
    }

    /// The pods behind a Service; `whole` are all that may be meant.
    fn add_service(&mut self, all: &impl Lookup, name: &Named, whole: GroupScope, of: &str) {
        self.services.push(name.clone());
        match all.service(name) {
            None | Some(Read::Known(None)) => {}
            Some(Read::Known(Some(selector))) => {
                let scope = GroupScope::Namespace(name.namespace.clone());
                self.members.pods.push((scope, selector.clone()));
            }
            Some(Read::Unknown(unknown)) => {
                let why = format!("{of}{}", odd_service(name, unknown));
                self.doubts(whole, why);
            }
        }
    }

    fn lacks(&mut self, why: String) {
        self.unusable.get_or_insert(why);
    }

    fn doubts(&mut self, scope: GroupScope, why: String) {
        self.members.pods.push((scope, Selector::default()));
        self.doubt.get_or_insert_with(|| why.clone());
        self.lacks(why);
    }
}

impl World {
    /// Members of a group, or the reason why it is not usable.
    pub fn members(&self, name: &Named) -> Result<Members, String> {
        let Walk { members, unusable, .. } = Walk::of_group(self, name);
        unusable.map_or(Ok(members), Err)
    }

    /// Pods of a group as a subject.
    pub fn subjects(&self, name: &Named) -> Subjects {
        let Walk { members, doubt, .. } = Walk::of_group(self, name);
        Subjects { pods: members.pods, doubt }
    }

    /// The pods behind a Service, as a subject.
    pub fn behind(&self, name: &Named) -> Subjects {
        let Walk { members, doubt, .. } = Walk::of_service(self, name);
        Subjects { pods: members.pods, doubt }
    }

    /// Reason why a rule covers more pods than intended, with the current objects.
    pub fn subject_doubt(&self, subject: &[Pods]) -> Option<String> {
        subject.iter().find_map(|pods| match pods {
            Pods::Group(name) => self.subjects(name).doubt,
            Pods::Service(name) => self.behind(name).doubt,
            Pods::Labeled { .. } | Pods::ServiceAccount(_) => None,
        })
    }

    /// Reason why a rule's peers are unknown, with the current objects.
    pub fn peer_doubt(&self, peers: &Peers) -> Option<String> {
        let Peers::Of(peers) = peers else { return None };
        peers.iter().find_map(|peer| match peer {
            Peer::Pods(Pods::Group(name)) => self.members(name).err(),
            Peer::Service(name) => match &self.service(name)?.cluster_ips {
                Read::Known(_) => None,
                Read::Unknown(unknown) => Some(odd_service(name, unknown)),
            },
            Peer::Pods(Pods::Labeled { .. } | Pods::Service(_) | Pods::ServiceAccount(_))
            | Peer::Block(_)
            | Peer::Nodes(_)
            | Peer::Name(_) => None,
        })
    }

    /// Every group.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }
}

impl Lookup for World {
    fn group(&self, name: &Named) -> Option<&Read<GroupSpec>> {
        self.groups.get(name).map(|group| &group.spec)
    }

    fn service(&self, name: &Named) -> Option<&Read<Option<Selector>>> {
        self.services.get(name).map(|service| &service.selector)
    }
}

/// Scope of all pods that a group may have, from its name alone.
fn whole_scope(group: &Named) -> GroupScope {
    match group.namespace.as_str() {
        "" => GroupScope::Namespaces(Selector::default()),
        own => GroupScope::Namespace(own.to_owned()),
    }
}

/// A group as people call it.
pub(crate) fn title(name: &Named) -> String {
    match name.namespace.as_str() {
        "" => format!("ClusterGroup {}", name.name),
        namespace => format!("Group {namespace}/{}", name.name),
    }
}

/// That a Service is not understood.
pub(crate) fn odd_service(name: &Named, unknown: &Unknown) -> String {
    format!("Service {}/{} is not understood: {}", name.namespace, name.name, unknown.why)
}
