//! The options of the connection to Kubernetes.

use std::{path::PathBuf, time::Duration};

/// Cluster, node and enabled features. A feature that is off neither watches nor writes, and needs no permission.
#[derive(Clone, Debug)]
pub struct Options {
    pub node: String,
    /// The name of the daemon's own pod, to which events about the daemon are attached. Without it they are attached
    /// to the node.
    pub daemon_pod: Option<String>,
    /// The daemon's namespace; `None` is that of its service account.
    pub namespace: Option<String>,
    /// A kubeconfig; `None` is the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// The API server's URL or host, instead of the one in the environment or kubeconfig.
    pub endpoint: Option<String>,
    /// Watch this node's pods: for pods that will need an address, [`Needs`](crate::Needs), branch ENIs, annotations
    /// and the UIDs in events.
    pub pods: bool,
    /// Pods may use branch ENIs (`ENABLE_POD_ENI`). Their annotations are read, and the CNINode is watched so that a
    /// trunk ENI can be requested.
    pub branches: bool,
    /// The keys of the node that name its ENIConfig; `None` does not watch ENIConfigs.
    pub eni_config: Option<EniConfigKeys>,
    /// Write pod addresses to annotations (`ANNOTATE_POD_IP`).
    pub annotate_pod_ip: bool,
    /// The key of a taint that is removed from the node as soon as the pool is ready.
    pub startup_taint: Option<String>,
    /// Write the node condition `IPPoolHealthy`.
    pub condition: bool,
    /// The condition is also written at this interval, so that its age shows that the daemon lives.
    pub condition_beat: Duration,
    /// The shortest time between two writes of the same event about the same pod. Repeats in between are counted.
    pub event_spacing: Duration,
    /// The election of the collector of leaked ENIs; `None` if this daemon does not take part.
    pub election: Option<Election>,
    /// Write the replicas of the controller for the agent; `None` if the node has no agent.
    pub replicas: Option<Replicas>,
}

/// The replicas of the policy controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replicas {
    /// Namespace and name of their Service.
    pub service: (String, String),
    /// The file with their addresses.
    pub file: PathBuf,
}

impl Options {
    /// Only the node itself.
    pub fn of_node(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            daemon_pod: None,
            namespace: None,
            kubeconfig: None,
            endpoint: None,
            pods: false,
            branches: false,
            eni_config: None,
            annotate_pod_ip: false,
            startup_taint: None,
            condition: false,
            // As often as the kubelet's heartbeat without changes.
            condition_beat: Duration::from_secs(300),
            event_spacing: Duration::from_secs(20),
            election: None,
            replicas: None,
        }
    }
}

/// The keys that name the node's ENIConfig. The label `vpc.amazonaws.com/externalEniConfig` has priority over
/// both, and `default` is the name if none exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EniConfigKeys {
    /// The node's annotation (`ENI_CONFIG_ANNOTATION_DEF`).
    pub annotation: String,
    /// The node's label (`ENI_CONFIG_LABEL_DEF`).
    pub label: String,
}

impl Default for EniConfigKeys {
    fn default() -> Self {
        let key = "k8s.amazonaws.com/eniConfig".to_owned();
        Self { annotation: key.clone(), label: key }
    }
}

/// An election: one Lease for the cluster and this node group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Election {
    /// The group of nodes that elects one collector.
    pub node_group: String,
    /// Unique per process of the cluster.
    pub identity: String,
    pub pace: LeasePace,
}

/// The timing of a Lease. Sound only if `lease` > `give_up` > `renew`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePace {
    /// The time after the last renewal for which others do not take the Lease. Whole seconds.
    pub lease: Duration,
    /// The holder steps down if no renewal that it sent within this time has succeeded.
    pub give_up: Duration,
    /// The holder's interval of renewals.
    pub renew: Duration,
    /// The interval at which others read the Lease. Each adds up to a half, at random.
    pub look: Duration,
}

impl Default for LeasePace {
    /// Slow: a thousand nodes read one Lease, and a leaked ENI can wait.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(180),
            give_up: Duration::from_secs(120),
            renew: Duration::from_secs(40),
            look: Duration::from_secs(90),
        }
    }
}
