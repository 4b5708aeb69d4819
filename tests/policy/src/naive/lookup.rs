//! Owners of addresses, nodes of pods, labels.

use super::{Naive, Origin, Packet, Side};
use policy_objects::{Labels, Node, Object, Operator, Phase, Pod, Selector};
use std::net::IpAddr;

impl<'a> Naive<'a> {
    pub(super) fn all_pods(&self) -> impl Iterator<Item = &'a Pod> {
        self.objects.iter().filter_map(
            |object| {
                if let Object::Pod(pod) = object { Some(pod) } else { None }
            },
        )
    }

    /// Pods that can be subjects and peers of policies.
    fn pods(&self) -> impl Iterator<Item = &'a Pod> {
        self.all_pods().filter(|pod| pod.phase == Phase::Live && !pod.host_network)
    }

    /// The pod that has an address. If several pods have it, the latest counts.
    pub(super) fn owner(&self, address: IpAddr) -> Option<&'a Pod> {
        self.pods().filter(|pod| pod.addresses.contains(&address)).max_by_key(|pod| {
            (&pod.meta.created, &pod.meta.uid, &pod.meta.namespace, &pod.meta.name)
        })
    }

    /// The pod that sent a packet, if policies can apply to it.
    pub(super) fn sender(&self, packet: &Packet) -> Option<&'a Pod> {
        let Origin::Pod(namespace, name) = &packet.origin else { return None };
        self.pods().find(|pod| pod.meta.namespace == *namespace && pod.meta.name == *name)
    }

    /// The node whose process sent a packet. A pod with host networking counts as its node.
    pub(crate) fn sending_node<'p>(&self, packet: &'p Packet) -> Option<&'p str>
    where
        'a: 'p,
    {
        match &packet.origin {
            Origin::Node(node) => Some(node),
            Origin::Pod(namespace, name) => self
                .all_pods()
                .find(|pod| pod.meta.namespace == *namespace && pod.meta.name == *name)
                .filter(|pod| pod.host_network)
                .map(|pod| pod.node.as_str()),
            Origin::Forwarded => None,
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &'a Node> {
        self.objects
            .iter()
            .filter_map(|object| if let Object::Node(node) = object { Some(node) } else { None })
    }

    /// True if the other end is the pod's own node.
    pub(super) fn is_own_node(&self, side: Side<'_>) -> bool {
        self.nodes()
            .any(|node| node.meta.name == side.pod.node && node.addresses.contains(&side.far))
    }

    /// True if a selected node has the address.
    pub(super) fn is_node(&self, address: IpAddr, nodes: &Selector) -> bool {
        self.nodes()
            .any(|node| node.addresses.contains(&address) && selects(nodes, &node.meta.labels))
    }

    /// The labels of a namespace. A namespace without an object has the label with its name.
    pub(super) fn namespace_labels(&self, name: &str) -> Labels {
        let mut labels = Labels::new();
        for object in self.objects {
            if let Object::Namespace(namespace) = object
                && namespace.meta.name == name
            {
                labels.clone_from(&namespace.meta.labels);
            }
        }
        labels.entry("kubernetes.io/metadata.name".to_owned()).or_insert(name.to_owned());
        labels
    }

    pub(super) fn in_namespaces(&self, pod: &Pod, namespaces: &Selector) -> bool {
        selects(namespaces, &self.namespace_labels(&pod.meta.namespace))
    }

    pub(super) fn any_name(&self, address: IpAddr, is: impl Fn(&str) -> bool) -> bool {
        self.names.iter().any(|(of, name)| *of == address && is(name))
    }
}

/// True if a selector selects an object with these labels.
pub(super) fn selects(selector: &Selector, labels: &Labels) -> bool {
    selector.requirements.iter().all(|requirement| {
        let value = labels.get(&requirement.key);
        match &requirement.operator {
            Operator::In(values) => value.is_some_and(|value| values.contains(value)),
            Operator::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
        }
    })
}

/// True if there is no selector, or if it selects the pod.
pub(super) fn selects_pod(selector: Option<&Selector>, pod: &Pod) -> bool {
    selector.is_none_or(|selector| selects(selector, &pod.meta.labels))
}
