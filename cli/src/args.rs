//! The command line.

use clap::{Args, Parser, Subcommand, ValueEnum};
use config_model::registry;
use std::path::PathBuf;

/// Shows and checks what Ferrule does on a node.
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
    /// Check this node for what breaks pod networking, and say how to mend it
    ///
    /// Looks at links, rules, routes, kernel settings, network daemons, netfilter and the metadata
    /// service; changes nothing. Run it as root, on the node's own network.
    #[command(after_help = EXIT_CODES)]
    Doctor(DoctorArgs),
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

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Lines for people
    Text,
    /// One JSON document
    Json,
}

const EXIT_CODES: &str = "\
Exit code: 0 all is good, 1 something is to be mended, 2 nothing is known to be wrong but something
could not be looked at. Notices are told and need no mending.";
