//! Messages between the lab's server and its command line: JSON over a unix socket.

mod balancer;
mod client;
mod cloud;

pub use balancer::{
    BalancerOrder, BalancerSpec, BalancerView, ClientView, Listener, PublicNode, TargetView,
};
pub use client::{Client, ClientError};
pub use cloud::{
    BranchSpec, BranchView, EniOrder, EniSpec, GroupSpec, GroupView, IamView, InterfaceView,
    SubnetOrder, SubnetSpec, SubnetView,
};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// Names of a node's ENI devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Profile {
    /// eth0, eth1, …
    #[default]
    Eth,
    /// ens5, ens6, …: the kernel names a device ethN, and udev renames it a moment later.
    Ens,
    /// As `eth`, but a network manager configures every ENI, as DHCP would.
    NetworkManager,
}

/// Network plugin of a node's pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Cni {
    /// Our daemon and plugin.
    #[default]
    Ferrule,
    /// amazon-vpc-cni's agent and plugins, with its own conflist.
    AmazonVpcCni,
}

/// Properties of a new node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeSpec {
    /// `None` picks the next free `nodeN`.
    pub name: Option<String>,
    /// Index of the primary ENI's subnet; `None` takes the subnets in turn.
    pub subnet: Option<usize>,
    pub instance_type: String,
    /// The type that metadata reports; `None` is the instance type.
    #[serde(default)]
    pub shown_type: Option<String>,
    /// ENIs in addition to the primary one.
    #[serde(default)]
    pub interfaces: Vec<lab_cloud::LaunchInterface>,
    pub profile: Profile,
    /// True if the production daemon runs.
    pub daemon: bool,
    #[serde(default)]
    pub cni: Cni,
    /// Folder of amazon-vpc-cni's programs.
    #[serde(default)]
    pub cni_dir: Option<std::path::PathBuf>,
    /// The daemon's settings.
    pub env: BTreeMap<String, String>,
}

/// A pod to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PodSpec {
    pub node: String,
    /// The Kubernetes namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// Its annotations, which the runtime hands to plugins that ask for them.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
}

/// A fault to be set.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
pub enum FaultSpec {
    /// RequestLimitExceeded for every n-th call of an action, or of all.
    Throttle {
        action: Option<String>,
        /// Every how many calls.
        every: u32,
    },
    /// This code for calls of an action, or of all.
    Error {
        /// EC2's code.
        code: String,
        action: Option<String>,
        /// Number of calls; until cleared if absent.
        times: Option<u32>,
    },
    /// The answer of every n-th call is lost after acting.
    LoseReplies {
        action: Option<String>,
        /// Every how many calls.
        every: u32,
    },
    /// Answers come late.
    Latency { action: Option<String>, delay_ms: u64 },
    /// Instance metadata lags.
    ImdsLag { lag_ms: u64 },
    /// Instance metadata answers with this HTTP status.
    ImdsStatus { status: u16 },
    /// Describe calls lag.
    ReadLag { lag_ms: u64 },
    /// `DeleteOnTermination` is accepted and not kept.
    ForgetTermination {
        /// Number of times; until cleared if absent.
        times: Option<u32>,
    },
    /// New attachments stay `attaching`.
    AttachNever,
    /// An ENI is detached behind the daemon's back.
    Detach { eni: String },
}

/// A fault that is set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FaultView {
    /// Its handle.
    pub id: String,
    /// The fault's definition.
    #[serde(flatten)]
    pub fault: serde_json::Value,
}

/// Extent of a check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckSpec {
    /// The length of the ICMP packets, IP header included.
    pub packet: u16,
    /// Number of pairs that use TCP.
    pub tcp: usize,
    /// Time limit for an answer.
    pub timeout_ms: u64,
}

/// Result of a check.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CheckView {
    /// True if every pair was reached.
    pub passed: bool,
    /// Ordered pairs of pods.
    pub pod_pairs: usize,
    /// Subset of the tried pairs.
    pub pod_pairs_reached: usize,
    /// Pods that were not probed: their namespaces went when their node went down.
    pub without_namespace: usize,
    /// The fabric's whole report.
    #[serde(flatten)]
    pub report: lab_fabric::probe::ProbeReport,
}

