//! The command line of what is asked of a cluster.

use crate::{output::Output, target::KubeTarget};
use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use config_model::registry;
use std::path::PathBuf;

/// Where Ferrule is, and how long it may be silent.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// Which cluster
    #[command(flatten)]
    pub(crate) cluster: KubeTarget,
    /// The namespace that Ferrule is installed in
    #[arg(long, value_name = "NAME", env = "FERRULE_NAMESPACE", default_value = "kube-system")]
    pub(crate) namespace: String,
    /// The port of the daemons' introspection, on their nodes' loopback
    #[arg(long, value_name = "PORT", default_value_t = registry::INTROSPECTION_PORT)]
    pub(crate) introspection_port: u16,
    /// How long one daemon may take to answer, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = within_a_day())]
    pub(crate) timeout: u64,
}

fn within_a_day() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=86_400)
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

/// What is tried, and with which pods.
#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// The probes' image, with `ferrule` in its path; if none is named, that of Ferrule's own pods
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Try to connect there, beyond the VPC
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) internet: Option<String>,
    /// A name that the cluster's DNS has
    #[arg(long, value_name = "NAME", default_value = "kubernetes.default.svc.cluster.local")]
    pub(crate) name: String,
    /// How long probes may take to be ready, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = within_a_day())]
    pub(crate) wait: u64,
    /// Leave the namespace with the probes
    #[arg(long)]
    pub(crate) keep: bool,
    /// How it is printed
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Where Ferrule is
    #[command(flatten)]
    pub(crate) target: Target,
}

/// Where the archive is written, and of which nodes.
#[derive(Args, Debug)]
pub(crate) struct BundleArgs {
    /// Only this node's daemon and its logs; more than once for several
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Vec<String>,
    /// The archive, a .tar.gz
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Where Ferrule is
    #[command(flatten)]
    pub(crate) target: Target,
}

/// After `ferrule bundle`.
pub(crate) const BUNDLE: &str = "\
In it: what each daemon tells of itself, logs and objects of Ferrule's own pods, nodes, and the events of
their namespace. Never: Secrets, values of environment variables that are not known settings, what looks
like credentials in any text. index.json says what is in it and what could not be got.
Interrupted, it keeps what it has. Nodes in trouble come first, should not all have room.

Exit code: 0 it is written; 2 nothing could be got, or it could not be written; 130 it was interrupted.";

/// After `ferrule check`.
pub(crate) const CHECK_CODES: &str = "\
It makes a namespace ferrule-check-…, two pods on each node and a Service, and removes them however it
ends; that needs the rights of an administrator. What a killed one has left:
kubectl delete namespace -l app.kubernetes.io/managed-by=ferrule-check

Exit code: 0 all is reached; 1 something is not, and it is told where to look; 2 it could not be tried.";

/// After `ferrule pod`.
pub(crate) const POD_CODES: &str = "\
Exit code: 0 nothing keeps it waiting; 1 something does, or is wrong with it; 2 it could not be asked.";

/// After `ferrule status`.
pub(crate) const STATUS_CODES: &str = "\
It asks the API server with the rights of whoever asks, and through it each node's daemon; the role
ferrule-viewer has them all (config/manifests/rbac-viewer.yaml).

Exit code: 0 nothing is to be mended; 1 something is, and it is told with the next step; 2 the cluster
could not be asked.";
