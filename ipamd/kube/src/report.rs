//! What people should know of the work with the API server.

use std::{collections::BTreeMap, fmt};

/// One thing that is done with Kubernetes. Each stands and falls alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Concern {
    /// Finding address and credentials of the API server.
    Api,
    /// Watching this node's pods.
    Pods,
    /// Watching the node.
    Node,
    /// Watching ENIConfigs.
    EniConfig,
    /// Watching the CNINode and asking for a trunk.
    CniNode,
    /// The annotation `vpc.amazonaws.com/pod-eni` of a pod.
    Branch,
    /// Writing events.
    Events,
    /// The annotation `vpc.amazonaws.com/pod-ips`.
    PodIps,
    /// The node condition `IPPoolHealthy`.
    Condition,
    /// Taking off the startup taint.
    Taint,
    /// The election of a collector.
    Election,
}

impl Concern {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Api,
        Self::Pods,
        Self::Node,
        Self::EniConfig,
        Self::CniNode,
        Self::Branch,
        Self::Events,
        Self::PodIps,
        Self::Condition,
        Self::Taint,
        Self::Election,
    ];

    /// The word for metrics labels and log fields.
    pub fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Pods => "pods",
            Self::Node => "node",
            Self::EniConfig => "eni_config",
            Self::CniNode => "cni_node",
            Self::Branch => "branch",
            Self::Events => "events",
            Self::PodIps => "pod_ips",
            Self::Condition => "condition",
            Self::Taint => "taint",
            Self::Election => "election",
        }
    }

    /// Whether it waits for the node rather than for the API server: nothing is wrong while there is nothing to
    /// say.
    pub fn waits_for_the_node(self) -> bool {
        matches!(self, Self::Events | Self::PodIps | Self::Condition | Self::Taint)
    }
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// How loud a report is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Loudness {
    /// It works, or works again.
    Info,
    /// It does not; the rest goes on.
    Warning,
}

/// A change that is worth a log line: something fails that had not, fails otherwise, or works again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// How loud.
    pub loudness: Loudness,
    /// What of the work it is about.
    pub concern: Concern,
    /// The object: a resource, a pod, a node.
    pub object: String,
    /// What happened, with its cause.
    pub cause: String,
    /// What a person can do; empty if nothing need be done.
    pub next_step: String,
}

/// How one concern stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing has come of it yet; the text says what is waited for.
    Waiting(String),
    /// It works.
    Good,
    /// It fails; it is tried again.
    Failing(String),
}

/// How everything that was asked for stands. What was not asked for is not in it.
pub type Standings = BTreeMap<Concern, Standing>;
