//! What Kubernetes tells the pool.

use config_model::{EniId, Mac, PodName, SecurityGroupId, SubnetId};
use ipnet::{Ipv4Net, Ipv6Net};
use std::{
    collections::BTreeSet,
    net::{Ipv4Addr, Ipv6Addr},
};

/// A fact that Kubernetes tells. Each replaces the earlier one of its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterFact {
    /// The node's `.status.capacity.pods`.
    MaxPods(u32),
    /// Whether the node takes new pods: no taint `node.kubernetes.io/unschedulable:NoSchedule`.
    Schedulable(bool),
    /// The node's ENIConfig.
    EniConfig(EniConfig),
    /// The pods that are bound to this node and want an address of the pool: not on the host's
    /// network, not at their end, without an address so far.
    Coming(BTreeSet<PodName>),
    /// A pod's annotation `vpc.amazonaws.com/pod-eni`; `None` when pod or annotation is gone.
    Branch {
        /// The pod.
        pod: PodName,
        /// Its branch ENI.
        branch: Option<BranchEni>,
    },
    /// Whether this daemon is the elected collector of forgotten ENIs.
    Collector(bool),
}

/// The node's ENIConfig: where and how ENIs are made with custom networking.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum EniConfig {
    /// Not read yet.
    #[default]
    Unknown,
    /// There is none that could be used.
    Missing {
        /// The name that label or annotation say.
        name: String,
        /// Why it cannot be used.
        why: String,
    },
    /// Found.
    Found {
        /// Its name.
        name: String,
        /// The subnet of new ENIs.
        subnet: SubnetId,
        /// Their security groups; empty means those of the primary ENI.
        groups: Vec<SecurityGroupId>,
    },
}

/// A branch ENI, as the resource controller announces it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchEni {
    /// The ENI.
    pub eni: EniId,
    /// Its MAC address.
    pub mac: Mac,
    /// Its IPv4 address: the pod's.
    pub address: Option<Ipv4Addr>,
    /// Its IPv6 address: the pod's.
    pub address_v6: Option<Ipv6Addr>,
    /// Its VLAN on the trunk.
    pub vlan: u16,
    /// The subnet's IPv4 addresses.
    pub subnet_cidr: Option<Ipv4Net>,
    /// The subnet's IPv6 addresses.
    pub subnet_cidr_v6: Option<Ipv6Net>,
}
