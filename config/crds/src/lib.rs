//! Custom resources and access rights in Kubernetes, and the manifests of both.
//!
//! [`EniConfig`] and [`CniNode`] have the schema of amazon-vpc-cni and the VPC resource controller, so that existing
//! objects stay valid. The kinds of network policy ([`policy_crds`]) also have the schemas of their owners.
//! [`NetworkPolicyRealization`] is our own. [`manifests`] writes them all as files under `config/manifests`, with the
//! rights that the daemon and the policy controller need. `cargo xtask generate` keeps those up to date.
//! This crate sends no request to an API server.

mod admission;
mod cni_node;
mod eni_config;
mod manifest;
mod policy;
mod realization;
mod rights;

pub use cni_node::{
    BranchInterface, CniNode, CniNodeSpec, CniNodeStatus, Feature, ManagedBy, TrunkInterface,
};
pub use eni_config::{EniConfig, EniConfigSpec, EniConfigStatus};
pub use manifest::{chart, cni_node_crd, eni_config_crd, manifests, policy_crds, realization_crd};
pub use policy::{
    AntreaClusterGroup, AntreaClusterGroupSpec, AntreaClusterNetworkPolicy,
    AntreaClusterNetworkPolicySpec, AntreaGroup, AntreaGroupSpec, AntreaNetworkPolicy,
    AntreaNetworkPolicySpec, AntreaTier, AntreaTierSpec, ApplicationNetworkPolicy,
    ApplicationNetworkPolicySpec, AwsClusterNetworkPolicy, AwsClusterNetworkPolicySpec,
    ClusterNetworkPolicy, ClusterNetworkPolicySpec, Condition, GroupStatus, PolicyStatus,
    RealizationStatus,
};
pub use realization::{
    NetworkPolicyRealization, NetworkPolicyRealizationSpec, NetworkPolicyRealizationStatus,
    RealizationFailure,
};
pub use rights::{
    AGENT_ACCOUNT, CLUSTER_RIGHTS, CONTROLLER_ACCOUNT, CONTROLLER_CLUSTER_RIGHTS,
    CONTROLLER_RIGHTS_IN_NAMESPACE, NAMESPACE, RIGHTS_IN_NAMESPACE, Right, SERVICE_ACCOUNT, VIEW,
    VIEW_CLUSTER_RIGHTS, VIEW_RIGHTS_IN_NAMESPACE, VIEWER, VIEWER_CLUSTER_RIGHTS,
    VIEWER_RIGHTS_IN_NAMESPACE, agent_rbac, controller_objects, controller_rbac, rbac,
    view_objects, view_rbac, viewer_rbac,
};
