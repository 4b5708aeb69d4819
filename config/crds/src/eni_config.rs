//! ENIConfig: subnet and security groups of secondary ENIs.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// ENIConfigSpec defines the secondary ENIs of the nodes that refer to it.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "crd.k8s.amazonaws.com",
    version = "v1alpha1",
    kind = "ENIConfig",
    root = "EniConfig",
    plural = "eniconfigs",
    singular = "eniconfig",
    status = "EniConfigStatus",
    doc = "ENIConfig defines subnet and security groups of secondary ENIs, for custom networking",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct EniConfigSpec {
    /// ID of the ENIs' subnet.
    pub subnet: String,
    /// IDs of the ENIs' security groups. The default is the groups of the node's primary ENI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub security_groups: Option<Vec<String>>,
}

/// ENIConfigStatus is empty.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EniConfigStatus {}
