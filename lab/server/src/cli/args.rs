//! The command line of `ferrule-lab`.

use super::cloud_args::{
    BranchVerb, EniVerb, GroupVerb, IamVerb, SubnetArg, SubnetVerb, bucket, interface, subnet,
};
use super::duration::duration;
use super::fault_args::FaultVerb;
use super::key_value::key_value;
use super::nlb_args::{ClientVerb, NlbVerb};
use crate::control::{Cni, NodeSpec, Profile};
use clap::{Args, Parser, Subcommand, ValueEnum};
use ipnet::Ipv4Net;
use lab_cloud::{Bucket, LaunchInterface};
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

/// A VPC on this machine: EC2, IMDS and nodes in network namespaces, for Ferrule to run in.
#[derive(Debug, Parser)]
#[command(name = "ferrule-lab", version, max_term_width = 100)]
pub struct Cli {
    /// Name of the lab; labs with different names are independent.
    #[arg(long, global = true, default_value = "default", value_parser = lab_name)]
    pub name: String,
    /// Output format.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    pub output: Output,
    #[command(subcommand)]
    pub verb: Verb,
}

/// Output format of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Output {
    /// Tables and sentences.
    Text,
    /// One JSON document.
    Json,
}

#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Create a lab and leave it running.
    Up(UpArgs),
    /// Run the lab's server in the foreground (`up` starts this).
    #[command(hide = true)]
    Serve(UpArgs),
    /// Remove the lab and everything in it, also after its server was killed.
    Down,
    /// Show the lab's nodes, pods and resources.
    Status,
    /// Kubernetes cluster on the lab's nodes.
    #[command(subcommand)]
    Cluster(ClusterVerb),
    /// Nodes of the lab, each one an EC2 instance.
    #[command(subcommand)]
    Node(NodeVerb),
    /// Pods on the lab's nodes.
    #[command(subcommand)]
    Pod(PodVerb),
    /// Subnets, their tags, and addresses that other workloads use.
    #[command(subcommand)]
    Subnet(SubnetVerb),
    /// ENIs, changed without the daemons.
    #[command(subcommand)]
    Eni(EniVerb),
    /// Security groups.
    #[command(subcommand)]
    Group(GroupVerb),
    /// EC2 permissions of the nodes' role.
    #[command(subcommand)]
    Iam(IamVerb),
    /// Branch ENIs for pods with security groups of their own.
    #[command(subcommand)]
    Branch(BranchVerb),
    /// Network load balancers that keep the addresses of clients.
    #[command(subcommand)]
    Nlb(NlbVerb),
    /// A client outside the VPC.
    #[command(subcommand)]
    Client(ClientVerb),
    /// Run a command in a pod's network namespace.
    Exec {
        /// The pod: `name` or `namespace/name`.
        pod: String,
        /// Command line, after `--`.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// The production daemon of a node.
    #[command(subcommand)]
    Daemon(DaemonVerb),
    /// Faults of EC2 and IMDS.
    #[command(subcommand)]
    Fault(FaultVerb),
    /// Print the logs of the lab's server, or of a node's daemon and plugin.
    Logs {
        /// Node name; without it, the lab's server.
        node: Option<String>,
        /// At most this many lines of each file, from its end.
        #[arg(long, default_value_t = 200)]
        lines: usize,
    },
    /// Probe each pod from every other pod and from the hosts; exits with 1 if a probe fails.
    Check(CheckArgs),
    /// Show the packets that the VPC forwarded and dropped, and the calls of EC2.
    Counters,
}

