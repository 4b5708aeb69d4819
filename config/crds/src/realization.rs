//! NetworkPolicyRealization: the progress of a NetworkPolicy on its nodes, because a NetworkPolicy has no status.

#![expect(clippy::duplicated_attributes, reason = "each printer column repeats its keys")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// NetworkPolicyRealizationSpec is empty. The object describes the NetworkPolicy with the same name.
#[derive(
    CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema,
)]
#[kube(
    group = "policy.ferrule.io",
    version = "v1alpha1",
    kind = "NetworkPolicyRealization",
    plural = "networkpolicyrealizations",
    singular = "networkpolicyrealization",
    shortname = "npr",
    namespaced,
    status = "NetworkPolicyRealizationStatus",
    printcolumn(name = "Phase", type_ = "string", json_path = ".status.phase"),
    printcolumn(
        name = "Desired Nodes",
        type_ = "integer",
        format = "int32",
        description = "Number of nodes that have to enforce the NetworkPolicy",
        json_path = ".status.desiredNodesRealized"
    ),
    printcolumn(
        name = "Current Nodes",
        type_ = "integer",
        format = "int32",
        description = "Number of nodes that enforce the NetworkPolicy",
        json_path = ".status.currentNodesRealized"
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "NetworkPolicyRealization exists while the NetworkPolicy with its name is not in force on all its nodes",
    derive = "PartialEq"
)]
pub struct NetworkPolicyRealizationSpec {}

/// NetworkPolicyRealizationStatus is the progress of a NetworkPolicy on its nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyRealizationStatus {
    /// Realizing or Failed.
    pub phase: String,
    /// Generation of the NetworkPolicy that this status describes.
    pub observed_generation: i64,
    /// Number of nodes that enforce the NetworkPolicy.
    pub current_nodes_realized: i32,
    /// Number of nodes that have to enforce the NetworkPolicy.
    pub desired_nodes_realized: i32,
    /// Number of nodes that cannot enforce the NetworkPolicy.
    pub failing_nodes: i32,
    /// At most ten failing nodes, with the reason.
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub failures: Vec<RealizationFailure>,
    /// Number of nodes that have not reported.
    pub silent_nodes: i32,
    /// Summary for users.
    pub message: String,
}

/// RealizationFailure is the reason why a node cannot enforce a NetworkPolicy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RealizationFailure {
    /// The node's name.
    pub node: String,
    /// The node's error.
    pub why: String,
}
