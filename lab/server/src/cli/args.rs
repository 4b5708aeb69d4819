//! The command line of `ferrule-lab`.

use super::cloud_args::{
    BranchVerb, EniVerb, GroupVerb, IamVerb, SubnetArg, SubnetVerb, bucket, interface, subnet,
};
use super::duration::duration;
use super::fault_args::FaultVerb;
use crate::control::{Cni, NodeSpec, Profile};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::Ipv4Net;
use lab_cloud::{Bucket, LaunchInterface};
use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

/// A VPC on this machine: EC2, IMDS and nodes in network namespaces, for Ferrule to run in.
#[derive(Debug, Parser)]
#[command(name = "ferrule-lab", version, max_term_width = 100)]
pub struct Cli {
    /// Which lab; labs of different names do not know of each other.
    #[arg(long, global = true, default_value = "default", value_parser = lab_name)]
    pub name: String,
    /// How the result is printed.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// How a result is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables and sentences.
    Text,
    /// One JSON document.
    Json,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Make a lab and leave it running.
    Up(UpArgs),
    /// Be the lab's server in the foreground (`up` starts this).
    #[command(hide = true)]
    Serve(UpArgs),
    /// Remove the lab and everything in it, also after its server was killed.
    Down,
    /// What the lab holds.
    Status,
    /// A Kubernetes cluster of the lab's nodes.
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Nodes.
    #[command(subcommand)]
    Node(NodeVerb),
    /// Pods.
    #[command(subcommand)]
    Pod(PodVerb),
    /// Subnets, and who else lives in them.
    #[command(subcommand)]
    Subnet(SubnetVerb),
    /// ENIs, behind the daemons' backs.
    #[command(subcommand)]
    Eni(EniVerb),
    /// Security groups.
    #[command(subcommand)]
    Group(GroupVerb),
    /// What the nodes' role may ask of EC2.
    #[command(subcommand)]
    Iam(IamVerb),
    /// Branch ENIs for pods with security groups of their own.
    #[command(subcommand)]
    Branch(BranchVerb),
    /// Run a command in a pod's network namespace.
    Exec {
        /// The pod: `name` or `namespace/name`.
        pod: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// The production daemon of a node.
    #[command(subcommand)]
    Daemon(DaemonVerb),
    /// Make the cloud misbehave.
    #[command(subcommand)]
    Fault(FaultVerb),
    /// What the lab, or a node's daemon and plugin, wrote.
    Logs {
        /// The node; without it the lab's server.
        node: Option<String>,
        /// At most this many lines of each file, from its end.
        #[arg(long, default_value_t = 200)]
        lines: usize,
    },
    /// Check every pod against every other, and the hosts; ends with 1 if anything was not reached.
    Check(CheckArgs),
    /// What the VPC forwarded and dropped, and what EC2 was asked.
    Counters,
}

/// What a new lab looks like.
#[derive(Args, Clone, Debug)]
pub struct UpArgs {
    /// How many nodes to start with.
    #[arg(long, default_value_t = 0)]
    pub nodes: usize,
    /// Where `ferrule-ipamd` and `ferrule-cni` are; default: beside this program.
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// How calls of EC2 are throttled.
    #[arg(long, value_enum, default_value_t = Throttling::Published)]
    pub throttling: Throttling,
    /// The VPC's address block.
    #[arg(long, default_value = "10.0.0.0/16", value_name = "CIDR")]
    pub vpc: Ipv4Net,
    /// A subnet; give it once for each, at least twice. They are called a, b, … in turn, and so are
    /// their zones unless they say `zone=LETTER`; everything else are tags, such as
    /// `10.0.32.0/20,zone=a,kubernetes.io/role/cni=1`.
    #[arg(
        long = "subnet",
        value_name = "CIDR[,K=V]...",
        value_parser = subnet,
        default_values = ["10.0.0.0/20", "10.0.16.0/20"]
    )]
    pub subnets: Vec<SubnetArg>,
    /// Give the VPC an IPv6 block, each subnet a /64 and each ENI an IPv6 address.
    #[arg(long)]
    pub ipv6: bool,
    /// The token bucket of every EC2 action in place of AWS's, shared by all nodes, such as 100:5.
    #[arg(long, value_name = "BURST:PER_SECOND", value_parser = bucket, conflicts_with = "throttling")]
    pub bucket: Option<Bucket>,
    /// How long an attach takes until the device is there, such as 1500ms or 2s.
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "1500ms")]
    pub attach_delay: Duration,
    /// How long a detach takes.
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "3s")]
    pub detach_delay: Duration,
    /// How long instance metadata lags behind the truth.
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "1s")]
    pub imds_lag: Duration,
    /// A Kubernetes API server of this machine, such as 127.0.0.1:6443, that nodes are to reach.
    /// They find it at port 443 of the first subnet's base + 2 (10.0.0.2), which their daemons are
    /// told; its certificate must name that address, or the kubeconfig a `tls-server-name`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub api_server: Option<SocketAddr>,
    /// A kubeconfig for that server; each node's daemon gets it, with the address that nodes see.
    #[arg(long, value_name = "FILE", requires = "api_server")]
    pub kubeconfig: Option<PathBuf>,
    /// A kubeconfig for that server with the rights of the VPC resource controller: the lab then plays
    /// it there, for nodes that have the lab's names. It makes CNINodes, trunks for those with the
    /// feature `SecurityGroupsForPods`, and a branch for each pod with a limit
    /// `vpc.amazonaws.com/pod-eni`.
    #[arg(long, value_name = "FILE", requires = "api_server")]
    pub controller_kubeconfig: Option<PathBuf>,
    /// How the first nodes are made.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// What to do with the cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterVerb {
    /// Make a lab whose nodes run a container runtime, a kubelet and a proxy, beside a control plane on
    /// this machine; leave it running.
    Up(ClusterUp),
    /// Remove the lab and its cluster.
    Down,
    /// Where the kubeconfig of one who may do everything is.
    Kubeconfig,
    /// Give an image to the nodes' runtimes.
    LoadImage {
        /// An archive, as `buildah push`, `podman save` or `docker save` writes it.
        archive: PathBuf,
        /// Only this node; may be given often.
        #[arg(long = "node")]
        nodes: Vec<String>,
    },
    /// What runs, by which process, and where it writes to.
    Status,
    /// Where a program for the cluster's users is; built from its Go module if it is not there yet.
    Program {
        /// Which.
        #[arg(value_enum)]
        program: UsersProgram,
    },
    /// Start runtime, kubelet and proxy of a node: after its boot, or of one that was added.
    Join {
        /// The node.
        node: String,
    },
    /// Run a command beside a node's runtime, such as `ctr -n k8s.io tasks ls`.
    Exec {
        /// The node.
        node: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// End a component of the control plane, such as kube-apiserver; its data stay.
    Stop {
        /// The component.
        component: String,
    },
    /// Start it again.
    Start {
        /// The component.
        component: String,
    },
}

