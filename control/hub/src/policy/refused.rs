//! Reasons to refuse an agent's announcement.

use policy_objects::Named;
use std::net::IpAddr;
use thiserror::Error;

/// Reason to refuse a pod's addresses from an agent. The content of nodes does not change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AnnounceError {
    /// The first lists are not all read.
    #[error("this replica has not read the cluster yet; retry")]
    NotYet,
    /// The replica has no pod of this name; its creation may not have arrived yet.
    #[error("this replica knows no live pod {pod}; retry if it was just created")]
    UnknownPod {
        /// Namespace and name in the announcement.
        pod: Named,
    },
    /// The pod of this name has another UID; the removal of that pod may not have arrived yet.
    #[error("pod {pod} has another UID here than {uid}; retry if it was just recreated")]
    OtherUid {
        pod: Named,
        /// UID in the announcement.
        uid: String,
    },
    /// The pod is not bound; this replica may not have received that event yet.
    #[error("pod {pod} is bound to no node here; retry")]
    Unbound {
        /// Namespace and name in the announcement.
        pod: Named,
    },
    /// The pod is on another node than the caller.
    #[error("pod {pod} is not bound to {node}; an agent announces pods of its own node only")]
    OtherNode {
        pod: Named,
        /// Node of the caller.
        node: String,
    },
    /// The pod has the network of its node.
    #[error("pod {pod} uses its node's network and has no address of its own")]
    HostNetwork {
        /// Namespace and name in the announcement.
        pod: Named,
    },
    /// The pod has succeeded or failed.
    #[error("pod {pod} has ended; another pod may have its address")]
    Ended {
        /// Namespace and name in the announcement.
        pod: Named,
    },
    /// No pod can have such an address.
    #[error("{address} cannot be the address of pod {pod}")]
    Unusable {
        pod: Named,
        /// Unspecified, of a loopback, a link or a group, or broadcast.
        address: IpAddr,
    },
    /// The address is a node's.
    #[error("{address} is the address of a node; pod {pod} cannot have it")]
    OfNode {
        /// Namespace and name in the announcement.
        pod: Named,
        address: IpAddr,
    },
    /// The address is a Service's.
    #[error("{address} is the address of a Service; pod {pod} cannot have it")]
    OfService {
        /// Namespace and name in the announcement.
        pod: Named,
        address: IpAddr,
    },
    /// The address belongs to another live pod; the end of that pod may not have arrived yet.
    #[error(
        "{address} is the address of the live pod {holder}; pod {pod} cannot have it before that pod ends"
    )]
    OfPod {
        pod: Named,
        address: IpAddr,
        /// Object that holds the address.
        holder: Named,
    },
    /// There is no address, or there are too many.
    #[error("pod {pod} is announced with {count} addresses; 1 to {most} are allowed")]
    Addresses {
        pod: Named,
        /// Number of announced addresses.
        count: usize,
        /// Maximum number of addresses.
        most: usize,
    },
    /// Too many announcements wait for a confirmation.
    #[error("{count} pods {of} wait for their status, which is the maximum; retry")]
    TooMany {
        /// Number of unconfirmed pods.
        count: usize,
        /// `of the node` or `of all nodes`.
        of: &'static str,
    },
}

impl AnnounceError {
    /// True if the same announcement may be accepted later without a change by the caller. This replica lacks events
    /// or room in these cases.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NotYet
            | Self::UnknownPod { .. }
            | Self::OtherUid { .. }
            | Self::Unbound { .. }
            | Self::OfPod { .. }
            | Self::TooMany { .. } => true,
            Self::OtherNode { .. }
            | Self::HostNetwork { .. }
            | Self::Ended { .. }
            | Self::Unusable { .. }
            | Self::OfNode { .. }
            | Self::OfService { .. }
            | Self::Addresses { .. } => false,
        }
    }

    /// Returns the label of the metric.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NotYet => "not_yet",
            Self::UnknownPod { .. } => "unknown_pod",
            Self::OtherUid { .. } => "other_uid",
            Self::Unbound { .. } => "unbound",
            Self::OtherNode { .. } => "other_node",
            Self::HostNetwork { .. } => "host_network",
            Self::Ended { .. } => "ended",
            Self::Unusable { .. } => "unusable_address",
            Self::OfNode { .. } => "address_of_node",
            Self::OfService { .. } => "address_of_service",
            Self::OfPod { .. } => "address_in_use",
            Self::Addresses { .. } => "number_of_addresses",
            Self::TooMany { .. } => "too_many",
        }
    }
}
