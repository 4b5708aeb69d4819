//! Objects that policies refer to: pods, namespaces, nodes, Services.

use crate::{Labels, Meta, Protocol, Read, Selector};
use std::net::IpAddr;

/// A pod, as far as policy reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pod {
    pub meta: Meta,
    /// The node that it is bound to; empty as long as there is none.
    pub node: String,
    /// True if the pod uses its node's network: no policy selects it, neither as subject nor as peer.
    pub host_network: bool,
    pub service_account: String,
    pub phase: Phase,
    /// Every address of `status.podIPs`, or `status.podIP` where there are none.
    pub addresses: Vec<IpAddr>,
    /// Named ports, in the order in which a name that is there twice is found: containers, then init
    /// containers that are restarted always.
    pub ports: Vec<ContainerPort>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The pod runs or will run; also while it is being deleted.
    Live,
    /// The pod succeeded or failed: another pod may have its address at once.
    Ended,
}

/// A named port of a container.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerPort {
    pub name: String,
    pub protocol: Protocol,
    pub port: u16,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub meta: Meta,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub meta: Meta,
    /// The addresses in `status.addresses`.
    pub addresses: Vec<IpAddr>,
    /// The node is about to be deleted: it has a time of deletion, or the cluster autoscaler has tainted it.
    pub is_leaving: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub meta: Meta,
    /// Selects its pods by their labels; `None` for a Service without a selector, which has no pods of its own.
    pub selector: Read<Option<Selector>>,
    /// `spec.clusterIPs`, or `spec.clusterIP`; empty for a headless one.
    pub cluster_ips: Read<Vec<IpAddr>>,
    /// Other addresses of the Service: `spec.externalIPs`, and the load balancer's addresses in `status`. Not
    /// `spec.loadBalancerIP`, which is only a request.
    pub outer_ips: Vec<IpAddr>,
    pub ports: Vec<ServicePort>,
}

/// A Service's port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Its name; empty if it has none.
    pub name: String,
    pub protocol: Protocol,
    /// Its number at the Service's address.
    pub port: u16,
    /// The pods' port: a number, or a container port's name; `None` is the same number.
    pub target: Option<ServiceTarget>,
}

/// The pods' port behind a Service's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ServiceTarget {
    Number(u16),
    Name(String),
}

impl Namespace {
    /// The labels; with `kubernetes.io/metadata.name`, which the control plane sets, also where a file
    /// leaves it out.
    pub fn labels(&self) -> &Labels {
        &self.meta.labels
    }
}
