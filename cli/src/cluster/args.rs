//! The arguments of commands that read a whole cluster.

use crate::{
    output::Output,
    target::{KubeTarget, OwnNamespace, object_name},
};
use clap::{Args, ValueEnum, builder::RangedU64ValueParser};
use config_model::registry;
use std::path::PathBuf;

/// The cluster, Ferrule's namespace and the timeout.
#[derive(Args, Clone, Debug)]
pub(crate) struct Target {
    /// The cluster to read
    #[command(flatten)]
    pub(crate) cluster: KubeTarget,
    /// The namespace of Ferrule's own pods
    #[command(flatten)]
    pub(crate) own: OwnNamespace,
    /// The daemons' introspection port on the loopback of their nodes
    #[arg(long, value_name = "PORT", default_value_t = registry::INTROSPECTION_PORT)]
    pub(crate) introspection_port: u16,
    /// Timeout for one daemon, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = within_a_day())]
    pub(crate) timeout: u64,
}

fn within_a_day() -> RangedU64ValueParser {
    RangedU64ValueParser::new().range(1..=86_400)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Shape {
    /// A table
    Text,
    /// A table with more columns
    Wide,
    /// One JSON document
    Json,
    /// One YAML document
    Yaml,
}

impl Shape {
    /// Returns the format of a document; `None` for text.
    pub(crate) fn machine(self) -> Option<Output> {
        match self {
            Self::Text | Self::Wide => None,
            Self::Json => Some(Output::Json),
            Self::Yaml => Some(Output::Yaml),
        }
    }
}

#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Only this node; repeat for several nodes
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Vec<String>,
    /// Only problems that need a fix, and their nodes
    #[arg(long)]
    pub(crate) trouble: bool,
    /// Repeat the output until interrupted
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "5",
        value_parser = within_a_day(), conflicts_with = "wait")]
    pub(crate) watch: Option<u64>,
    /// Wait until no problem needs a fix, for at most this time
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "300",
        value_parser = within_a_day())]
    pub(crate) wait: Option<u64>,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Shape::Text)]
    pub(crate) output: Shape,
    /// The cluster, Ferrule's namespace and the timeout
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Args, Debug)]
pub(crate) struct PodArgs {
    /// The pod, with or without its namespace; without it all pods of the namespace are listed
    #[arg(value_name = "[NAMESPACE/]POD")]
    pub(crate) pod: Option<String>,
    /// The pod's namespace, if not that of the kubeconfig's context
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// List the pods of all namespaces
    #[arg(short = 'A', long, conflicts_with_all = ["pod", "namespace"])]
    pub(crate) all_namespaces: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// The cluster, Ferrule's namespace and the timeout
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Args, Debug)]
pub(crate) struct ServiceArgs {
    /// The Service, with or without its namespace; without it all Services are listed
    #[arg(value_name = "[NAMESPACE/]SERVICE")]
    pub(crate) service: Option<String>,
    /// The Service's namespace, if not that of the kubeconfig's context; in a list only this namespace
    #[arg(short, long, value_name = "NAME")]
    pub(crate) namespace: Option<String>,
    /// The node whose clients are meant; on a node with ferrule-agent this node
    #[arg(long, value_name = "NAME", env = "MY_NODE_NAME", value_parser = object_name)]
    pub(crate) node: Option<String>,
    /// The socket of ferrule-agent, which is called if the node is this one
    #[arg(long, value_name = "SOCKET", env = "FERRULE_AGENT_SOCKET", default_value = registry::AGENT_SOCKET)]
    pub(crate) agent: PathBuf,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// The cluster, Ferrule's namespace and the timeout
    #[command(flatten)]
    pub(crate) target: Target,
}

/// The number of nodes of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sample {
    All,
    Nodes(usize),
}

