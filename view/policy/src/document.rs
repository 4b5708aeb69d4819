//! The documents of the API.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// An agent's node name, a policy's UID or a group's ID.
    pub name: String,
}

/// An agent as the controller knows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// The name is the node's name.
    pub metadata: Meta,
    /// The stream, if it is or recently was at the replica that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Stream>,
    /// The last report, if the replica that answers collects reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realized: Option<Realized>,
}

/// The state of a node's stream.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stream {
    /// True if the stream is open.
    pub follows: bool,
    /// The generation up to which everything was sent, except for pending objects.
    pub told: u64,
    /// The generation that the agent has acknowledged, except for pending objects.
    pub holds: u64,
    /// The newest generation of the replica.
    pub newest: u64,
    /// Objects that are pending or not acknowledged.
    pub owed: usize,
}

/// A node's report.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Realized {
    /// The age of the report.
    pub seconds_ago: u64,
    /// Policies in force. Without a backend, policies held.
    pub policies: usize,
    /// True if the agent has no backend, so that no policy is in force.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unenforced: bool,
    /// The resource version, by kind, up to which the cluster is in force.
    pub reached: BTreeMap<String, u64>,
    /// Policies that are not in force, by UID; at most [`FAILING`](crate::Reports::FAILING).
    pub failing: Vec<Failing>,
}

impl Realized {
    /// Returns true if the report is too old to count. Agents send a full report every ten minutes.
    pub fn is_stale(&self) -> bool {
        self.seconds_ago > STALE_SECONDS
    }
}

/// Older reports do not describe the present state.
const STALE_SECONDS: u64 = 900;

/// A policy that a node does not enforce.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failing {
    pub uid: String,
    /// The generation of the policy's spec.
    pub generation: i64,
    /// The error of the node.
    pub error: String,
}

/// A policy and its span.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// The name is the policy's UID.
    pub metadata: Meta,
    /// Kind and name as in kubectl.
    pub policy: String,
    /// The generation of the policy's spec.
    pub generation: i64,
    pub tier: u8,
    pub rules: usize,
    /// The applied-to groups.
    pub applied_to: Vec<String>,
    /// The address groups of the peers.
    pub peers: Vec<String>,
    /// Names of the nodes in the span.
    pub span: Vec<String>,
}

/// A group of pods or of Service addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The name is the group's ID.
    pub metadata: Meta,
    pub roles: Vec<String>,
    /// The members; only in a request for a single group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<Peer>>,
    /// Other ranges as CIDRs; only in a request for a single group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<String>,
    /// The addresses of a Service; only in a request for a single group.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// The reason why the group cannot be used as intended; only in a request for a single group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// Names of the nodes in the span.
    pub span: Vec<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// Empty for a node.
    pub namespace: String,
    pub name: String,
    pub node: String,
    pub addresses: Vec<String>,
}
