//! The command line.

use crate::{
    cluster::{
        BUNDLE, BundleArgs, CHECK_CODES, CheckArgs, POD_CODES, PodArgs, STATUS_CODES, StatusArgs,
    },
    output::Output,
    policy::{CODES, PolicyVerb},
    probe::ProbeVerb,
};
use clap::{Args, Parser, Subcommand, ValueEnum};
use config_model::registry;
use std::path::PathBuf;

/// Shows and checks what Ferrule does in a cluster and on a node.
#[derive(Debug, Parser)]
#[command(name = "ferrule", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Show each node of a cluster at a glance: its pool, and what is wrong with it
    #[command(after_help = STATUS_CODES)]
    Status(StatusArgs),
    /// Show where a pod's network is (address, ENI, table, rules, veth, policies), and why it waits
    #[command(after_help = POD_CODES)]
    Pod(PodArgs),
    /// Test the whole cluster: from pods on each node to pods, Services, nodes, names and the internet
    #[command(after_help = CHECK_CODES)]
    Check(CheckArgs),
    /// Write a redacted archive for those who help
    #[command(after_help = BUNDLE)]
    Bundle(BundleArgs),
    /// What the pods of `check` run
    #[command(subcommand, hide = true)]
    Probe(ProbeVerb),
    /// Check this node for what breaks pod networking, and say how to mend it
    ///
    /// Looks at links, rules, routes, kernel settings, network daemons, netfilter and the metadata
    /// service; changes nothing. Run it as root, on the node's own network.
    #[command(after_help = EXIT_CODES)]
    Doctor(DoctorArgs),
    /// Take this node over from amazon-vpc-cni, or give it back, while its pods run
    ///
    /// Run it as root, on the node's own network. Each verb looks at the node first and goes on
    /// from where it is, so one that was killed is run again.
    #[command(subcommand, after_help = MIGRATE_CODES)]
    Migrate(MigrateVerb),
    /// Tell who may talk to whom, and why, in a cluster or from files
    #[command(subcommand, after_help = CODES)]
    Policy(PolicyVerb),
    /// Write what a shell completes command lines by
    #[command(after_help = COMPLETIONS)]
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
}

/// What to do with a node.
#[derive(Debug, Subcommand)]
pub(crate) enum MigrateVerb {
    /// Tell what would be done, and what stands in the way; changes nothing
    Plan {
        /// Whose the node is to be
        #[arg(long, value_enum, default_value_t = Side::Ferrule)]
        to: Side,
        /// How the plan is printed
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
        /// What becomes of a policy agent
        #[arg(long, value_enum, default_value_t = Policy::Refuse)]
        policy: Policy,
        /// Where things are
        #[command(flatten)]
        places: Places,
    },
    /// Take the node over
    Apply {
        /// What becomes of a policy agent
        #[arg(long, value_enum, default_value_t = Policy::Refuse)]
        policy: Policy,
        /// How long daemons are waited for, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        wait: u64,
        /// Where things are
        #[command(flatten)]
        places: Places,
    },
    /// Give the node back to amazon-vpc-cni
    Rollback {
        /// How long daemons are waited for, in seconds
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        wait: u64,
        /// Where things are
        #[command(flatten)]
        places: Places,
    },
    /// Tell whose the node is, and what is left to do
    Status {
        /// How it is printed
        #[arg(short, long, value_enum, default_value_t = Output::Text)]
        output: Output,
        /// Where things are
        #[command(flatten)]
        places: Places,
    },
}

/// Whose a node's pods are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Side {
    /// Ours
    Ferrule,
    /// amazon-vpc-cni's
    AmazonVpcCni,
}

/// What becomes of aws-network-policy-agent, which runs beside amazon-vpc-cni.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Policy {
    /// The takeover is refused
    Refuse,
    /// Its programs and pins are removed once it has ended and the node is taken over
    Drop,
    /// It stays and is told of pods as before; ferrule-ipamd needs FERRULE_POLICY_AGENT=true
    Keep,
}

/// Where things are on a node.
#[derive(Args, Clone, Debug)]
pub(crate) struct Places {
    /// The runtime's network configurations
    #[arg(long, value_name = "DIR", default_value = "/etc/cni/net.d")]
    pub(crate) net_d: PathBuf,
    /// The runtime's plugins
    #[arg(long, value_name = "DIR", default_value = "/opt/cni/bin")]
    pub(crate) bin: PathBuf,
    /// What the runtime keeps of ADDs
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cni/results")]
    pub(crate) results: PathBuf,
    /// amazon-vpc-cni's checkpoints and sockets
    #[arg(long, value_name = "DIR", default_value = "/var/run/aws-node")]
    pub(crate) aws_node: PathBuf,
    /// The policy agent's pinned programs
    #[arg(long, value_name = "DIR", default_value = "/sys/fs/bpf/globals/aws")]
    pub(crate) pins: PathBuf,
    /// Ferrule's state folder
    #[arg(long, value_name = "DIR", env = "FERRULE_STATE_DIR", default_value = registry::STATE_DIR)]
    pub(crate) state_dir: PathBuf,
    /// The socket of ferrule-ipamd
    #[arg(long, value_name = "FILE", env = "FERRULE_SOCKET", default_value = registry::IPAMD_SOCKET)]
    pub(crate) socket: PathBuf,
    /// Where the node's proc is mounted
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub(crate) proc: PathBuf,
    /// The instance metadata service, as the AWS SDKs take it
    #[arg(
        long,
        value_name = "URL",
        env = "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        default_value = "http://169.254.169.254"
    )]
    pub(crate) imds: String,
}

/// Where to look, and how to tell.
#[derive(Args, Debug)]
pub(crate) struct DoctorArgs {
    /// How the report is printed
    #[arg(short, long, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    /// Where the node's files are (etc, usr, run, lib/modules); in a container, where they are mounted
    #[arg(long, value_name = "DIR", default_value = "/")]
    pub(crate) root: PathBuf,
    /// Where the node's proc is mounted
    #[arg(long, value_name = "DIR", default_value = "/proc")]
    pub(crate) proc: PathBuf,
    /// Where the node's sys is mounted
    #[arg(long, value_name = "DIR", default_value = "/sys")]
    pub(crate) sys: PathBuf,
    /// The instance metadata service, as the AWS SDKs take it
    #[arg(
        long,
        value_name = "URL",
        env = "AWS_EC2_METADATA_SERVICE_ENDPOINT",
        default_value = "http://169.254.169.254"
    )]
    pub(crate) imds: String,
    /// The MTU that ENIs shall have
    #[arg(long, value_name = "BYTES", env = "AWS_VPC_ENI_MTU", default_value_t = registry::ENI_MTU)]
    pub(crate) eni_mtu: u32,
    /// What the host ends of pods' links are called
    #[arg(long, value_name = "PREFIX", env = "AWS_VPC_K8S_CNI_VETHPREFIX", default_value = "eni")]
    pub(crate) veth_prefix: String,
}

const COMPLETIONS: &str = "\
For example: source <(ferrule completions bash)";

const EXIT_CODES: &str = "\
Exit code: 0 all is good, 1 something is to be mended, 2 nothing is known to be wrong but something
could not be looked at. Notices are told and need no mending.";

const MIGRATE_CODES: &str = "\
Exit code: 0 it is done, or nothing stands in the way of it; 1 something stands in the way, and it is
told; 2 it could not be carried out, or what was waited for did not come: run it again.";
