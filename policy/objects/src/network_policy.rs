//! `networking.k8s.io/v1` NetworkPolicy, and `networking.k8s.aws/v1alpha1` ApplicationNetworkPolicy, which
//! has its shapes.

use crate::{Block, DomainName, Meta, PortRange, Protocol, Read, Selector, Subject, TargetPort};

/// A NetworkPolicy, or an ApplicationNetworkPolicy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPolicy {
    pub meta: Meta,
    pub flavor: Flavor,
    /// The pods of its namespace that it is about.
    pub subject: Subject<Selector>,
    /// Its directions, as they are given or follow from the rules; both where they are not understood.
    pub types: Vec<PolicyType>,
    /// Allowed ingress; without effect if `types` lacks Ingress.
    pub ingress: Vec<Read<NetworkRule>>,
    /// Allowed egress; without effect if `types` lacks Egress.
    pub egress: Vec<Read<NetworkRule>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flavor {
    /// `networking.k8s.io/v1`.
    Kubernetes,
    /// `networking.k8s.aws/v1alpha1` ApplicationNetworkPolicy.
    Aws,
}

/// A direction of a policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PolicyType {
    Ingress,
    Egress,
}

/// A rule: it allows what comes from, or goes to, one of the peers at one of the ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkRule {
    /// `from` or `to`; none: any peer.
    pub peers: Vec<NetworkPeer>,
    /// None: any port of any protocol.
    pub ports: Vec<NetworkPort>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkPeer {
    Pods {
        /// Of these namespaces; `None`: of the policy's own.
        namespaces: Option<Selector>,
        /// These; `None`: all.
        pods: Option<Selector>,
    },
    /// Addresses.
    Block(Block),
    /// Names; ApplicationNetworkPolicy alone.
    Domains(Vec<DomainName>),
}

/// Ports of a protocol.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NetworkPort {
    pub protocol: Protocol,
    /// `None`: every port of it.
    pub port: Option<TargetPort>,
}

impl NetworkPort {
    pub fn number(protocol: Protocol, port: u16) -> Self {
        let range = PortRange { first: port, last: port };
        Self { protocol, port: Some(TargetPort::Numbers(range)) }
    }
}