/// Options of a new lab.
#[derive(Args, Clone, Debug)]
pub struct UpArgs {
    /// Number of nodes at the start.
    #[arg(long, default_value_t = 0)]
    pub nodes: usize,
    /// Folder of `ferrule-ipamd` and `ferrule-cni`; default: the folder of this program.
    #[arg(long, value_name = "DIR")]
    pub bin_dir: Option<PathBuf>,
    /// Throttling of EC2 calls.
    #[arg(long, value_enum, default_value_t = Throttling::Published)]
    pub throttling: Throttling,
    /// Address block of the VPC.
    #[arg(long, default_value = "10.0.0.0/16", value_name = "CIDR")]
    pub vpc: Ipv4Net,
    /// Subnet; repeat it for each one, at least twice. The names are a, b, … in order, and each zone has the
    /// name of its subnet unless `zone=LETTER` is given. Other pairs are tags, such as
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
    /// Token bucket of every EC2 action instead of the published ones, shared by all nodes, such as 100:5.
    #[arg(long, value_name = "BURST:PER_SECOND", value_parser = bucket, conflicts_with = "throttling")]
    pub bucket: Option<Bucket>,
    /// Time until an attached device appears, such as 1500ms or 2s.
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "1500ms")]
    pub attach_delay: Duration,
    /// Duration of a detach.
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "3s")]
    pub detach_delay: Duration,
    /// Delay of instance metadata behind the state of EC2.
    #[arg(long, value_parser = duration, value_name = "TIME", default_value = "1s")]
    pub imds_lag: Duration,
    /// Kubernetes API server of this machine for the nodes, such as 127.0.0.1:6443. Nodes reach it at port 443 of
    /// the first subnet's base + 2 (10.0.0.2), and their daemons get this address. The certificate must be valid
    /// for it, or the kubeconfig must have a `tls-server-name`.
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub api_server: Option<SocketAddr>,
    /// Kubeconfig for that server; each node's daemon gets it with the address for nodes.
    #[arg(long, value_name = "FILE", requires = "api_server")]
    pub kubeconfig: Option<PathBuf>,
    /// Kubeconfig for that server with the rights of the VPC resource controller. The lab then acts as this
    /// controller for nodes with the lab's names. It creates CNINodes, a trunk for each one with the feature
    /// `SecurityGroupsForPods`, and a branch for each pod with a limit `vpc.amazonaws.com/pod-eni`.
    #[arg(long, value_name = "FILE", requires = "api_server")]
    pub controller_kubeconfig: Option<PathBuf>,
    /// Properties of the first nodes.
    #[command(flatten)]
    pub node: NodeArgs,
}

/// Operations on the cluster.
#[derive(Debug, Subcommand)]
pub enum ClusterVerb {
    /// Create a lab with a control plane on this machine, and leave it running. Each node runs a container
    /// runtime, a kubelet and a proxy.
    Up(ClusterUp),
    /// Remove the lab and its cluster.
    Down,
    /// Print the path of the administrator's kubeconfig.
    Kubeconfig,
    /// Load an image into the nodes' runtimes.
    LoadImage {
        /// An archive, as `buildah push`, `podman save` or `docker save` writes it.
        archive: PathBuf,
        /// Only this node; repeatable.
        #[arg(long = "node")]
        nodes: Vec<String>,
    },
    /// Show each component with its process and its log file.
    Status,
    /// Print the path of a client program; it is built from its Go module if it is missing.
    Program {
        #[arg(value_enum)]
        program: ClientProgram,
    },
    /// Start the runtime, kubelet and proxy of a node after its boot or its addition.
    Join {
        /// Node name, such as node1.
        node: String,
    },
    /// Run a command beside a node's runtime, such as `ctr -n k8s.io tasks ls`.
    Exec {
        /// Node name, such as node1.
        node: String,
        /// Command line, after `--`.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Stop a component of the control plane; its data stay.
    Stop {
        /// Component name, such as kube-apiserver.
        component: String,
    },
    /// Start a stopped component.
    Start {
        /// Component name, such as kube-apiserver.
        component: String,
    },
}

/// Options of a new cluster.
#[derive(Args, Clone, Debug)]
pub struct ClusterUp {
    /// Number of nodes at the start.
    #[arg(long, default_value_t = 2)]
    pub nodes: usize,
    /// Mode of kube-proxy.
    #[arg(long, value_enum, default_value_t = Proxy::Iptables)]
    pub proxy: Proxy,
    /// Network of the pods. With none, nodes are not ready until a plugin is installed.
    #[arg(long, value_enum, default_value_t = Network::None)]
    pub cni: Network,
    /// Give the VPC IPv6, nodes an address of each family, and Services a range of each. The daemon's setting `ENABLE_IPv6`
    /// decides about the addresses of pods.
    #[arg(long)]
    pub ipv6: bool,
    /// Keep all parts for inspection if the start fails.
    #[arg(long)]
    pub keep: bool,
    /// Further options of `ferrule-lab up`, such as `--type m5.large`.
    #[arg(last = true)]
    pub lab: Vec<String>,
}

/// Client program of a cluster's users.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ClientProgram {
    /// Has the cluster's version.
    Kubectl,
    Helm,
}

