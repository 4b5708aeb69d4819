//! The overview of all nodes: the state of each pool, and the problems.

mod agent;
mod judge;
pub(crate) mod problem;
mod summary;
mod text;

use crate::{
    objects::{DaemonSet, Node, Pod},
    subnets::{SubnetState, subnets},
};
use serde::Serialize;
use std::collections::BTreeMap;
use view_node::{Budget, Limits, Pool, Severity, Status, Trouble, WaitingAdd};

pub use agent::{Agent, AgentLine, AgentState};
pub use summary::Summary;
pub use text::Width;
pub(crate) use text::{add_lines, many};

/// The answers of the API server and the daemons.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    /// Ferrule's namespace.
    pub namespace: String,
    /// All nodes, or the nodes that the user named.
    pub nodes: Vec<Node>,
    /// Ferrule's DaemonSets; `None` if they may not be read.
    pub daemon_sets: Option<Vec<DaemonSet>>,
    pub pods: Vec<Pod>,
    /// The answers of the daemons by pod name.
    pub answers: BTreeMap<String, DaemonAnswer>,
    /// The controller's replicas.
    pub controllers: Vec<Pod>,
    /// The Lease of the controller replica that writes status.
    pub lease: Option<Lease>,
    /// The controller's data about agents, by node; `None` if it does not answer.
    pub agents: Option<BTreeMap<String, Agent>>,
    /// Failed calls. They are shown, and nothing is concluded from them.
    pub unasked: Vec<String>,
}

/// The result of a call to a daemon.
#[derive(Clone, Debug)]
pub enum DaemonAnswer {
    Status(Box<Status>),
    /// No answer, with the reason.
    Failed(String),
}

impl DaemonAnswer {
    fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            Self::Failed(_) => None,
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    pub holder: Option<String>,
    pub renewed_seconds_ago: u64,
    pub lasts_seconds: u64,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    pub summary: Summary,
    /// Sorted by name.
    pub nodes: Vec<NodeLine>,
    /// The subnets that pods use or may use, as far as daemons answered.
    pub subnets: Vec<SubnetState>,
    pub troubles: Vec<Trouble>,
    pub unasked: Vec<String>,
}

#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeLine {
    pub node: String,
    /// The condition `Ready` of the node.
    pub ready: bool,
    /// The reason if the node should have no daemon.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub excluded: Option<String>,
    pub pod: Option<String>,
    /// `None` if the daemon did not answer.
    pub version: Option<String>,
    /// `None` if the daemon did not answer.
    pub pool: Option<Pool>,
    /// The limits of the instance type; `None` if unknown.
    pub limits: Option<Limits>,
    /// The agent; `None` if the node's pod has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<AgentLine>,
    /// The longest waiting ADDs.
    pub waiting_adds: Vec<WaitingAdd>,
    /// The budgets of EC2 calls.
    pub budgets: Vec<Budget>,
    /// The problems, worst first.
    pub troubles: Vec<Trouble>,
}

impl StatusReport {
    /// Judges the answers.
    pub fn of(cluster: &Cluster) -> Self {
        let mut nodes: Vec<NodeLine> =
            cluster.nodes.iter().map(|node| judge::node(node, cluster)).collect();
        nodes.sort_by(|a, b| a.node.cmp(&b.node));
        let answered = cluster.answers.values().filter_map(DaemonAnswer::status);
        let (subnets, filling) = subnets(
            answered.map(|it| (it.subnets.as_slice(), it.settings.as_ref(), Some(&it.pool))),
        );
        let troubles = judge::cluster(cluster).into_iter().chain(filling).collect();
        let unasked = cluster.unasked.clone();
        let mut report = Self { nodes, subnets, troubles, unasked, ..Self::default() };
        report.summary = Summary::of(&report);
        report
    }

    /// Removes notices and the nodes without trouble. The summary stays.
    pub fn only_trouble(mut self) -> Self {
        self.nodes.retain(NodeLine::has_trouble);
        let lists = self.nodes.iter_mut().map(|line| &mut line.troubles);
        for troubles in lists.chain([&mut self.troubles]) {
            troubles.retain(|trouble| trouble.severity == Severity::Trouble);
        }
        self
    }

    /// Returns true if no action is necessary, as far as all calls succeeded.
    pub fn is_good(&self) -> bool {
        self.summary.with_trouble == 0 && self.summary.cluster_troubles == 0
    }
}

#[cfg(test)]
mod tests;
