//! The command line.

use crate::{
    cluster::{
        BUNDLE, BundleArgs, CHECK_CODES, CheckArgs, IP, IpArgs, POD_CODES, PodArgs, SERVICE,
        SERVICES_CODES, STATUS_CODES, ServiceArgs, ServicesApplyArgs, ServicesPlanArgs,
        ServicesRollbackArgs, StatusArgs, VERSION_CODES, VersionArgs,
    },
    output::{Color, Output},
    policy::{CODES, PolicyVerb},
    probe::ProbeVerb,
    target::{KubeTarget, OwnNamespace, object_name},
};
use clap::{Args, Parser, Subcommand, ValueEnum};
use config_model::registry;
use std::path::PathBuf;

/// Shows and checks Ferrule's state in a cluster and on a node.
#[derive(Debug, Parser)]
#[command(name = "ferrule", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// The command
    #[command(subcommand)]
    pub(crate) verb: Verb,
    /// Color in the text of this command
    #[arg(long, value_enum, value_name = "WHEN", global = true, default_value_t)]
    pub(crate) color: Color,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show an overview of all nodes: their address pools and their problems
    #[command(after_help = STATUS_CODES)]
    Status(StatusArgs),
    /// Show a pod's network (address, ENI, table, rules, veth, policies) and why the pod waits, or list pods
    #[command(after_help = POD_CODES)]
    Pod(PodArgs),
    /// Show a Service's frontends, their backends and why each endpoint is in or out, or list Services
    #[command(after_help = SERVICE)]
    Service(ServiceArgs),
    /// Show the use of addresses: subnet, ENI, prefix, pod
    #[command(after_help = IP)]
    Ip(IpArgs),
    /// Test the cluster's connectivity: from pods on each node to pods, Services, nodes, DNS names and the internet
    #[command(after_help = CHECK_CODES)]
    Check(CheckArgs),
    /// Write a redacted support archive
    #[command(after_help = BUNDLE)]
    Bundle(BundleArgs),
    /// The program of the pods of `check`
    #[command(subcommand, hide = true)]
    Probe(ProbeVerb),
    /// Diagnose pod networking on this node and print fixes
    ///
    /// Checks links, rules, routes, kernel settings, network daemons, netfilter and the metadata service; changes
    /// nothing. Run it as root in the node's network namespace.
    #[command(after_help = EXIT_CODES)]
    Doctor(DoctorArgs),
    /// Take this node over from amazon-vpc-cni or give it back while its pods run
    ///
    /// Run it as root in the node's network namespace. Each subcommand observes the node first and continues from its
    /// present state. If it was killed, run it again.
    #[command(after_help = MIGRATE_CODES)]
    Migrate(MigrateArgs),
    /// Explain which pods can reach which, in a cluster or from files
    #[command(subcommand, after_help = CODES)]
    Policy(PolicyVerb),
    /// Show the versions of this tool, of Kubernetes and of Ferrule's programs in the cluster
    #[command(after_help = VERSION_CODES)]
    Version(VersionArgs),
    /// Print a shell completion script
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// Shell of the script
        shell: clap_complete::Shell,
    },
}

