//! Members of groups.

use super::{
    Naive,
    lookup::{selects, selects_pod},
};
use policy_objects::{Block, GroupSpec, Meta, Named, Object, Pod, Read, Service};
use std::net::IpAddr;

impl Naive<'_> {
    /// A ClusterGroup (if `namespace` is empty) or a Group. `None` if it does not exist.
    fn group(&self, namespace: &str, name: &str) -> Option<&Read<GroupSpec>> {
        self.objects.iter().find_map(|object| {
            let Object::Group(group) = object else { return None };
            is_named(&group.meta, namespace, name).then_some(&group.spec)
        })
    }

    /// A group that exists and is understood.
    fn spec(&self, namespace: &str, name: &str) -> Option<&GroupSpec> {
        self.group(namespace, name)?.known()
    }

    /// True if the members of a group cannot be determined. The group is missing. The group or a child is not understood
    /// or external, a Service's selector is not understood, or a child has children itself.
    pub(super) fn is_broken(&self, namespace: &str, name: &str) -> bool {
        match self.spec(namespace, name) {
            None | Some(GroupSpec::External) => true,
            Some(GroupSpec::Service(service)) => self.has_unknown_selector(service),
            Some(GroupSpec::Children(children)) => children.iter().any(|child| {
                let exists = self.group(namespace, child).is_some();
                self.has_children(namespace, child) || exists && self.is_broken(namespace, child)
            }),
            Some(_) => false,
        }
    }

    /// True if a group exists, but its pods cannot be determined.
    pub(super) fn is_doubtful(&self, namespace: &str, name: &str) -> bool {
        match self.group(namespace, name) {
            None => false,
            Some(Read::Unknown(_)) => true,
            Some(Read::Known(GroupSpec::Service(service))) => self.has_unknown_selector(service),
            Some(Read::Known(GroupSpec::Children(children))) => children.iter().any(|child| {
                self.has_children(namespace, child) || self.is_doubtful(namespace, child)
            }),
            Some(Read::Known(_)) => false,
        }
    }

    fn has_children(&self, namespace: &str, name: &str) -> bool {
        matches!(self.spec(namespace, name), Some(GroupSpec::Children(_)))
    }

    /// True if a group as a subject may contain a pod. A doubtful group may contain any pod of its scope.
    pub(super) fn may_contain(&self, namespace: &str, name: &str, pod: &Pod) -> bool {
        match self.is_doubtful(namespace, name) {
            true => namespace.is_empty() || pod.meta.namespace == namespace,
            false => self.has_pod(namespace, name, pod),
        }
    }

    /// True if a pod is in a group that is not doubtful. A missing group is empty.
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
            Some(GroupSpec::Service(service)) => self.service_selects(service, pod),
            Some(GroupSpec::Children(children)) => {
                children.iter().any(|child| self.has_pod(namespace, child, pod))
            }
        }
    }

    /// True if a group has an address by a block, a node or a Service, not by a pod.
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

    fn service_selects(&self, service: &Named, pod: &Pod) -> bool {
        let selector = self.service(service).and_then(|found| found.selector.known()?.as_ref());
        pod.meta.namespace == service.namespace
            && selector.is_some_and(|selector| selects(selector, &pod.meta.labels))
    }

    /// True if a Service as a subject may contain a pod. A Service without a readable selector may contain
    /// any pod of its namespace.
    pub(super) fn may_select(&self, service: &Named, pod: &Pod) -> bool {
        let any = self.has_unknown_selector(service) && pod.meta.namespace == service.namespace;
        any || self.service_selects(service, pod)
    }

    /// True if the selector of a Service is not understood.
    fn has_unknown_selector(&self, service: &Named) -> bool {
        self.service(service).is_some_and(|found| found.selector.known().is_none())
    }

    /// True if the Service has the address.
    pub(super) fn is_service(&self, service: &Named, address: IpAddr) -> bool {
        let addresses = self.service(service).and_then(|found| found.cluster_ips.known());
        addresses.is_some_and(|addresses| addresses.contains(&address))
    }

    /// True if the addresses of a Service are not understood.
    pub(super) fn has_unknown_addresses(&self, service: &Named) -> bool {
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

/// True if an address is in a CIDR and in none of its exceptions.
pub(crate) fn in_block(block: &Block, address: IpAddr) -> bool {
    block.cidr.contains(&address) && !block.except.iter().any(|hole| hole.contains(&address))
}
