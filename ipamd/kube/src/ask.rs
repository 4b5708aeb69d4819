//! What the daemon wants Kubernetes to know.

use config_model::PodName;

/// An event about a pod, such as a failed ADD. The same again within a few minutes is counted in
/// the first one's series.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodEvent {
    /// The pod.
    pub pod: PodName,
    /// How it is listed.
    pub kind: EventKind,
    /// Why, in one word of CamelCase, such as `FailedAddressAssignment`. At most 128 bytes.
    pub reason: String,
    /// What was tried, in one word of CamelCase. At most 128 bytes.
    pub action: String,
    /// What happened and what a person can do. Cut at 1 kB.
    pub note: String,
}

/// How Kubernetes lists an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// Good to know.
    Normal,
    /// Something is wrong.
    Warning,
}

/// How the pool is, for the node condition `IPPoolHealthy` and the startup taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolHealth {
    /// Whether pods get addresses, now or as soon as what is under way is done.
    pub healthy: bool,
    /// Why, in one word of CamelCase.
    pub reason: String,
    /// The same in words.
    pub message: String,
}

/// What a pod needs of its networking, as its object says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Which pod it is: the next one of its name has another uid.
    pub uid: String,
    /// A branch ENI of its own: container 0 has a limit whose name begins with
    /// `vpc.amazonaws.com/pod-eni`.
    pub branch: bool,
    /// An interface on each network card: annotation
    /// `k8s.amazonaws.com/nicConfig: multi-nic-attachment`.
    pub every_card: bool,
}
