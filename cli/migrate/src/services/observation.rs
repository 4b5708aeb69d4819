//! The observation of a cluster, in the terms of the plan.

use service_objects::{ObjectName, Service, SlicePort};
use std::collections::BTreeMap;

/// The input of the plan.
#[derive(Clone, Debug, Default)]
pub struct Observation {
    /// Ferrule's DaemonSet; `None` if it does not exist.
    pub ferrule: Option<FerruleSet>,
    /// kube-proxy's DaemonSet; `None` if it does not exist.
    pub kube_proxy: Option<KubeProxySet>,
    /// Pods of kube-proxy that no DaemonSet owns, such as static pods, by node.
    pub static_proxies: BTreeMap<String, String>,
    pub other_proxies: Vec<OtherProxy>,
    /// True if a manifest of kube-proxy's DaemonSet is saved.
    pub is_saved: bool,
    /// True if the saved manifest equals the DaemonSet without the changes of this command.
    pub is_saved_current: bool,
    /// True if the DaemonSet that removes kube-proxy's rules exists.
    pub has_cleaner: bool,
    pub services: BTreeMap<ObjectName, ServiceView>,
    pub nodes: BTreeMap<String, Node>,
    pub unread: Vec<Unread>,
}

/// An object that could not be read. The plan does not depend on it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Unread {
    pub object: String,
    pub cause: String,
}

/// Ferrule's DaemonSet: the settings of the pods that it creates from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FerruleSet {
    /// `NAMESPACE/NAME`.
    pub name: String,
    pub serves: bool,
    pub has_ebpf: bool,
    /// `CLUSTER_ENDPOINT`.
    pub endpoint: Option<String>,
    /// `FERRULE_AGENT_HEALTHZ`; `None` for the default.
    pub health: Option<String>,
    /// True if the DaemonSet controller replaces the pods after a change of the template.
    pub replaces_pods: bool,
    /// The number of nodes that have to have a pod.
    pub desired: u64,
}

/// kube-proxy's DaemonSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KubeProxySet {
    /// `NAMESPACE/NAME`.
    pub name: String,
    pub uid: String,
    /// `None` if the configuration could not be read.
    pub mode: Option<Mode>,
    /// True if it leaves nodes with the label, and no change of its template restarts a pod.
    pub is_kept_off: bool,
    /// True if it has any change of [`keep_off`](super::manifest::keep_off), also one that another client has undone in
    /// part.
    pub has_changes: bool,
    /// The manager of an EKS add-on, of Helm or of another tool that may undo changes.
    pub manager: Option<String>,
    /// `nodePortAddresses` of its configuration.
    pub node_port_addresses: Vec<String>,
    /// Differences from the defaults of `conntrack` in its configuration.
    pub conntrack: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    Iptables,
    Nftables,
    Other(String),
}

/// A workload of another network that serves Services.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OtherProxy {
    /// `daemonset NAMESPACE/NAME`.
    pub object: String,
    /// The setting by which it serves Services.
    pub reason: String,
    /// False if Ferrule works beside it.
    pub conflicts: bool,
}

/// A Service with the ports of its EndpointSlices and the kind of its load balancer's targets.
#[derive(Clone, Debug)]
pub struct ServiceView {
    pub service: Service,
    /// Read for Services with SCTP only.
    pub slice_ports: Vec<SlicePort>,
    /// `None` without a load balancer.
    pub targets: Option<TargetKind>,
}

/// The targets of an AWS load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TargetKind {
    /// Node ports.
    Instance,
    /// Pods.
    Ip,
}

/// A node on which kube-proxy or Ferrule runs or can run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// Such as `6.12.30-1.amzn2023`.
    pub kernel: String,
    /// True if kube-proxy is kept off the node.
    pub is_switched: bool,
    /// `None` if the node has no pod of Ferrule.
    pub agent: Option<Agent>,
    /// `None` if no pod of kube-proxy's DaemonSet is on the node.
    pub kube_proxy: Option<ProxyPod>,
    /// `None` if the node has no pod that removes kube-proxy's rules.
    pub cleaner: Option<Cleaner>,
}

/// Ferrule's pod on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Agent {
    pub pod: String,
    pub uid: String,
    /// True if the pod was created with `FERRULE_SERVICES=ebpf`.
    pub serves: bool,
    pub is_ready: bool,
    /// True if the pod terminates.
    pub leaves: bool,
    pub serving: Serving,
}

/// The state of Services in a node's agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Serving {
    /// The plan did not request it, see [`nodes_to_ask`](super::nodes_to_ask).
    NotAsked,
    /// The reason for which it could not be read.
    Unknown(String),
    Known {
        services: u64,
        /// Services that are not in force as they should be.
        failing: u64,
        /// States that are not in force yet.
        lag: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyPod {
    pub is_ready: bool,
    /// True if the pod terminates.
    pub leaves: bool,
}

/// The state of the pod that removes kube-proxy's rules from a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cleaner {
    /// No Service of the cluster has answered yet.
    Starting,
    /// Rules of kube-proxy exist.
    Waiting,
    /// No rule of kube-proxy exists, and a Service answers.
    Clean,
}

impl Observation {
    /// Returns the number of nodes whose pod of Ferrule does not exist, as between a deletion and the next pod.
    pub fn missing_pods(&self) -> u64 {
        let desired = self.ferrule.as_ref().map_or(0, |set| set.desired);
        let pods = self.nodes.values().filter(|node| node.agent.is_some()).count();
        desired.saturating_sub(u64::try_from(pods).unwrap_or(u64::MAX))
    }
}

impl Agent {
    /// Returns true if all Services of the cluster are in force on the node.
    pub fn is_in_force(&self) -> bool {
        let Serving::Known { services, failing, lag } = self.serving else { return false };
        let is_up = self.serves && self.is_ready && !self.leaves;
        is_up && services > 0 && failing == 0 && lag == 0
    }
}

impl Node {
    /// Returns true if kube-proxy serves the node.
    pub fn has_kube_proxy(&self) -> bool {
        self.kube_proxy.is_some_and(|pod| pod.is_ready && !pod.leaves)
    }
}
