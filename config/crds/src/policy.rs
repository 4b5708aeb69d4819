//! The kinds of network policy: upstream's, Antrea's and AWS's.
//!
//! Each has its owner's schema, field by field, so that an object that an API server accepted with the owner's
//! definition is valid with ours. The schema has no requirement beyond the owner's schema and webhook.
//! Refusals of such a webhook are rules in CEL, as far as one object is sufficient and the API server's estimate of
//! costs allows. `ferrule policy lint` checks that names of rules differ, and it checks exceptions within blocks.

#![expect(clippy::duplicated_attributes, reason = "each printer column repeats its keys")]

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
