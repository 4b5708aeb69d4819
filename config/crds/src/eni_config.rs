//! ENIConfig: where and how secondary ENIs are made.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// ENIConfigSpec says how the ENIs of the nodes that name it are made.
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
    doc = "ENIConfig is where and how secondary ENIs are made with custom networking",
    derive = "PartialEq"
)]
#[serde(rename_all = "camelCase")]
pub struct EniConfigSpec {
    /// The subnet of the ENIs, by id.
    pub subnet: String,
    /// Their security groups, by id; none means those of the node's primary ENI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub security_groups: Option<Vec<String>>,
}

/// ENIConfigStatus has nothing in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EniConfigStatus {}
