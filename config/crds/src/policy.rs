//! The kinds of network policy: upstream's, Antrea's and AWS's.
//!
//! Each has its owner's schema, field by field, so that what an API server took from their hands it takes
//! from ours: nothing is asked for that neither the owner's schema nor their webhook asks. What such a
//! webhook refuses is said here in CEL, as far as one object tells it and the API server's estimate of
//! costs lets it; names of rules that must differ, and holes within blocks of addresses, are `ferrule
//! policy lint`'s.

#![expect(clippy::duplicated_attributes, reason = "each column has its type, and so on")]

mod antrea;
mod aws;
mod cluster;
mod parts;

pub use antrea::{
    AntreaClusterGroup, AntreaClusterGroupSpec, AntreaClusterNetworkPolicy,
    AntreaClusterNetworkPolicySpec, AntreaGroup, AntreaGroupSpec, AntreaNetworkPolicy,
    AntreaNetworkPolicySpec, AntreaTier, AntreaTierSpec, GroupStatus, RealizationStatus,
};
pub use aws::{
    ApplicationNetworkPolicy, ApplicationNetworkPolicySpec, AwsClusterNetworkPolicy,
    AwsClusterNetworkPolicySpec,
};
pub use cluster::{ClusterNetworkPolicy, ClusterNetworkPolicySpec};
pub use parts::{Condition, PolicyStatus};
