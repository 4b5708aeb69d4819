//! The command line of what is asked of a cluster.

use crate::{args::Output, policy::Where};
use clap::{Args, ValueEnum};
use config_model::registry;

/// Where Ferrule is, and how long it may be silent.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// Which cluster
    #[command(flatten)]
    pub(crate) cluster: Where,
    /// The namespace that Ferrule is installed in
    #[arg(long, value_name = "NAME", env = "FERRULE_NAMESPACE", default_value = "kube-system")]
    pub(crate) namespace: String,
    /// The port of the daemons' introspection, on their nodes' loopback
    #[arg(long, value_name = "PORT", default_value_t = registry::INTROSPECTION_PORT)]
    pub(crate) introspection_port: u16,
    /// How long one daemon may take to answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub(crate) timeout: u64,
}

/// How nodes are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// A table for people
    Text,
    /// A wider one
    Wide,
    /// One JSON document
    Json,
}

/// Which nodes, and how.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Only this node; more than once for several
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Vec<String>,
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t = Shape::Text)]
    pub(crate) output: Shape,
    /// Where Ferrule is
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Which pod.
#[derive(Args, Debug)]
pub(crate) struct PodArgs {
    /// The pod, as namespace/name
    #[arg(value_name = "NAMESPACE/POD")]
    pub(crate) pod: String,
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Where Ferrule is
    #[command(flatten)]
    pub(crate) target: Target,
}

/// After `ferrule pod`.
pub(crate) const POD_CODES: &str = "\
Exit code: 0 nothing keeps it waiting; 1 something does, or is wrong with it; 2 it could not be asked.";

/// After `ferrule status`.
pub(crate) const STATUS_CODES: &str = "\
It asks the API server with the rights of whoever asks, and through it each node's daemon; the role
ferrule-viewer has them all (config/manifests/rbac-viewer.yaml).

Exit code: 0 nothing is to be mended; 1 something is, and it is told with the next step; 2 the cluster
could not be asked.";
