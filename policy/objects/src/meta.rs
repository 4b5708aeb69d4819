//! Metadata of every object.

use crate::Labels;

/// The identity of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    /// Its namespace; empty for kinds of the cluster.
    pub namespace: String,
    pub name: String,
    /// The UID that the API server gave it; empty for objects read from files.
    pub uid: String,
    pub labels: Labels,
    /// Its annotations that policy reads: [`LOGGING`] of namespaces, [`MIRROR`] of pods, and no other.
    pub annotations: Labels,
    /// Creation time as written (`2026-01-31T10:00:00Z`, which sorts as text); empty if absent.
    pub created: String,
    /// Counts changes of its spec; 0 if absent.
    pub generation: i64,
}

/// The label of a namespace that is its name.
pub const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// Annotation of a mirror pod, which represents a static pod of a node in the API. The value is the UID that the
/// kubelet gave the static pod and sends to the runtime. The API server gives the mirror pod another UID. The
/// annotation can be set only at creation, by any client that may create the pod.
pub const MIRROR: &str = "kubernetes.io/config.mirror";

/// The annotation of a namespace that has its NetworkPolicies logged.
pub const LOGGING: &str = "networkpolicy.antrea.io/enable-logging";
