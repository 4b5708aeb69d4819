//! Who belongs to groups.

use super::{
    Naive,
    who::{selects, selects_pod},
};
use policy_objects::{Block, GroupSpec, Meta, Named, Object, Pod, Read, Service};
use std::net::IpAddr;

impl Naive<'_> {
    /// A ClusterGroup (no namespace) or a Group, if there is one.
    fn group(&self, namespace: &str, name: &str) -> Option<&Read<GroupSpec>> {
        self.objects.iter().find_map(|object| {
            let Object::Group(group) = object else { return None };
            is_named(&group.meta, namespace, name).then_some(&group.spec)
        })
    }

    /// A group that is there and understood.
    fn spec(&self, namespace: &str, name: &str) -> Option<&GroupSpec> {
        self.group(namespace, name)?.known()
    }

    /// Whether nobody can say who is in a group: it, or one that it is made of, is missing, not understood
    /// or of what is no pod and has no address, or one that it is made of is made of others in its turn.
    pub(super) fn is_broken(&self, namespace: &str, name: &str) -> bool {
        match self.spec(namespace, name) {
            None | Some(GroupSpec::External) => true,
            Some(GroupSpec::Service(service)) => self.is_odd_service(service),
            Some(GroupSpec::Children(children)) => children.iter().any(|child| {
                self.is_made_of_others(namespace, child) || self.is_broken(namespace, child)
            }),
            Some(_) => false,
        }
    }

    /// Whether a group is there, and may mean pods that nobody knows of.
    pub(super) fn is_doubtful(&self, namespace: &str, name: &str) -> bool {
        match self.group(namespace, name) {
            None => false,
            Some(Read::Unknown(_)) => true,
            Some(Read::Known(GroupSpec::Service(service))) => self.is_odd_service(service),
            Some(Read::Known(GroupSpec::Children(children))) => children.iter().any(|child| {
                self.is_made_of_others(namespace, child) || self.is_doubtful(namespace, child)
            }),
            Some(Read::Known(_)) => false,
        }
    }

    fn is_made_of_others(&self, namespace: &str, name: &str) -> bool {
        matches!(self.spec(namespace, name), Some(GroupSpec::Children(_)))
    }

    /// Whether a group, as what a rule is about, holds a pod: all that it may mean.
    pub(super) fn may_mean(&self, namespace: &str, name: &str, pod: &Pod) -> bool {
        match self.is_doubtful(namespace, name) {
            true => namespace.is_empty() || pod.meta.namespace == namespace,
            false => self.has_pod(namespace, name, pod),
        }
    }

    /// Whether a pod is in a group that is not doubtful; in what is missing nobody is.
    pub(super) fn has_pod(&self, namespace: &str, name: &str, pod: &Pod) -> bool {
        match self.spec(namespace, name) {
            None
            | Some(
                GroupSpec::Empty | GroupSpec::Blocks(_) | GroupSpec::Nodes(_) | GroupSpec::External,
            ) => false,
            Some(GroupSpec::Pods { namespaces, pods }) => {
                let within = match namespaces {
                    Some(namespaces) => self.in_namespaces(pod, namespaces),
                    None => namespace.is_empty() || pod.meta.namespace == namespace,
                };
                within && selects_pod(pods.as_ref(), pod)
            }
            Some(GroupSpec::Service(service)) => self.is_behind(service, pod),
            Some(GroupSpec::Children(children)) => {
                children.iter().any(|child| self.has_pod(namespace, child, pod))
            }
        }
    }

    /// Whether an address is in a group that is not broken, other than as a pod's.
    pub(super) fn has_address(&self, namespace: &str, name: &str, address: IpAddr) -> bool {
        match self.spec(namespace, name) {
            Some(GroupSpec::Blocks(blocks)) => blocks.iter().any(|block| in_block(block, address)),
            Some(GroupSpec::Nodes(nodes)) => self.is_node(address, nodes),
            Some(GroupSpec::Children(children)) => {
                children.iter().any(|child| self.has_address(namespace, child, address))
            }
            None
            | Some(
                GroupSpec::Empty
                | GroupSpec::Pods { .. }
                | GroupSpec::Service(_)
                | GroupSpec::External,
            ) => false,
        }
    }

    fn is_behind(&self, service: &Named, pod: &Pod) -> bool {
        let selector = self.service(service).and_then(|found| found.selector.known()?.as_ref());
        pod.meta.namespace == service.namespace
            && selector.is_some_and(|selector| selects(selector, &pod.meta.labels))
    }

    /// Whether a Service, as what a rule is about, holds a pod: all that it may mean.
    pub(super) fn may_be_behind(&self, service: &Named, pod: &Pod) -> bool {
        let any = self.is_odd_service(service) && pod.meta.namespace == service.namespace;
        any || self.is_behind(service, pod)
    }

    /// Whether nobody can say which pods are behind a Service.
    fn is_odd_service(&self, service: &Named) -> bool {
        self.service(service).is_some_and(|found| found.selector.known().is_none())
    }

    /// Whether an address is one of a Service's.
    pub(super) fn is_service(&self, service: &Named, address: IpAddr) -> bool {
        let addresses = self.service(service).and_then(|found| found.cluster_ips.known());
        addresses.is_some_and(|addresses| addresses.contains(&address))
    }

    /// Whether nobody can say which addresses a Service has.
    pub(super) fn has_odd_addresses(&self, service: &Named) -> bool {
        self.service(service).is_some_and(|found| found.cluster_ips.known().is_none())
    }

    fn service(&self, named: &Named) -> Option<&Service> {
        self.objects.iter().find_map(|object| {
            let Object::Service(found) = object else { return None };
            is_named(&found.meta, &named.namespace, &named.name).then_some(found)
        })
    }
}

fn is_named(meta: &Meta, namespace: &str, name: &str) -> bool {
    meta.namespace == namespace && meta.name == name
}

/// Whether an address is in a range and in none of its holes.
pub(crate) fn in_block(block: &Block, address: IpAddr) -> bool {
    block.cidr.contains(&address) && !block.except.iter().any(|hole| hole.contains(&address))
}
