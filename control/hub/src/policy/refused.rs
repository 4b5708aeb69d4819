//! Reasons to refuse an agent's announcement.

use policy_objects::Named;
use std::net::IpAddr;
use thiserror::Error;

/// Reason to refuse a pod's addresses from an agent. The content of nodes does not change.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum AnnounceError {
    /// The first lists are not all read.
    #[error("this replica has not read the cluster yet: ask again")]
    NotYet,
    /// There is none of this name; its creation may not have come here.
    #[error("no live pod {pod} is known here: ask again if it has just been made")]
    UnknownPod {
        /// Namespace and name in the announcement.
        pod: Named,
    },
    /// The pod of this name is another; the end of that one may not have come here.
    #[error("pod {pod} has another UID here than {uid}: ask again if it has just been made anew")]
    OtherUid {
        pod: Named,
        /// UID in the announcement.
        uid: String,
    },
    /// The pod is not bound; this replica may not have received that event yet.
    #[error("pod {pod} is bound to no node here: ask again")]
    Unbound {
        /// Namespace and name in the announcement.
        pod: Named,
    },
    /// The pod is on another node than the caller.
    #[error("pod {pod} is not bound to {node}: a node speaks for its own pods alone")]
    OtherNode {
        pod: Named,
        /// Node of the caller.
        node: String,
    },
    /// The pod has the network of its node.
    #[error("pod {pod} has its node's network: it has no address of its own")]
    HostNetwork {
        /// Namespace and name in the announcement.
        pod: Named,
    },
    /// The pod has succeeded or failed.
    #[error("pod {pod} has ended: its address may be another's")]
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
    #[error("{address} is a node's address: pod {pod} cannot have it")]
    OfNode {
        /// Namespace and name in the announcement.
        pod: Named,
        address: IpAddr,
    },
    /// The address is a Service's.
    #[error("{address} is a Service's address: pod {pod} cannot have it")]
    OfService {
        /// Namespace and name in the announcement.
        pod: Named,
        address: IpAddr,
    },
    /// The address is that of another pod that lives; its end may not have come here.
    #[error(
        "{address} is the address of pod {holder}, which lives: pod {pod} cannot have it before that ends"
    )]
    OfPod {
        pod: Named,
        address: IpAddr,
        /// Object that holds the address.
        holder: Named,
    },
    /// There is no address, or there are too many.
    #[error("pod {pod} is announced with {count} addresses: 1 to {most} are taken")]
    Addresses {
        pod: Named,
        /// Number of announced addresses.
        count: usize,
        /// Maximum number of addresses.
        most: usize,
    },
    /// Too much waits for the cluster to confirm it.
    #[error("{count} pods {of} wait for their status, which is as many as may: ask again")]
    TooMany {
        /// Number of unconfirmed pods.
        count: usize,
        /// Of one node, or of all.
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

    /// In one word, as metrics count it.
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
