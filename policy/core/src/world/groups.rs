//! Who is in a ClusterGroup or a Group.
//!
//! A group that cannot be used counts as one that is missing, wholly: it does not exist, its spec is not
//! understood, it has children of which one has children itself (so also any cycle), or one of which
//! cannot be used. A rule with such a peer fails closed: Allow matches nothing; Drop, Reject and Pass
//! deny all of their direction. As a *subject* such a group selects nobody: nothing says whom it meant,
//! and to deny all pods of the cluster because one name is misspelt would help nobody; the policy's
//! other subjects stand.
//!
//! A group of a Service that does not exist is no such group: nobody is behind that Service, as behind
//! one without a selector. Addresses and nodes of a group are peers and never subjects.

use crate::World;
use policy_objects::{Block, Group, GroupSpec, Named, Read, Selector};

/// What a group is made of; a member is in one of these.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Pods of namespaces.
    pub pods: Vec<(GroupScope, Selector)>,
    /// Addresses.
    pub blocks: Vec<Block>,
    /// Nodes.
    pub nodes: Vec<Selector>,
}

/// Of which namespaces a group's pods are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupScope {
    /// This one.
    Namespace(String),
    /// Those with such labels.
    Namespaces(Selector),
}

impl Members {
    /// Whether nothing is in it, whatever there is.
    pub fn is_empty(&self) -> bool {
        self.pods.is_empty() && self.blocks.is_empty() && self.nodes.is_empty()
    }

    /// Whether pods of other namespaces than a policy's own may be in it.
    pub(crate) fn is_beyond(&self, own: &str) -> bool {
        let beyond = |scope: &GroupScope| match scope {
            GroupScope::Namespace(name) => name != own,
            GroupScope::Namespaces(_) => true,
        };
        !own.is_empty() && self.pods.iter().any(|(scope, _)| beyond(scope))
    }
}

impl World {
    /// Who is in a group, or why it cannot be used.
    pub fn members(&self, name: &Named) -> Result<Members, String> {
        let mut members = Members::default();
        let spec = self.spec(name)?;
        let GroupSpec::Children(children) = spec else {
            self.add(name, spec, &mut members);
            return Ok(members);
        };
        for child in children {
            let child = Named { namespace: name.namespace.clone(), name: child.clone() };
            match self.spec(&child) {
                Ok(GroupSpec::Children(_)) => {
                    return Err(format!(
                        "{} has the child {}, which has children itself: a group is nested once",
                        title(name),
                        child.name
                    ));
                }
                Ok(spec) => self.add(&child, spec, &mut members),
                Err(why) => return Err(format!("{}: of its children, {why}", title(name))),
            }
        }
        Ok(members)
    }

    /// Every group.
    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    fn spec(&self, name: &Named) -> Result<&GroupSpec, String> {
        match self.groups.get(name).map(|group| &group.spec) {
            Some(Read::Known(spec)) => Ok(spec),
            Some(Read::Unknown(unknown)) => {
                Err(format!("{} is not understood: {}", title(name), unknown.why))
            }
            None => Err(format!("{} does not exist", title(name))),
        }
    }

    fn add(&self, name: &Named, spec: &GroupSpec, members: &mut Members) {
        match spec {
            GroupSpec::Empty | GroupSpec::Children(_) => {}
            GroupSpec::Pods { namespaces, pods } => {
                let scope = match (namespaces, name.namespace.as_str()) {
                    (Some(selector), _) => GroupScope::Namespaces(selector.clone()),
                    (None, "") => GroupScope::Namespaces(Selector::default()),
                    (None, own) => GroupScope::Namespace(own.to_owned()),
                };
                members.pods.push((scope, pods.clone().unwrap_or_default()));
            }
            GroupSpec::Blocks(blocks) => members.blocks.extend(blocks.iter().cloned()),
            GroupSpec::Service(service) => {
                let found = self.service(service);
                if let Some(selector) = found.and_then(|service| service.selector.clone()) {
                    let scope = GroupScope::Namespace(service.namespace.clone());
                    members.pods.push((scope, selector));
                }
            }
            GroupSpec::Nodes(selector) => members.nodes.push(selector.clone()),
        }
    }
}

/// A group as people call it.
pub(crate) fn title(name: &Named) -> String {
    match name.namespace.as_str() {
        "" => format!("ClusterGroup {}", name.name),
        namespace => format!("Group {namespace}/{}", name.name),
    }
}
