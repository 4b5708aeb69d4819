//! The documents.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What every object has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meta {
    /// An agent's node, a policy's UID, a group's id.
    pub name: String,
}

/// A node, seen from the controller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Agent {
    /// Its name is the node's.
    pub metadata: Meta,
    /// Its stream, if it is, or lately was, at the replica that answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<Stream>,
    /// What it has reported, if the replica that answers is the one that nodes report to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub realized: Option<Realized>,
}

/// How far a node has been told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stream {
    /// The stream is there now.
    pub follows: bool,
    /// The generation as of which it was told everything but what it is owed.
    pub told: u64,
    /// The same for what it says it holds.
    pub holds: u64,
    /// The replica's newest.
    pub newest: u64,
    /// How many objects the node is owed, or has not acknowledged.
    pub owed: usize,
}

/// What a node has in force.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Realized {
    /// How long ago the node reported, in seconds.
    pub seconds_ago: u64,
    /// How many policies are in force; or computed and held alone, where nothing enforces them.
    pub policies: usize,
    /// The node's agent has no backend: nothing is in force there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unenforced: bool,
    /// By kind the resource version up to which the cluster is in force.
    pub reached: BTreeMap<String, u64>,
    /// Policies that are not in force, by their UIDs; at most [`FAILING`](crate::Heard::FAILING).
    pub failing: Vec<Failing>,
}

impl Realized {
    /// Whether it is too old to count: agents tell all every ten minutes.
    pub fn is_stale(&self) -> bool {
        self.seconds_ago > STALE_SECONDS
    }
}

/// What was reported before that is not known to be so now.
const STALE_SECONDS: u64 = 900;

/// A policy that a node does not enforce.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failing {
    /// The policy's UID.
    pub uid: String,
    /// The generation of its spec.
    pub generation: i64,
    /// Why, as the node says.
    pub error: String,
}

/// A policy, and where it is needed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Policy {
    /// Its name is the policy's UID.
    pub metadata: Meta,
    /// Its kind and name, as people write them.
    pub policy: String,
    /// The generation of its spec.
    pub generation: i64,
    /// The number of its tier.
    pub tier: u8,
    /// How many rules it has.
    pub rules: usize,
    /// The groups of those whom it is about.
    pub applied_to: Vec<String>,
    /// The groups of those with whom.
    pub peers: Vec<String>,
    /// The nodes that need it.
    pub span: Vec<String>,
}

/// A group of pods, or of a Service's addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// Its name is the group's id.
    pub metadata: Meta,
    /// What policies use it for.
    pub roles: Vec<String>,
    /// Its members; of a single group alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub members: Option<Vec<Peer>>,
    /// Ranges that are in it besides, as CIDRs; of a single group alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<String>,
    /// A Service's addresses; of a single group alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub services: Vec<String>,
    /// Why it cannot be used as it was meant; of a single group alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
    /// The nodes that need it.
    pub span: Vec<String>,
}

/// A member of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Peer {
    /// The pod's namespace; empty for a node.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The node that it is bound to.
    pub node: String,
    /// Its addresses.
    pub addresses: Vec<String>,
}
