//! From an observation of a cluster to the steps that replace kube-proxy by `FERRULE_SERVICES=ebpf`, or bring it back.
//!
//! The caller observes the cluster, passes an [`Observation`] to [`plan`] and applies the first [`Step`]; then it observes
//! and plans again. The cluster has all state: a node's label, the DaemonSets, and the environment of running pods.
//!
//! Both proxies may run on a node, and the programs of Ferrule act first. So each direction starts the other proxy before
//! it stops the present one.
//!
//! [`plan`] decides about the cluster, and [`rules`] about the rules of kube-proxy on one node. [`manifest`] has the changes
//! of its DaemonSet. [`objects`] reads the objects of the API server.

mod findings;
pub mod manifest;
pub mod objects;
mod observation;
mod plan;
mod request;
pub mod rules;

#[cfg(test)]
mod tests;

pub use findings::{Finding, Level};
pub use observation::{
    Agent, Cleaner, FerruleSet, KubeProxySet, Mode, Node, Observation, OtherProxy, ProxyPod,
    ServiceView, Serving, TargetKind, Unread,
};
pub use plan::{Plan, Step, Wait, nodes_to_ask, plan};
pub use request::{Goal, Request};

/// The label of nodes from which kube-proxy is kept off.
pub const LABEL: &str = "ferrule.io/services";
/// The value of [`LABEL`].
pub const SWITCHED: &str = "ebpf";
