//! Tier.

use crate::policy::parts::holds;
use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// AntreaTierSpec is the place of a tier in the policy order.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "crd.antrea.io",
    version = "v1beta1",
    kind = "Tier",
    root = "AntreaTier",
    plural = "tiers",
    singular = "tier",
    shortname = "tr",
    printcolumn(
        name = "Priority",
        type_ = "integer",
        description = "Lower values decide first",
        json_path = ".spec.priority"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "Tier is a numbered stage in the order of Antrea's policies",
    derive = "PartialEq"
)]
#[schemars(extend("x-kubernetes-validations" = holds(&[(
    "!(self.priority in [251, 252, 254, 255])",
    "251, 252, 254 and 255 are reserved: choose a number up to 250",
)])))]
pub struct AntreaTierSpec {
    /// Place in the order. Lower values decide first.
    #[schemars(range(min = 0, max = 255))]
    pub priority: i32,
    /// Description for users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
}
