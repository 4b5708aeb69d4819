//! The observation of a node, in the terms of the checks.

use config_model::{Mac, TableId};
use ipnet::IpNet;
use std::{collections::BTreeMap, net::IpAddr};

/// A value, or the reason why it could not be read.
pub type Observed<T> = Result<T, String>;

/// The input of all checks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    pub routing: Observed<Routing>,
    /// Settings below `/proc/sys` by name. A setting that the kernel lacks is absent.
    pub sysctls: BTreeMap<String, Observed<String>>,
    /// Settings at boot: name, value and file. For each name the last file counts.
    pub sysctl_files: Vec<(String, String, String)>,
    /// Network daemons that are enabled or running.
    pub units: Vec<Unit>,
    /// Paths of udev rules that start amazon-ec2-net-utils.
    pub udev_rules: Vec<String>,
    /// `.link` files with a MAC policy, in the order of systemd-udevd.
    pub link_files: Vec<LinkFile>,
    /// True if systemd-networkd keeps foreign rules; true if it keeps foreign routes.
    pub networkd_keeps: (bool, bool),
    pub unmanaged: Vec<String>,
    /// Chains of nftables, including those of iptables-nft.
    pub nft: Observed<Vec<Chain>>,
    pub legacy: Observed<Vec<Chain>>,
    pub imds: Imds,
    /// The expected MTU of ENIs.
    pub eni_mtu: u32,
    /// Features of the kernel by option name.
    pub features: BTreeMap<String, Feature>,
    /// The name prefix of pods' host veths.
    pub veth_prefix: String,
    /// `None` if the node's policy backend is not `ebpf`.
    pub ebpf: Option<Ebpf>,
}

/// The needs of the policy backend `ebpf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ebpf {
    /// The kernel's release, as `uname -r` prints it.
    pub release: Observed<String>,
    /// The folder of the pinned maps.
    pub pins: String,
    /// True if that folder, or the nearest folder above it that exists, is on a bpffs.
    pub has_bpffs: Observed<bool>,
    /// Each running `ferrule-agent`. Empty if none runs.
    pub agents: Observed<Vec<EbpfAgent>>,
    /// The runtime's configurations that chain the plugin `bandwidth` after `ferrule-cni`.
    pub bandwidth: Observed<Vec<String>>,
}

/// A running `ferrule-agent`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EbpfAgent {
    /// Effective capabilities, as bits by their kernel numbers.
    pub capabilities: u64,
    pub memory: Observed<AgentMemory>,
}

/// The memory of a `ferrule-agent`, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgentMemory {
    /// The lowest limit of its control group and of those above; `None` without a limit.
    pub limit: Option<u64>,
    /// Its setting for all maps, `FERRULE_AGENT_MAP_MEMORY`.
    pub maps: u64,
    /// Its need besides maps.
    pub others: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    pub links: Vec<LinkView>,
    pub rules: Vec<RuleView>,
    /// Every route outside table `local`.
    pub routes: Vec<RouteView>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkView {
    pub index: u32,
    pub name: String,
    pub mac: Option<Mac>,
    /// In bytes.
    pub mtu: u32,
    /// True if the link is hardware or loopback: the kernel has no kind for these.
    pub hardware: bool,
    /// True if the link is a host veth of a pod.
    pub of_pod: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleView {
    /// True if the rule is for IPv6.
    pub v6: bool,
    pub pref: u32,
    pub src: Option<IpNet>,
    pub dst: Option<IpNet>,
    /// True if the rule has any other selector.
    pub narrow: bool,
    /// True if the rule has selectors or actions that `text` lacks.
    pub partial: bool,
    pub table: TableId,
    pub protocol: u8,
    /// In the syntax of `ip rule`.
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteView {
    pub table: TableId,
    pub dst: IpNet,
    pub gateway: Option<IpAddr>,
    /// The index of the link.
    pub dev: Option<u32>,
    pub metric: u32,
    pub protocol: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    pub name: String,
    /// True if the unit starts at boot.
    pub enabled: bool,
    /// True if the unit runs.
    pub active: bool,
}

/// A `.link` file of systemd-udevd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFile {
    pub path: String,
    /// True if the file matches host veths.
    pub matches_veth: bool,
    pub mac_policy: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// `ip`, `ip6`, `inet`, …
    pub family: String,
    pub table: String,
    pub name: String,
    /// `None` for a chain that is only a jump target.
    pub hook: Option<String>,
    /// The verdict on packets that match no rule.
    pub policy: Option<String>,
    pub rules: usize,
}

/// The answers of the metadata service, or the error.
pub type Imds = Observed<Metadata>;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    pub primary: Option<Mac>,
    pub enis: Vec<Mac>,
    /// True if the hop limit lets answers reach pods; `None` if unknown.
    pub reaches_pods: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// The feature is built in, loaded or loadable.
    Present,
    Absent,
    /// The kernel's configuration and lists of modules are not readable.
    Unknown,
}