/// What a new cluster looks like.
#[derive(Args, Clone, Debug)]
pub struct ClusterUp {
    /// How many nodes.
    #[arg(long, default_value_t = 2)]
    pub nodes: usize,
    /// How Services reach their pods.
    #[arg(long, value_enum, default_value_t = Proxy::Iptables)]
    pub proxy: Proxy,
    /// What gives pods their network. With none, nodes are not ready until something is installed.
    #[arg(long, value_enum, default_value_t = Network::None)]
    pub cni: Network,
    /// Leave what there is when it does not come up, to be looked at.
    #[arg(long)]
    pub keep: bool,
    /// Further options of `ferrule-lab up`, such as `--type m5.large`.
    #[arg(last = true)]
    pub lab: Vec<String>,
}

/// A program for the cluster's users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UsersProgram {
    /// Of the cluster's version.
    Kubectl,
    /// Helm.
    Helm,
}

/// How Services reach their pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Proxy {
    /// Chains of iptables.
    Iptables,
    /// A table of nftables.
    Nftables,
}

/// What gives a cluster's pods their network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Network {
    /// Nothing: it is yet to be installed.
    None,
    /// Our daemon and plugin, as programs of the nodes.
    Ferrule,
}

/// How calls of EC2 are throttled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Throttling {
    /// As AWS publishes it: a token bucket per action.
    Published,
    /// Not at all.
    Off,
}

