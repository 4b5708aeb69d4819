//! The arguments of `ferrule migrate services`.

use crate::{cluster::args::Target, output::Output, target::object_name};
use clap::{Args, ValueEnum};

/// The cluster and the DaemonSets.
#[derive(Args, Clone, Debug)]
pub(crate) struct ServicesCluster {
    /// The cluster, Ferrule's namespace and the timeout
    #[command(flatten)]
    pub(crate) target: Target,
    /// Ferrule's DaemonSet
    #[arg(long, value_name = "NAME", default_value = "ferrule", value_parser = object_name)]
    pub(crate) daemonset: String,
    /// kube-proxy's DaemonSet
    #[arg(long, value_name = "NAME", default_value = "kube-proxy", value_parser = object_name)]
    pub(crate) kube_proxy: String,
    /// The namespace of kube-proxy's DaemonSet
    #[arg(long, value_name = "NAME", default_value = "kube-system", value_parser = object_name)]
    pub(crate) kube_proxy_namespace: String,
}

/// The proxy after the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum To {
    Ferrule,
    KubeProxy,
}

#[derive(Args, Debug)]
pub(crate) struct ServicesPlanArgs {
    /// The proxy after the steps
    #[arg(long, value_enum, default_value_t = To::Ferrule)]
    pub(crate) to: To,
    /// Also plan to delete kube-proxy's DaemonSet
    #[arg(long, conflicts_with = "node")]
    pub(crate) remove_kube_proxy: bool,
    /// Only this node; repeat for several nodes
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) node: Vec<String>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    #[command(flatten)]
    pub(crate) cluster: ServicesCluster,
}

#[derive(Args, Debug)]
pub(crate) struct ServicesApplyArgs {
    /// Delete kube-proxy's DaemonSet once all nodes are switched, and wait until no connection uses its rules
    #[arg(long, conflicts_with = "node")]
    pub(crate) remove_kube_proxy: bool,
    /// Only this node; repeat for several nodes
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) node: Vec<String>,
    /// Timeout for each wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) cluster: ServicesCluster,
}

#[derive(Args, Debug)]
pub(crate) struct ServicesRollbackArgs {
    /// Only this node; repeat for several nodes
    #[arg(long, value_name = "NAME", value_parser = object_name)]
    pub(crate) node: Vec<String>,
    /// Timeout for each wait, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) wait: u64,
    #[command(flatten)]
    pub(crate) cluster: ServicesCluster,
}

/// The help text after `ferrule migrate services`.
pub(crate) const SERVICES_CODES: &str = "\
Needs the rights of an administrator: it patches kube-proxy's DaemonSet and nodes, deletes pods of Ferrule, and
creates a ConfigMap and a DaemonSet in Ferrule's namespace.

Exit code: 0 complete, or no reason against it; 1 blocked, with the reasons; 2 a step failed or a timeout passed:
run it again.";
