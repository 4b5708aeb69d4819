//! All nodes at a glance: how each pool is, and what is wrong where.

mod agent;
mod judge;
mod problem;
mod text;

use crate::objects::{DaemonSet, Node, Pod};
use serde::Serialize;
use std::collections::BTreeMap;
use view_node::{Budget, Limits, Pool, Severity, Status, Trouble, WaitingAdd};

pub use agent::{Agent, AgentLine, AgentState};
pub use text::Width;

/// What the API server and the daemons said.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// The namespace of our own objects.
    pub namespace: String,
    /// All nodes, or those that are asked for.
    pub nodes: Vec<Node>,
    /// Our DaemonSets; none where they may not be read.
    pub daemon_sets: Option<Vec<DaemonSet>>,
    /// Their pods.
    pub pods: Vec<Pod>,
    /// What each of them said, by the pod's name.
    pub heard: BTreeMap<String, Heard>,
    /// The policy controller's replicas.
    pub controllers: Vec<Pod>,
    /// The Lease of the replica that writes status.
    pub lease: Option<Lease>,
    /// What the controller knows of the nodes' agents, by node; none where it does not say.
    pub agents: Option<BTreeMap<String, Agent>>,
    /// What could not be asked: told, and nothing is concluded from it.
    pub unasked: Vec<String>,
}

/// What came of asking a daemon.
#[derive(Clone, Debug)]
pub enum Heard {
    /// Its document.
    Said(Box<Status>),
    /// Nothing, and why.
    Silent(String),
}

/// How a Lease stands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// Who holds it.
    pub holder: Option<String>,
    /// When it was renewed.
    pub renewed_seconds_ago: u64,
    /// How long it holds.
    pub lasts_seconds: u64,
}

/// All nodes at one moment.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Glance {
    /// Each node, by name.
    pub nodes: Vec<NodeLine>,
    /// What is no node's.
    pub troubles: Vec<Trouble>,
    /// What could not be asked.
    pub unasked: Vec<String>,
}

/// One node.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLine {
    /// Its name.
    pub node: String,
    /// Whether Kubernetes has it as ready.
    pub ready: bool,
    /// Why there is no daemon, where there need not be one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<String>,
    /// The daemon's pod.
    pub pod: Option<String>,
    /// The daemon's version, if it answered.
    pub version: Option<String>,
    /// The pool, if it answered.
    pub pool: Option<Pool>,
    /// What the instance type allows, if it is known.
    pub limits: Option<Limits>,
    /// The policy agent, where the node has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentLine>,
    /// The ADDs that have waited longest.
    pub waiting_adds: Vec<WaitingAdd>,
    /// How often EC2 may be called.
    pub budgets: Vec<Budget>,
    /// What is wrong, worst first.
    pub troubles: Vec<Trouble>,
}

impl Glance {
    /// What follows from what was said.
    pub fn of(cluster: &Cluster) -> Self {
        let mut nodes: Vec<NodeLine> =
            cluster.nodes.iter().map(|node| judge::node(node, cluster)).collect();
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        Self { nodes, troubles: judge::cluster(cluster), unasked: cluster.unasked.clone() }
    }

    /// Whether nobody has to do anything, as far as everything could be asked.
    pub fn is_good(&self) -> bool {
        let mut troubles = self.nodes.iter().flat_map(|node| &node.troubles).chain(&self.troubles);
        troubles.all(|trouble| trouble.severity != Severity::Trouble)
    }
}

#[cfg(test)]
mod tests;