/// Mode of kube-proxy: the implementation of Services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Proxy {
    /// Chains of iptables.
    Iptables,
    /// A table of nftables.
    Nftables,
    /// No kube-proxy: the pods' network serves Services.
    None,
}

/// Network plugin of a cluster's pods.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Network {
    /// No plugin: the user installs one.
    None,
    /// Ferrule's daemon and plugin, as programs of the nodes.
    Ferrule,
}

/// Throttling of EC2 calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Throttling {
    /// As AWS publishes it: a token bucket per action.
    Published,
    /// No throttling.
    Off,
}

/// Properties of a new node.
#[derive(Args, Clone, Debug)]
pub struct NodeArgs {
    /// EC2 instance type, which determines limits of ENIs and addresses.
    #[arg(long = "type", default_value = "c5.xlarge", value_name = "TYPE")]
    pub instance_type: String,
    /// Instance type that metadata reports instead, such as an unknown one.
    #[arg(long, value_name = "TYPE")]
    pub show_type: Option<String>,
    /// ENI in addition to the primary one, such as 1:0:efa-only (card, device, kind); repeatable.
    #[arg(long = "interface", value_name = "CARD:DEVICE[:KIND]", value_parser = interface)]
    pub interfaces: Vec<LaunchInterface>,
    /// Scheme of the names of ENI devices.
    #[arg(long, value_enum, default_value_t = Profile::Eth)]
    pub profile: Profile,
    /// Do not run the production daemon on the node.
    #[arg(long)]
    pub no_daemon: bool,
    /// Network plugin of the node's pods. On a node of amazon-vpc-cni the lab does not write Ferrule's conflist:
    /// `ferrule migrate` does.
    #[arg(long, value_enum, default_value_t = Cni::Ferrule)]
    pub cni: Cni,
    /// Folder of amazon-vpc-cni's programs: aws-k8s-agent, aws-cni, egress-cni, 10-aws.conflist
    /// and eni-max-pods.txt.
    #[arg(long, value_name = "DIR", required_if_eq("cni", "amazon-vpc-cni"))]
    pub cni_dir: Option<PathBuf>,
    /// Setting of the daemon, such as `WARM_IP_TARGET=2`; repeatable.
    #[arg(long = "env", value_parser = key_value, value_name = "K=V")]
    pub env: Vec<(String, String)>,
}

