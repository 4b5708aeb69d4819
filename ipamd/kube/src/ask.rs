//! Requests of the daemon to Kubernetes.

use config_model::PodName;

/// An event about a pod, such as a failed ADD. The same event within a few minutes increases the count of the
/// first one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    pub pod: PodName,
    pub kind: EventKind,
    /// The reason as one CamelCase word, such as `FailedAddressAssignment`. At most 128 bytes.
    pub reason: String,
    /// The attempted action as one CamelCase word. At most 128 bytes.
    pub action: String,
    /// The cause and the next step. Cut at 1 kB.
    pub note: String,
}

/// The type of an event in Kubernetes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    Normal,
    Warning,
}

/// The state of the pool, for the node condition `IPPoolHealthy` and the startup taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolHealth {
    /// Pods get addresses, now or after the changes in progress.
    pub healthy: bool,
    /// The reason as one CamelCase word.
    pub reason: String,
    /// The reason for people.
    pub message: String,
}

/// The network requirements in a pod object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Distinguishes the pod from the next one with the same name.
    pub uid: String,
    /// The pod uses a branch ENI: container 0 has a limit whose name starts with `vpc.amazonaws.com/pod-eni`.
    pub branch: bool,
    /// The pod uses an interface on each network card: annotation `k8s.amazonaws.com/nicConfig:
    /// multi-nic-attachment`.
    pub every_card: bool,
}
