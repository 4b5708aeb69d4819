//! The Kubernetes objects that network policy uses, reduced to the fields that policy reads.
//!
//! Reading never fails as a whole because of a part. A part that is not understood stays in its place as
//! [`Read::Unknown`] with the reason, and the caller lets it fail closed. A part that is odd but valid is
//! read and reported by a [`Note`]. This crate decides nothing: it has no order of policies, no matching
//! of packets and no members of groups.
//!
//! [`Object::read`] reads one object, [`Object::read_all`] a document that may be a list. Both have a
//! form for a [`serde_json::Value`] that came from YAML. [`ReadError`] names the part of the identity that cannot be
//! read; other kinds are [`ReadError::Foreign`]. [`page`] reads pages of lists one item at a time: pods and namespaces
//! borrow from the page, other kinds are objects. [`convert`] converts objects of old API versions to the current ones.

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
