//! The state of the connection, for people.

use std::{collections::BTreeMap, fmt};

/// A task of the connection. Each works or fails independently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Concern {
    /// The search for address and credentials of the API server.
    Api,
    /// The watch of this node's pods.
    Pods,
    /// The watch of the node.
    Node,
    /// The watch of the controller's replicas, and their file.
    Replicas,
    /// The watch of Services, while the agent follows no replica.
    Services,
    /// The watch of EndpointSlices, while the agent follows no replica.
    EndpointSlices,
    /// The watch of ENIConfigs.
    EniConfig,
    /// The watch of the CNINode, and the request for a trunk ENI.
    CniNode,
    /// The annotation `vpc.amazonaws.com/pod-eni` of a pod.
    Branch,
    /// Writes of events.
    Events,
    /// The annotation `vpc.amazonaws.com/pod-ips`.
    PodIps,
    /// The node condition `IPPoolHealthy`.
    Condition,
    /// The removal of the startup taint.
    Taint,
    /// The election of a collector.
    Election,
}

impl Concern {
    pub const ALL: [Self; 14] = [
        Self::Api,
        Self::Pods,
        Self::Node,
        Self::Replicas,
        Self::Services,
        Self::EndpointSlices,
        Self::EniConfig,
        Self::CniNode,
        Self::Branch,
        Self::Events,
        Self::PodIps,
        Self::Condition,
        Self::Taint,
        Self::Election,
    ];

    /// The name in metric labels and log fields.
    pub fn name(self) -> &'static str {
        match self {
            Self::Api => "api",
            Self::Pods => "pods",
            Self::Node => "node",
            Self::Replicas => "replicas",
            Self::Services => "services",
            Self::EndpointSlices => "endpoint_slices",
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

    /// Returns whether the task may wait for the node rather than for the API server, which is not a failure.
    pub fn waits_for_the_node(self) -> bool {
        matches!(self, Self::Events | Self::PodIps | Self::Condition | Self::Taint)
    }
}

impl fmt::Display for Concern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The log level of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReportLevel {
    /// The task works, or works again.
    Info,
    /// The task fails; other tasks continue.
    Warning,
}

/// A change for the log: a first failure, another failure, or a recovery.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    pub level: ReportLevel,
    pub concern: Concern,
    /// A resource, a pod or a node.
    pub object: String,
    /// The event with its cause.
    pub cause: String,
    /// The next step for a person; empty if none is needed.
    pub next_step: String,
}

/// The state of one concern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConcernState {
    /// No result yet; the text names the missing event.
    Waiting(String),
    Good,
    /// The last attempt failed; it is retried.
    Failing(String),
}

/// The states of all enabled concerns.
pub type ConcernStates = BTreeMap<Concern, ConcernState>;
