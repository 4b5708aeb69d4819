//! The Kubernetes objects that network policy is made of, trimmed to what policy reads, as they are read.
//!
//! Reading never fails as a whole because of a part: what is not understood stays in its place as
//! [`Read::Unknown`] with the reason, and whoever decides lets it fail closed. What is odd but valid is
//! read, and said by a [`Note`]. This crate decides nothing: it knows no order of policies, no matching
//! of packets and no groups' members.
//!
//! [`Object::read`] reads one object, [`Object::read_all`] a document that may be a list; both have a
//! form for a [`serde_json::Value`] that came from YAML. [`ReadError`] says what of the identity could
//! not be read; a kind that is not ours is [`ReadError::Foreign`]. [`page`] reads
//! pages of lists: pods and namespaces borrowed by the page, other kinds as objects, one by one. [`convert`]
//! writes objects of old API versions as the current ones have them.

mod address;
mod antrea;
mod cluster;
mod cluster_policy;
pub mod convert;
mod kind;
mod meta;
mod network_policy;
pub mod page;
mod ports;
mod read;
mod reading;
mod selector;

#[cfg(test)]
mod tests;

pub use address::{Block, Cidr};
pub use antrea::{
    AntreaAction, AntreaAppliedTo, AntreaEntry, AntreaPeer, AntreaPolicy, AntreaPort, AntreaRule,
    FqdnPattern, Group, GroupSpec, Icmp, Logging, Named, NamespaceMatch, Tier,
};
pub use cluster::{
    ContainerPort, Namespace, Node, Phase, Pod, Service, ServicePort, ServiceTarget,
};
pub use cluster_policy::{
    ClusterAction, ClusterPeer, ClusterPolicy, ClusterRule, ClusterTier, Dialect, DomainName,
    NamespacedPods, ProtocolMatch,
};
pub use kind::{Kind, Object};
pub use meta::{LOGGING, MIRROR, Meta, NAME_LABEL};
pub use network_policy::{
    Flavor, NetworkPeer, NetworkPolicy, NetworkPort, NetworkRule, PolicyType,
};
pub use ports::{PortName, PortRange, Protocol, TargetPort};
pub use read::{Parsed, ReadError};
pub use reading::{Note, Read, Severity, Subject, Unknown};
pub use selector::{Labels, Operator, Requirement, Selector};