/// Counters of the VPC and EC2.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CountersView {
    /// The router's.
    #[serde(flatten)]
    pub fabric: lab_fabric::Counters,
    /// EC2's: by action, then by outcome (`ok`, `reply-lost` or EC2's code).
    pub calls: BTreeMap<String, BTreeMap<String, u64>>,
}

/// Action on a node's daemon.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum DaemonOrder {
    /// Keep it running, with these settings in place of those of the same name.
    Start {
        /// The settings.
        env: BTreeMap<String, String>,
        /// The daemon's project; `None` keeps the last one.
        #[serde(default)]
        cni: Option<Cni>,
    },
    /// Run `ferrule-ipamd install` with the daemon's settings, and wait for its end. No effect with amazon-vpc-cni.
    Install,
    /// End it and keep it down.
    Stop,
    /// Send it a signal; one that ends it leads to a restart.
    Signal {
        /// Its number.
        signal: i32,
    },
}

/// A node as the lab shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NodeView {
    pub name: String,
    pub instance: String,
    /// The instance's type.
    pub instance_type: String,
    /// The instance's state in EC2's words.
    pub state: String,
    /// Its availability zone.
    pub zone: String,
    /// Its primary address.
    pub address: Option<Ipv4Addr>,
    /// The address at which clients outside the VPC reach its primary address.
    #[serde(default)]
    pub public_address: Option<Ipv4Addr>,
    /// Its cgroup in the machine's tree of cgroup v2; none on a machine without it.
    #[serde(default)]
    pub cgroup: Option<std::path::PathBuf>,
    /// Its ENIs, in the order of their device numbers.
    pub enis: Vec<EniView>,
    pub daemon: DaemonView,
    /// Number of its pods.
    pub pods: usize,
}

/// An ENI as the lab shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EniView {
    pub id: String,
    /// `interface`, `efa` or `trunk`.
    pub kind: String,
    /// The network card.
    pub card: u16,
    /// Its device number.
    pub device: u16,
    /// Its MAC address.
    pub mac: String,
    pub subnet: String,
    /// Its primary address.
    pub primary: Ipv4Addr,
    /// Its other addresses.
    pub secondary: Vec<Ipv4Addr>,
    /// Its prefixes, /28 and /80.
    pub prefixes: Vec<ipnet::IpNet>,
    pub ipv6_addresses: Vec<Ipv6Addr>,
}

/// The daemon of a node as the lab shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DaemonView {
    /// `running`, `waiting` (for its restart) or `stopped`.
    pub state: String,
    /// Its process.
    pub pid: Option<u32>,
    /// Number of restarts.
    pub restarts: u32,
}

/// A pod as the lab shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PodView {
    /// The Kubernetes namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    pub node: String,
    /// Its first address.
    pub address: Option<IpAddr>,
    /// All its addresses: one a family and interface.
    pub addresses: Vec<IpAddr>,
    /// The ENI that holds the address, as EC2 has it now.
    pub eni: Option<String>,
    /// The ENI's device number.
    pub device: Option<u16>,
    /// Its sandbox.
    pub container_id: String,
    /// Its network namespace as the node sees it.
    pub netns: String,
    /// False after its node has gone down.
    pub has_namespace: bool,
    /// Run time of the plugin for the ADD, in microseconds.
    pub add_us: u64,
    /// The plugin's answer.
    pub result: serde_json::Value,
}

/// The lab as a whole.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StatusView {
    /// The lab's name.
    pub name: String,
    /// Its server's process.
    pub pid: u32,
    /// The EC2 endpoint as nodes see it.
    pub ec2_endpoint: String,
    /// The Kubernetes API server as nodes see it, if the lab forwards to one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_server: Option<String>,
    pub subnets: Vec<SubnetView>,
    pub nodes: Vec<NodeView>,
    /// Number of its pods.
    pub pods: usize,
}

/// Reason for the refusal of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The reason, with its causes.
    pub error: String,
    /// The plugin's own error object, when it was the plugin that refused.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cni: Option<serde_json::Value>,
}

/// The end of a log.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LogFile {
    /// Path on this machine.
    pub path: std::path::PathBuf,
    /// Its last lines.
    pub lines: Vec<String>,
}
