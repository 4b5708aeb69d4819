//! NetworkPolicyRealization: how far a NetworkPolicy is enforced, as its own kind has no status.

#![expect(clippy::duplicated_attributes, reason = "each column has its type, and so on")]

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// NetworkPolicyRealizationSpec says nothing: the object is about the NetworkPolicy of its name.
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
        description = "How many nodes are to enforce the NetworkPolicy",
        json_path = ".status.desiredNodesRealized"
    ),
    printcolumn(
        name = "Current Nodes",
        type_ = "integer",
        format = "int32",
        description = "How many nodes enforce it",
        json_path = ".status.currentNodesRealized"
    ),
    printcolumn(name = "Message", type_ = "string", json_path = ".status.message", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp"),
    doc = "NetworkPolicyRealization is there while the NetworkPolicy of its name is not in force on all its nodes",
    derive = "PartialEq"
)]
pub struct NetworkPolicyRealizationSpec {}

/// NetworkPolicyRealizationStatus is how far a NetworkPolicy is enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyRealizationStatus {
    /// Realizing or Failed.
    pub phase: String,
    /// The generation of the NetworkPolicy that this is about.
    pub observed_generation: i64,
    /// How many nodes enforce it.
    pub current_nodes_realized: i32,
    /// How many nodes are to enforce it.
    pub desired_nodes_realized: i32,
    /// How many nodes cannot enforce it.
    pub failing_nodes: i32,
    /// Some of these, and why they cannot.
    #[schemars(length(max = 10), extend("x-kubernetes-list-type" = "atomic"))]
    pub failures: Vec<RealizationFailure>,
    /// How many nodes have not reported.
    pub silent_nodes: i32,
    /// All of it, for people.
    pub message: String,
}

/// RealizationFailure is why one node cannot enforce a NetworkPolicy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RealizationFailure {
    /// The node's name.
    pub node: String,
    /// What it says.
    pub why: String,
}
