//! CNINode: messages between the daemon and the VPC resource controller about a node.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// CNINodeSpec is what the daemon asks of the controller, and what both do to the node's ENIs.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "vpcresources.k8s.aws",
    version = "v1alpha1",
    kind = "CNINode",
    root = "CniNode",
    plural = "cninodes",
    singular = "cninode",
    shortname = "cnd",
    status = "CniNodeStatus",
    selectable = ".spec.managedBy",
    printcolumn(
        name = "Features",
        type_ = "string",
        description = "The features delegated to VPC resource controller",
        json_path = ".spec.features"
    ),
    doc = "CNINode is what the daemon and the VPC resource controller tell each other about a node",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct CniNodeSpec {
    /// What the controller is to do for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Feature>")]
    pub features: Option<Vec<Feature>>,
    /// The controller that owns this object and its status; vpc-resource-controller if it is not
    /// said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ManagedBy")]
    pub managed_by: Option<ManagedBy>,
    /// More tags for all ENIs of the node that controller and daemon make.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub tags: Option<BTreeMap<String, String>>,
}

/// Feature is one thing that the controller is to do for the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Feature {
    /// Which, such as SecurityGroupsForPods or CustomNetworking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub name: Option<String>,
    /// What belongs to it, such as the name of an ENIConfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub value: Option<String>,
}

impl Feature {
    /// The controller gives the node a trunk.
    pub const SECURITY_GROUPS_FOR_PODS: &'static str = "SecurityGroupsForPods";
    /// The trunk is made by the ENIConfig that the value names.
    pub const CUSTOM_NETWORKING: &'static str = "CustomNetworking";
}

/// ManagedBy is a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ManagedBy {
    /// The VPC resource controller.
    #[serde(rename = "vpc-resource-controller")]
    VpcResourceController,
    /// EKS Auto Mode.
    #[serde(rename = "eks-auto-mode")]
    EksAutoMode,
}

/// CNINodeStatus is what the controller made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CniNodeStatus {
    /// The node's trunk ENI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TrunkInterface")]
    pub trunk_interface: Option<TrunkInterface>,
}

/// TrunkInterface is the trunk ENI and its branches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrunkInterface {
    /// The branch ENIs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(
        with = "Vec<BranchInterface>",
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["id"])
    )]
    pub branches: Option<Vec<BranchInterface>>,
    /// The trunk's place on the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub device_index: Option<i32>,
    /// The trunk, by id.
    #[schemars(length(min = 1))]
    pub id: String,
    /// Its MAC address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub mac_address: Option<String>,
}

/// BranchInterface is a branch ENI of the trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchInterface {
    /// The association of branch and trunk, by id.
    #[serde(rename = "associationID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub association_id: Option<String>,
    /// The branch, by id.
    #[schemars(length(min = 1))]
    pub id: String,
    /// Its IPv4 addresses and prefixes as CIDRs.
    #[serde(rename = "ipv4CIDRs", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", extend("x-kubernetes-list-type" = "atomic"))]
    pub ipv4_cidrs: Option<Vec<String>>,
    /// Its IPv6 addresses and prefixes as CIDRs.
    #[serde(rename = "ipv6CIDRs", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", extend("x-kubernetes-list-type" = "atomic"))]
    pub ipv6_cidrs: Option<Vec<String>>,
    /// Its MAC address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub mac_address: Option<String>,
    /// Its security groups, by id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", extend("x-kubernetes-list-type" = "atomic"))]
    pub security_groups: Option<Vec<String>>,
    /// Its subnet's IPv4 addresses.
    #[serde(rename = "subnetCIDR", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub subnet_cidr: Option<String>,
    /// Its subnet's IPv6 addresses.
    #[serde(rename = "subnetV6CIDR", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub subnet_v6_cidr: Option<String>,
    /// Its VLAN on the trunk.
    #[serde(rename = "vlanID")]
    pub vlan_id: i32,
}
