//! What the daemon wants of Kubernetes.

use std::{path::PathBuf, time::Duration};

/// Which cluster, which node, and what of it is wanted. What is not wanted is neither watched nor
/// written, and needs no right.
#[derive(Clone, Debug)]
pub struct Options {
    /// The node's name.
    pub node: String,
    /// The name of the daemon's own pod: events about the daemon itself are attached to it. Without
    /// one they are attached to the node.
    pub daemon_pod: Option<String>,
    /// The daemon's namespace; `None` is that of its service account.
    pub namespace: Option<String>,
    /// A kubeconfig; `None` is the service account of the pod.
    pub kubeconfig: Option<PathBuf>,
    /// The API server's URL or host, instead of the one that the environment or kubeconfig say.
    pub endpoint: Option<String>,
    /// Whether this node's pods are watched: for pods that are coming, for [`Needs`](crate::Needs),
    /// branch ENIs, annotations and the ids in events.
    pub pods: bool,
    /// Whether pods may have branch ENIs (`ENABLE_POD_ENI`): their annotations are told, and the
    /// CNINode is watched so that a trunk can be asked for.
    pub branches: bool,
    /// Whether ENIConfigs are watched, and which keys of the node name its own.
    pub eni_config: Option<EniConfigKeys>,
    /// Whether pods' addresses are written to their annotations (`ANNOTATE_POD_IP`).
    pub annotate_pod_ip: bool,
    /// The key of a taint that is taken off the node as soon as the pool can serve.
    pub startup_taint: Option<String>,
    /// Whether the node gets the condition `IPPoolHealthy`.
    pub condition: bool,
    /// It is written this often though nothing changes, so that its age tells that we live.
    pub condition_beat: Duration,
    /// The same event about the same pod is written this often at most; what comes between is
    /// counted.
    pub event_spacing: Duration,
    /// Whether this daemon stands for election as collector of forgotten ENIs.
    pub election: Option<Election>,
}

impl Options {
    /// Nothing but the node itself.
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
            // As often as kubelet tells when nothing changes.
            condition_beat: Duration::from_secs(300),
            event_spacing: Duration::from_secs(20),
            election: None,
        }
    }
}

/// Where the name of the node's ENIConfig stands. The label `vpc.amazonaws.com/externalEniConfig`
/// goes before both, and the name `default` counts when none of them is there.
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
    /// Who stands for election: different in each process of the cluster.
    pub identity: String,
    /// How the lease is held.
    pub pace: LeasePace,
}

/// How a Lease is held. Sound only if `lease` > `give_up` > `renew`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeasePace {
    /// How long others leave the lease alone after it was last renewed. Whole seconds.
    pub lease: Duration,
    /// The holder steps down when no renewal that it sent within this time has succeeded.
    pub give_up: Duration,
    /// How often the holder renews.
    pub renew: Duration,
    /// How often others look. Each adds up to a half, at random.
    pub look: Duration,
}

impl Default for LeasePace {
    /// Slow: a thousand nodes look at one Lease, and a forgotten ENI can wait.
    fn default() -> Self {
        Self {
            lease: Duration::from_secs(180),
            give_up: Duration::from_secs(120),
            renew: Duration::from_secs(40),
            look: Duration::from_secs(90),
        }
    }
}