/// How a node is made.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// The instance type.
    #[arg(long = "type", default_value = "c5.xlarge", value_name = "TYPE")]
    pub instance_type: String,
    /// The type that it shows instead, such as one that nobody knows.
    #[arg(long, value_name = "TYPE")]
    pub show_type: Option<String>,
    /// An ENI beside the primary one, such as 1:0:efa-only (card, device, kind); may be given often.
    #[arg(long = "interface", value_name = "CARD:DEVICE[:KIND]", value_parser = interface)]
    pub interfaces: Vec<LaunchInterface>,
    /// How the node names the devices of its ENIs.
    #[arg(long, value_enum, default_value_t = Profile::Eth)]
    pub profile: Profile,
    /// Do not run the production daemon on it.
    #[arg(long)]
    pub no_daemon: bool,
    /// What gives its pods their network. On a node of amazon-vpc-cni the lab writes no conflist of
    /// ours: that is for `ferrule migrate` to do.
    #[arg(long, value_enum, default_value_t = Cni::Ferrule)]
    pub cni: Cni,
    /// The folder of amazon-vpc-cni's programs: aws-k8s-agent, aws-cni, egress-cni, 10-aws.conflist
    /// and eni-max-pods.txt.
    #[arg(long, value_name = "DIR", required_if_eq("cni", "amazon-vpc-cni"))]
    pub cni_dir: Option<PathBuf>,
    /// A setting of the daemon, such as `WARM_IP_TARGET=2`; may be given often.
    #[arg(long = "env", value_parser = key_value, value_name = "K=V")]
    pub env: Vec<(String, String)>,
}

impl NodeArgs {
    /// The node that these ask for.
    pub fn spec(&self, name: Option<String>, subnet: Option<usize>) -> NodeSpec {
        NodeSpec {
            name,
            subnet,
            instance_type: self.instance_type.clone(),
            shown_type: self.show_type.clone(),
            interfaces: self.interfaces.clone(),
            profile: self.profile,
            daemon: !self.no_daemon,
            cni: self.cni,
            cni_dir: self
                .cni_dir
                .as_ref()
                .map(|dir| std::path::absolute(dir).unwrap_or_else(|_| dir.clone())),
            env: self.env.iter().cloned().collect::<BTreeMap<_, _>>(),
        }
    }
}