fn sample(word: &str) -> Result<Sample, String> {
    match (word, word.parse()) {
        ("all", _) => Ok(Sample::All),
        (_, Ok(count)) if count > 0 => Ok(Sample::Nodes(count)),
        _ => Err("it is neither a number from 1 on nor all".to_owned()),
    }
}

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// Test from this node; repeat for several nodes. A single node gets a second one to connect to
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Vec<String>,
    /// The number of nodes, named ones included, from all zones and instance types; 16 if --node names none
    #[arg(long, value_name = "NUMBER|all", value_parser = sample)]
    pub(crate) sample: Option<Sample>,
    /// Also test a host port of the pods; the nodes need the plugin portmap
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "7777",
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) host_port: Option<u16>,
    /// Also test from pods in the host's network, which listen on this port of their nodes
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "7778",
        value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) host_network: Option<u16>,
    /// Also write the results to this file, in the format of JUnit
    #[arg(long, value_name = "FILE")]
    pub(crate) junit: Option<PathBuf>,
    /// The image of the probes, with `ferrule` in its path; by default the image of Ferrule's own pods
    #[arg(long, value_name = "IMAGE")]
    pub(crate) image: Option<String>,
    /// Also try to connect to this address outside the VPC
    #[arg(long, value_name = "HOST:PORT")]
    pub(crate) internet: Option<String>,
    /// A name that the cluster's DNS resolves
    #[arg(long, value_name = "NAME", default_value = "kubernetes.default.svc.cluster.local")]
    pub(crate) name: String,
    /// Timeout for the probes to become ready, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = within_a_day())]
    pub(crate) wait: u64,
    /// Keep the namespace with the probes
    #[arg(long)]
    pub(crate) keep: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// The cluster, Ferrule's namespace and the timeout
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Args, Debug)]
pub(crate) struct BundleArgs {
    /// Only the daemon and the logs of this node; repeat for several nodes
    #[arg(long, value_name = "NAME")]
    pub(crate) node: Vec<String>,
    /// The path of the archive (.tar.gz)
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// The cluster, Ferrule's namespace and the timeout
    #[command(flatten)]
    pub(crate) target: Target,
}

#[derive(Args, Debug)]
pub(crate) struct VersionArgs {
    /// Only the version of this tool
    #[arg(long)]
    pub(crate) client: bool,
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// The cluster, Ferrule's namespace and the timeout
    #[command(flatten)]
    pub(crate) target: Target,
}

/// The help text after `ferrule version`.
pub(crate) const VERSION_CODES: &str = "\
The programs in the cluster report their versions themselves, also if their image has another tag.

Exit code: 0 printed; 2 the cluster could not be read.";

/// The help text after `ferrule bundle`.
pub(crate) const BUNDLE: &str = "\
The archive contains each daemon's introspection, logs and objects of Ferrule's own pods, the nodes, and the
events of Ferrule's own objects. It never contains Secrets, values of unknown environment variables, private keys
or text that looks like credentials. index.json lists the files and everything that could not be collected.
After an interrupt the archive is kept as it is. Nodes with problems come first, because its size is bounded.

Exit code: 0 written; 2 nothing could be collected or written; 130 interrupted.";

/// The help text after `ferrule check`.
pub(crate) const CHECK_CODES: &str = "\
Creates a namespace ferrule-check-…, two pods on each chosen node and a Service, and deletes them at the end, also
after an error. This needs the rights of an administrator. To clean up after a killed run:
kubectl delete namespace -l app.kubernetes.io/managed-by=ferrule-check

Exit code: 0 all targets are reachable; 1 some are not, and the next step is printed; 2 the tests could not run.";

/// The help text after `ferrule pod`.
pub(crate) const POD_CODES: &str = "\
Exit code: 0 no pod waits; 1 a pod waits or has a problem; 2 the cluster could not be read. For a list, 2 also means
that no pod waits, but a node's daemon could not be read.";

/// The help text after `ferrule service`.
pub(crate) const SERVICE: &str = "\
Frontends, backends and reasons are computed from the cluster's Services and EndpointSlices, by the rules of a
node. With a node, the output also has the state of the Service in its agent: from the agent's socket on the node
itself, elsewhere from the agent's metrics. Without a node, hints are not applied.

Exit code: 0 no problems; 1 a Service has a problem, printed with the next step; 2 the cluster could not be read,
or there are no problems but something could not be read.";

/// The help text after `ferrule status`.
pub(crate) const STATUS_CODES: &str = "\
Reads the API server with your rights, and through it each node's daemon. The role ferrule-viewer has all
necessary rights (config/manifests/rbac-viewer.yaml).

Exit code: 0 no problems; 1 problems, printed with the next step; 2 the cluster could not be read.
With --wait, 1 means that problems remain after the timeout, and with --watch the code is that of the last output.
--node restricts the query, and with it the exit code. --trouble hides lines only.";
