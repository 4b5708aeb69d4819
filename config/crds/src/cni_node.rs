//! CNINode: messages between the daemon and the VPC resource controller about a node.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// CNINodeSpec is the daemon's request to the VPC resource controller.
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
    doc = "CNINode is the exchange between the daemon and the VPC resource controller about a node",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct CniNodeSpec {
    /// Functions that the controller performs for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Feature>")]
    pub features: Option<Vec<Feature>>,
    /// Controller that owns this object and its status. The default is vpc-resource-controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "ManagedBy")]
    pub managed_by: Option<ManagedBy>,
    /// Additional tags for all ENIs that the controller and the daemon create for the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub tags: Option<BTreeMap<String, String>>,
}

/// Feature is one function of the controller for the node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Feature {
    /// Name of the feature: SecurityGroupsForPods or CustomNetworking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub name: Option<String>,
    /// Argument of the feature, such as the name of an ENIConfig.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub value: Option<String>,
}

impl Feature {
    /// The controller attaches a trunk ENI to the node.
    pub const SECURITY_GROUPS_FOR_PODS: &'static str = "SecurityGroupsForPods";
    /// The controller creates the trunk according to the ENIConfig that the value names.
    pub const CUSTOM_NETWORKING: &'static str = "CustomNetworking";
}

/// ManagedBy names the controller that owns a CNINode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ManagedBy {
    /// The controller of the EKS control plane, for pods with branch ENIs.
    #[serde(rename = "vpc-resource-controller")]
    VpcResourceController,
    /// The controller of EKS Auto Mode; other controllers ignore the object.
    #[serde(rename = "eks-auto-mode")]
    EksAutoMode,
}

/// CNINodeStatus is the result of the controller.
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
    /// Device number of the trunk on the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "i32")]
    pub device_index: Option<i32>,
    /// ID of the trunk ENI.
    #[schemars(length(min = 1))]
    pub id: String,
    /// MAC address of the trunk ENI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub mac_address: Option<String>,
}

/// BranchInterface is a branch ENI of the trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BranchInterface {
    /// ID of the association of branch and trunk.
    #[serde(rename = "associationID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub association_id: Option<String>,
    /// ID of the branch ENI.
    #[schemars(length(min = 1))]
    pub id: String,
    /// IPv4 addresses and prefixes of the branch, as CIDRs.
    #[serde(rename = "ipv4CIDRs", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", extend("x-kubernetes-list-type" = "atomic"))]
    pub ipv4_cidrs: Option<Vec<String>>,
    /// IPv6 addresses and prefixes of the branch, as CIDRs.
    #[serde(rename = "ipv6CIDRs", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", extend("x-kubernetes-list-type" = "atomic"))]
    pub ipv6_cidrs: Option<Vec<String>>,
    /// MAC address of the branch ENI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub mac_address: Option<String>,
    /// IDs of the branch's security groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>", extend("x-kubernetes-list-type" = "atomic"))]
    pub security_groups: Option<Vec<String>>,
    /// IPv4 CIDR of the branch's subnet.
    #[serde(rename = "subnetCIDR", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub subnet_cidr: Option<String>,
    /// IPv6 CIDR of the branch's subnet.
    #[serde(rename = "subnetV6CIDR", default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub subnet_v6_cidr: Option<String>,
    /// VLAN of the branch on the trunk.
    #[serde(rename = "vlanID")]
    pub vlan_id: i32,
}