/// What to do with nodes.
#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Launch an instance and make it a node.
    Add {
        /// Its name; default: node1, node2, …
        node: Option<String>,
        /// Which of the lab's subnets its primary ENI is in, from 0; default: in turn.
        #[arg(long)]
        subnet: Option<usize>,
        /// How it is made.
        #[command(flatten)]
        how: NodeArgs,
    },
    /// Terminate the instance and forget the node.
    Remove {
        /// The node.
        node: String,
    },
    /// Reboot: all processes and namespaces of pods end, `/run` is emptied, ENIs stay.
    Reboot {
        /// The node.
        node: String,
    },
    /// Stop the instance.
    Stop {
        /// The node.
        node: String,
    },
    /// Start a stopped instance.
    Start {
        /// The node.
        node: String,
    },
    /// Terminate the instance; the node stays listed.
    Terminate {
        /// The node.
        node: String,
    },
    /// Ask for a trunk, as a CNINode with `SecurityGroupsForPods` does.
    Trunk {
        /// The node.
        node: String,
    },
    /// All nodes.
    List,
    /// Run a command in the node's namespaces.
    Exec {
        /// The node.
        node: String,
        /// The command.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// What to do with pods.
#[derive(Debug, Subcommand)]
pub enum PodVerb {
    /// Make a namespace and run the plugin's ADD, as a runtime would.
    Add {
        /// The node.
        node: String,
        /// How many.
        #[arg(long, default_value_t = 1)]
        count: usize,
        /// Their names are this and a number; default: `NODE-`.
        #[arg(long, conflicts_with = "pod")]
        prefix: Option<String>,
        /// The first number.
        #[arg(long, default_value_t = 0)]
        from: usize,
        /// One pod of this name: `name` or `namespace/name`.
        #[arg(long, conflicts_with = "count")]
        pod: Option<String>,
        /// An annotation, such as `k8s.amazonaws.com/nicConfig=multi-nic-attachment`; may be given
        /// often.
        #[arg(long = "annotation", value_parser = key_value, value_name = "K=V")]
        annotations: Vec<(String, String)>,
        /// How many at a time.
        #[arg(long, default_value_t = 8)]
        parallel: usize,
    },
    /// Run the plugin's DEL and remove the namespace.
    Delete {
        /// Pods: `name` or `namespace/name`.
        #[arg(required_unless_present_any = ["all", "node"])]
        pods: Vec<String>,
        /// Every pod.
        #[arg(long)]
        all: bool,
        /// Every pod of this node.
        #[arg(long)]
        node: Option<String>,
        /// How many at a time.
        #[arg(long, default_value_t = 8)]
        parallel: usize,
    },
    /// All pods.
    List,
    /// Run the plugin's CHECK.
    Check {
        /// Pods; without any, all.
        pods: Vec<String>,
    },
}

/// What to do with the daemon of a node.
#[derive(Debug, Subcommand)]
pub enum DaemonVerb {
    /// Start it and keep it running.
    Start {
        /// The node.
        node: String,
        /// Settings that replace those of before, such as `WARM_IP_TARGET=2`.
        #[arg(long = "env", value_parser = key_value, value_name = "K=V")]
        env: Vec<(String, String)>,
        /// Whose daemon: the other one is ended first.
        #[arg(long, value_enum)]
        cni: Option<Cni>,
    },
    /// End it by SIGTERM and keep it down.
    Stop {
        /// The node.
        node: String,
    },
    /// End it by SIGKILL; it is restarted, as a kubelet would.
    Kill {
        /// The node.
        node: String,
    },
    /// Send it a signal, such as STOP or CONT.
    Signal {
        /// The node.
        node: String,
        /// The signal's name or number.
        signal: String,
    },
}

/// How far a check goes.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The length of the ICMP packets, IP header included.
    #[arg(long, default_value_t = 9001, value_parser = clap::value_parser!(u16).range(28..))]
    pub packet: u16,
    /// How many pairs send 1 MB each way over TCP.
    #[arg(long, default_value_t = 24)]
    pub tcp: usize,
    /// How long an answer may take.
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "2s")]
    pub timeout: Duration,
}

fn lab_name(text: &str) -> Result<String, String> {
    let fits = (1..=32).contains(&text.len())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && text.starts_with(|c: char| c.is_ascii_alphanumeric());
    let rule = "a lab's name has 1 to 32 lower-case letters, digits and dashes";
    if fits { Ok(text.to_owned()) } else { Err(rule.to_owned()) }
}

pub(super) fn key_value(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("it has the form KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn pods_are_added_in_batches() {
        let line = "ferrule-lab --name a pod add node1 --count 45 --prefix p --parallel 8 -o json";
        let cli = Cli::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(cli.output, Output::Json);
        let Verb::Pod(PodVerb::Add { count, prefix, parallel, .. }) = cli.verb else { panic!() };
        assert_eq!((count, prefix.as_deref(), parallel), (45, Some("p"), 8));
    }

    #[test]
    fn a_name_that_is_no_name_is_refused() {
        for bad in ["", "A", "../x", "-a", "a b", "thirty-three-characters-are-one-too-many"] {
            assert!(lab_name(bad).is_err(), "{bad}");
        }
    }
}