#[derive(Args, Debug)]
pub(crate) struct MigrateArgs {
    /// The node's root: in a container, the mount point of the node's files. All other paths except --kubeconfig are
    /// the node's
    #[arg(long, value_name = "DIR", default_value = "/", global = true)]
    pub(crate) root: PathBuf,
    /// The command
    #[command(subcommand)]
    pub(crate) verb: MigrateVerb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum MigrateVerb {
    /// Check role and settings in the cluster before a node gets its label; changes nothing
    ///
    /// Run it anywhere with a kubeconfig.
    Check {
        /// The output format
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
        #[command(flatten)]
        cluster: MigrateCluster,
    },
    /// Print the steps and the reasons against them; changes nothing
    Plan {
        /// The new owner of the node
        #[arg(long, value_enum, default_value_t = Side::Ferrule)]
        to: Side,
        /// The output format
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
        /// The treatment of a policy agent
        #[arg(long, value_enum, default_value_t = Policy::Refuse)]
        policy: Policy,
        /// The cluster with the DaemonSets whose settings are compared
        #[command(flatten)]
        cluster: MigrateCluster,
        /// Paths and endpoints
        #[command(flatten)]
        places: Places,
    },
    /// Take the node over
    Apply {
        /// The treatment of a policy agent
        #[arg(long, value_enum, default_value_t = Policy::Refuse)]
        policy: Policy,
        /// Timeout for daemons to start or stop, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        wait: u64,
        /// The cluster with the DaemonSets whose settings are compared
        #[command(flatten)]
        cluster: MigrateCluster,
        /// Paths and endpoints
        #[command(flatten)]
        places: Places,
    },
    /// Give the node back to amazon-vpc-cni
    Rollback {
        /// The treatment of ferrule-agent's eBPF programs
        #[arg(long, value_enum, default_value_t = OwnPolicy::Keep)]
        policy: OwnPolicy,
        /// Timeout for daemons to start or stop, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        wait: u64,
        /// Paths and endpoints
        #[command(flatten)]
        places: Places,
    },
    /// Print the node's owner and the remaining steps
    Status {
        /// The output format
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
        /// Paths and endpoints
        #[command(flatten)]
        places: Places,
    },
    /// Replace kube-proxy in the cluster by Ferrule's agents, or bring it back
    ///
    /// Run it anywhere with a kubeconfig. Each subcommand reads the cluster first and continues from its present state.
    /// If it was killed, run it again.
    #[command(subcommand, after_help = SERVICES_CODES)]
    Services(ServicesVerb),
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServicesVerb {
    /// Print the checks and the steps; changes nothing
    Plan(ServicesPlanArgs),
    /// Replace kube-proxy node by node
    Apply(ServicesApplyArgs),
    /// Bring kube-proxy back, and then stop the programs of Ferrule node by node
    Rollback(ServicesRollbackArgs),
    /// Show the rules of kube-proxy on this node, or remove them once no connection uses them
    ///
    /// Run it as root in the node's network namespace. `apply` runs it in a DaemonSet.
    #[command(after_help = RULES_CODES)]
    Rules(RulesArgs),
}

#[derive(Args, Debug)]
pub(crate) struct RulesArgs {
    /// Remove the rules if no connection uses them
    #[arg(long)]
    pub(crate) remove: bool,
    /// Remove the rules as soon as no connection uses them, and do not exit
    #[arg(long, conflicts_with = "remove")]
    pub(crate) stay: bool,
    /// Also connect to the Service of the API server, as this process's environment names it
    #[arg(long, conflicts_with = "stay")]
    pub(crate) reach: bool,
    /// Only connect to the Service of the API server
    #[arg(long, conflicts_with_all = ["remove", "stay", "reach"])]
    pub(crate) only_reach: bool,
    /// The mount point of the node's procfs
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub(crate) proc: PathBuf,
}

/// The cluster of a migration. On a node, only a pod's service account, KUBECONFIG and these flags name it.
#[derive(Args, Clone, Debug)]
pub(crate) struct MigrateCluster {
    /// The cluster to read
    #[command(flatten)]
    pub(crate) target: KubeTarget,
    /// The namespace of Ferrule's own pods
    #[command(flatten)]
    pub(crate) own: OwnNamespace,
    /// Ferrule's DaemonSet
    #[arg(long, value_name = "NAME", default_value = "ferrule", value_parser = object_name)]
    pub(crate) daemonset: String,
}

/// The owner of a node's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    Ferrule,
    AmazonVpcCni,
}

/// The treatment of aws-network-policy-agent, which runs beside amazon-vpc-cni.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// Refuse the takeover
    Refuse,
    /// Remove its programs and pins after it has stopped and the node is taken over
    Drop,
    /// Remove its programs once it has stopped and ferrule-agent enforces the policies of all pods; its pins stay
    Enforce,
    /// Keep it and call it for each pod as before; ferrule-ipamd needs FERRULE_POLICY_AGENT=true
    Keep,
}

