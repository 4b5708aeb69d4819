//! `crd.antrea.io/v1beta1`: Tier, ClusterNetworkPolicy, NetworkPolicy, ClusterGroup, Group.

mod applied_to;
mod group;
mod peer;
mod policy;
mod rule;
mod selector;
mod tier;

pub use group::{
    AntreaClusterGroup, AntreaClusterGroupSpec, AntreaGroup, AntreaGroupSpec, GroupStatus,
};
pub use policy::{
    AntreaClusterNetworkPolicy, AntreaClusterNetworkPolicySpec, AntreaNetworkPolicy,
    AntreaNetworkPolicySpec, RealizationStatus,
};
pub use tier::{AntreaTier, AntreaTierSpec};