impl NodeArgs {
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

/// Operations on nodes.
#[derive(Debug, Subcommand)]
pub enum NodeVerb {
    /// Launch an instance as a node.
    Add {
        /// Node name; default: the next free of node1, node2, …
        node: Option<String>,
        /// Index of the primary ENI's subnet, from 0; default: the subnets in turn.
        #[arg(long)]
        subnet: Option<usize>,
        /// Properties of the new node.
        #[command(flatten)]
        how: NodeArgs,
    },
    /// Terminate the instance and remove the node.
    Remove {
        /// Node name, such as node1.
        node: String,
    },
    /// Reboot: stops all processes, removes the pods' namespaces and the content of `/run`, and keeps ENIs.
    Reboot {
        /// Node name, such as node1.
        node: String,
    },
    /// Stop the instance.
    Stop {
        /// Node name, such as node1.
        node: String,
    },
    /// Start a stopped instance.
    Start {
        /// Node name, such as node1.
        node: String,
    },
    /// Terminate the instance; the node stays listed.
    Terminate {
        /// Node name, such as node1.
        node: String,
    },
    /// Request a trunk, as a CNINode with `SecurityGroupsForPods` does.
    Trunk {
        /// Node name, such as node1.
        node: String,
    },
    /// List all nodes.
    List,
    /// Run a command in the node's namespaces.
    Exec {
        /// Node name, such as node1.
        node: String,
        /// Command line, after `--`.
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
}

/// Operations on pods.
#[derive(Debug, Subcommand)]
pub enum PodVerb {
    /// Create a network namespace and run the plugin's ADD, like a runtime.
    Add {
        /// Node name, such as node1.
        node: String,
        /// Number of new pods.
        #[arg(long, default_value_t = 1)]
        count: usize,
        /// Prefix of the pods' names, before a number; default: `NODE-`.
        #[arg(long, conflicts_with = "pod")]
        prefix: Option<String>,
        /// First number of the names.
        #[arg(long, default_value_t = 0)]
        from: usize,
        /// One pod of this name: `name` or `namespace/name`.
        #[arg(long, conflicts_with = "count")]
        pod: Option<String>,
        /// Annotation of each pod, such as `k8s.amazonaws.com/nicConfig=multi-nic-attachment`; repeatable.
        #[arg(long = "annotation", value_parser = key_value, value_name = "K=V")]
        annotations: Vec<(String, String)>,
        /// Highest number of concurrent calls.
        #[arg(long, default_value_t = 8)]
        parallel: usize,
    },
    /// Run the plugin's DEL and remove the namespace.
    Delete {
        /// Pods: `name` or `namespace/name`.
        #[arg(required_unless_present_any = ["all", "node"])]
        pods: Vec<String>,
        /// All pods of the lab.
        #[arg(long)]
        all: bool,
        /// All pods of this node.
        #[arg(long)]
        node: Option<String>,
        /// Highest number of concurrent calls.
        #[arg(long, default_value_t = 8)]
        parallel: usize,
    },
    /// List all pods.
    List,
    /// Run the plugin's CHECK.
    Check {
        /// Pods: `name` or `namespace/name`; default: all.
        pods: Vec<String>,
    },
}

/// Operations on a node's daemon.
#[derive(Debug, Subcommand)]
pub enum DaemonVerb {
    /// Start the daemon and restart it after each exit.
    Start {
        /// Node name, such as node1.
        node: String,
        /// Settings instead of the earlier ones, such as `WARM_IP_TARGET=2`.
        #[arg(long = "env", value_parser = key_value, value_name = "K=V")]
        env: Vec<(String, String)>,
        /// Network plugin of the daemon; the daemon of the other plugin is stopped first.
        #[arg(long, value_enum)]
        cni: Option<Cni>,
    },
    /// Run `ferrule-ipamd install` on the node with the daemon's settings.
    Install {
        /// Node name, such as node1.
        node: String,
    },
    /// Stop the daemon with SIGTERM and do not restart it.
    Stop {
        /// Node name, such as node1.
        node: String,
    },
    /// Kill the daemon with SIGKILL; the lab restarts it, like a kubelet.
    Kill {
        /// Node name, such as node1.
        node: String,
    },
    /// Send the daemon a signal, such as STOP or CONT.
    Signal {
        /// Node name, such as node1.
        node: String,
        /// Name or number of the signal.
        signal: String,
    },
}

/// Extent of a check.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// Length of the ICMP packets in bytes, with the IP header.
    #[arg(long, default_value_t = 9001, value_parser = clap::value_parser!(u16).range(28..))]
    pub packet: u16,
    /// Number of pairs of pods that send 1 MB in each direction over TCP.
    #[arg(long, default_value_t = 24)]
    pub tcp: usize,
    /// Longest wait for an answer.
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
