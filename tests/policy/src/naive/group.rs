//! Who belongs to groups.

use super::{
    Naive,
    who::{selects, selects_pod},
};
use policy_objects::{Block, GroupSpec, Meta, Named, Object, Pod, Read, Service};
use std::net::IpAddr;

impl Naive<'_> {
    /// A ClusterGroup (no namespace) or a Group, unless it is missing or not understood.
    fn group(&self, namespace: &str, name: &str) -> Option<&GroupSpec> {
        self.objects.iter().find_map(|object| {
            let Object::Group(group) = object else { return None };
            match &group.spec {
                Read::Known(spec) if is_named(&group.meta, namespace, name) => Some(spec),
                Read::Known(_) | Read::Unknown(_) => None,
            }
        })
    }

    /// Whether nobody can say who is in a group: it, or one that it is made of, is missing, or one that it
    /// is made of is made of others in its turn.
    pub(super) fn is_broken(&self, namespace: &str, name: &str) -> bool {
        match self.group(namespace, name) {
            None => true,
            Some(GroupSpec::Children(children)) => children.iter().any(|child| {
                matches!(self.group(namespace, child), None | Some(GroupSpec::Children(_)))
            }),
            Some(_) => false,
        }
    }

    /// Whether a pod is in a group that is not broken.
    pub(super) fn has_pod(&self, namespace: &str, name: &str, pod: &Pod) -> bool {
        match self.group(namespace, name) {
            None | Some(GroupSpec::Empty | GroupSpec::Blocks(_) | GroupSpec::Nodes(_)) => false,
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
        match self.group(namespace, name) {
            Some(GroupSpec::Blocks(blocks)) => blocks.iter().any(|block| in_block(block, address)),
            Some(GroupSpec::Nodes(nodes)) => self.is_node(address, nodes),
            Some(GroupSpec::Children(children)) => {
                children.iter().any(|child| self.has_address(namespace, child, address))
            }
            None | Some(GroupSpec::Empty | GroupSpec::Pods { .. } | GroupSpec::Service(_)) => false,
        }
    }

    fn is_behind(&self, service: &Named, pod: &Pod) -> bool {
        pod.meta.namespace == service.namespace
            && self.service(service).is_some_and(|found| {
                found.selector.as_ref().is_some_and(|s| selects(s, &pod.meta.labels))
            })
    }

    /// Whether an address is one of a Service's.
    pub(super) fn is_service(&self, service: &Named, address: IpAddr) -> bool {
        self.service(service).is_some_and(|found| found.cluster_ips.contains(&address))
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
