//! ClusterNetworkPolicy, of `policy.networking.k8s.io/v1alpha2` and of `networking.k8s.aws/v1alpha1`.

use crate::{Cidr, Meta, PortName, PortRange, Protocol, Read, Selector, Subject};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterPolicy {
    pub meta: Meta,
    pub dialect: Dialect,
    /// Place in the order; `Admin` if it is not understood (then no rule is either).
    pub tier: ClusterTier,
    /// Within the tier, lower first; 0 to 1000 where the API server has seen to it. Not
    /// understood: before every other, for no rule is understood either, and what denies denies all.
    pub priority: i32,
    /// The pods that it is about.
    pub subject: Subject<NamespacedPods>,
    pub ingress: Vec<Read<ClusterRule>>,
    pub egress: Vec<Read<ClusterRule>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dialect {
    /// `policy.networking.k8s.io/v1alpha2`.
    Upstream,
    /// `networking.k8s.aws/v1alpha1`.
    Aws,
}

/// Place of a policy in the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterTier {
    /// Before NetworkPolicies.
    Admin,
    Baseline,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRule {
    pub name: Option<String>,
    pub action: ClusterAction,
    pub peers: Vec<ClusterPeer>,
    /// And one of these; none: any protocol and port.
    pub protocols: Vec<ProtocolMatch>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClusterAction {
    /// Allowed.
    Accept,
    /// Dropped.
    Deny,
    Pass,
}

/// Pods of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NamespacedPods {
    /// Of these namespaces; without requirement: of all.
    pub namespaces: Selector,
    /// These; without requirement: all.
    pub pods: Selector,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterPeer {
    Pods(NamespacedPods),
    /// Addresses, those of pods included; egress alone.
    Networks(Vec<Cidr>),
    /// The addresses of these nodes; egress alone.
    Nodes(Selector),
    /// Addresses of these names; egress and `Accept` only.
    Domains(Vec<DomainName>),
}

/// A domain name, in lower case and without a dot at its end.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DomainName {
    Exact(String),
    /// One or more whole labels before this one, which is not among them.
    Below(String),
}

/// Protocol and port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProtocolMatch {
    /// A protocol; `None`: every port of it.
    Ports(Protocol, Option<PortRange>),
    /// A port of the destination pod by its name, with the protocol that its container gives it.
    Named(PortName),
}

impl DomainName {
    /// True if the pattern matches a name, in any case and with or without a dot at its end.
    pub fn matches(&self, name: &str) -> bool {
        let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        match self {
            Self::Exact(exact) => name == *exact,
            Self::Below(parent) => name
                .strip_suffix(parent.as_str())
                .and_then(|labels| labels.strip_suffix('.'))
                .is_some_and(|labels| labels.split('.').all(|label| !label.is_empty())),
        }
    }
}