/// The treatment of ferrule-agent's eBPF programs in a rollback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum OwnPolicy {
    /// Keep them: they enforce the last policies
    Keep,
    /// Remove them as the last step, as `ferrule-agent retire` does: pods have the policies of other agents only
    Drop,
}

/// Paths and endpoints on a node.
#[derive(Args, Clone, Debug)]
pub(crate) struct Places {
    /// The folder of the runtime's network configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(crate) net_d: PathBuf,
    /// The folder of the runtime's plugins
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    pub(crate) bin: PathBuf,
    /// The folder of the runtime's cached ADD results
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cni/results")]
    pub(crate) results: PathBuf,
    /// The folder of amazon-vpc-cni's checkpoints and sockets
    #[arg(long, value_name = "DIR", default_value = "/var/run/aws-node")]
    pub(crate) aws_node: PathBuf,
    /// The folder of the policy agent's pinned programs
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/globals/aws")]
    pub(crate) pins: PathBuf,
    /// Ferrule's state directory
    #[arg(long, value_name = "DIR", env = "FERRULE_STATE_DIR", default_value = registry::STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// The socket of ferrule-ipamd
    #[arg(long, value_name = "FILE", env = "FERRULE_SOCKET", default_value = registry::IPAMD_SOCKET)]
    pub(crate) socket: PathBuf,
    /// The socket of ferrule-agent
    #[arg(long, value_name = "FILE", env = "FERRULE_AGENT_SOCKET", default_value = registry::AGENT_SOCKET)]
    pub(crate) agent: PathBuf,
    /// The folder of ferrule-agent's pinned programs and maps
    #[arg(long, value_name = "DIR", env = "FERRULE_AGENT_BPF_PINS", default_value = registry::BPF_MAPS)]
    pub(crate) agent_pins: PathBuf,
    /// The mount point of the node's procfs
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub(crate) proc: PathBuf,
    /// The URL of the instance metadata service, as for the AWS SDKs
    #[arg(
        long,
        value_name = "URL",
        env = "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        default_value = "http://169.254.169.254"
    )]
    pub(crate) imds: String,
}

#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// The output format
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// The root of the node's files (etc, usr, run, lib/modules); in a container, their mount point
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// The mount point of the node's procfs
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub(crate) proc: PathBuf,
    /// The mount point of the node's sysfs
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub(crate) sys: PathBuf,
    /// The URL of the instance metadata service, as for the AWS SDKs
    #[arg(
        long,
        value_name = "URL",
        env = "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        default_value = "http://169.254.169.254"
    )]
    pub(crate) imds: String,
    /// The expected MTU of ENIs
    #[arg(long, value_name = "BYTES", env = "AWS_VPC_ENI_MTU", default_value_t = registry::ENI_MTU)]
    pub(crate) eni_mtu: u32,
    /// The name prefix of pods' host veths
    #[arg(long, value_name = "PREFIX", env = "AWS_VPC_K8S_CNI_VETHPREFIX", default_value = "eni")]
    pub(crate) veth_prefix: String,
    /// The policy backend, whose needs are checked
    #[arg(long, value_enum, env = "FERRULE_AGENT_BACKEND", default_value_t = Backend::None)]
    pub(crate) backend: Backend,
    /// The folder of the backend's pinned maps
    #[arg(
        long,
        value_name = "DIR",
        env = "FERRULE_AGENT_BPF_PINS",
        default_value = registry::BPF_MAPS
    )]
    pub(crate) bpf_pins: PathBuf,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Backend {
    /// Enforces no policy and needs nothing
    None,
    /// eBPF programs at pods' host veths
    Ebpf,
}

const COMPLETIONS: &str = "\
For example: source <(ferrule completions bash)";

const EXIT_CODES: &str = "\
Exit code: 0 no problems; 1 at least one problem to fix; 2 no problems found, but some checks could not run.
Notices do not need a fix.";

const RULES_CODES: &str = "\
Exit code: 0 the node has no rule of kube-proxy; 1 it has rules, or the Service does not answer; 2 the rules could
not be read or removed.";

const MIGRATE_CODES: &str = "\
Exit code: 0 complete, or no reason against it; 1 refused, with the reasons; 2 a step failed or a timeout
passed: run it again.";
