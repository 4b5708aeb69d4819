//! What is seen of a node, in the words of the checks.

use config_model::{Mac, TableId};
use ipnet::IpNet;
use std::{collections::BTreeMap, net::IpAddr};

/// What was looked at, or why it could not be.
pub type Looked<T> = Result<T, String>;

/// Everything that the checks ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// Links, rules and routes.
    pub routing: Looked<Routing>,
    /// Settings below `/proc/sys`, by name. One that the kernel lacks is absent.
    pub sysctls: BTreeMap<String, Looked<String>>,
    /// What sets a setting at boot: setting, value and file, the last of the same setting in force.
    pub sysctl_files: Vec<(String, String, String)>,
    /// Network daemons that start or run here.
    pub units: Vec<Unit>,
    /// Rules of udev that run amazon-ec2-net-utils, as paths.
    pub udev_rules: Vec<String>,
    /// Files of systemd-udevd that say how links get their MAC, in the order they are asked.
    pub link_files: Vec<LinkFile>,
    /// Whether systemd-networkd is told to keep rules that it did not make, and such routes.
    pub networkd_keeps: (bool, bool),
    /// The `unmanaged-devices` of NetworkManager.
    pub unmanaged: Vec<String>,
    /// Chains that nft knows, those of iptables-nft among them.
    pub nft: Looked<Vec<Chain>>,
    /// Chains of legacy iptables.
    pub legacy: Looked<Vec<Chain>>,
    /// The instance metadata service.
    pub imds: Imds,
    /// The MTU that ENIs shall have.
    pub eni_mtu: u32,
    /// What the kernel can do, by the name of the option.
    pub features: BTreeMap<String, Feature>,
    /// What the host ends of pods' links are called, up to their own part.
    pub veth_prefix: String,
}

/// The kernel's routing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Routing {
    /// Every link.
    pub links: Vec<LinkView>,
    /// Every rule.
    pub rules: Vec<RuleView>,
    /// Every route outside table `local`.
    pub routes: Vec<RouteView>,
}

/// A link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkView {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its Ethernet address.
    pub mac: Option<Mac>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Whether it is hardware, or loopback: the kernel names no kind.
    pub hardware: bool,
    /// Whether it is the host end of a pod's link.
    pub of_pod: bool,
}

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleView {
    /// Whether it is of IPv6.
    pub v6: bool,
    /// Its priority.
    pub pref: u32,
    /// Source.
    pub src: Option<IpNet>,
    /// Destination.
    pub dst: Option<IpNet>,
    /// Whether it looks at anything else.
    pub narrow: bool,
    /// Whether what it looks at, or does, is not wholly told by `text`.
    pub untold: bool,
    /// The table.
    pub table: TableId,
    /// Who made it.
    pub protocol: u8,
    /// As `ip rule` takes it.
    pub text: String,
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteView {
    /// The table.
    pub table: TableId,
    /// What it leads to.
    pub dst: IpNet,
    /// The next hop.
    pub gateway: Option<IpAddr>,
    /// The number of its link.
    pub dev: Option<u32>,
    /// Its metric.
    pub metric: u32,
    /// Who made it.
    pub protocol: u8,
}

/// A unit of systemd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unit {
    /// Its name.
    pub name: String,
    /// Whether it starts at boot.
    pub enabled: bool,
    /// Whether it runs now.
    pub active: bool,
}

/// A `.link` file of systemd-udevd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkFile {
    /// Where it is.
    pub path: String,
    /// Whether it is for the host ends of pods' links.
    pub matches_veth: bool,
    /// Its `MACAddressPolicy`.
    pub mac_policy: Option<String>,
}

/// A chain of netfilter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// `ip`, `ip6`, `inet`, …
    pub family: String,
    /// Its table.
    pub table: String,
    /// Its name.
    pub name: String,
    /// Where in the packet's path it stands; `None` if it is only jumped to.
    pub hook: Option<String>,
    /// What becomes of a packet that no rule took.
    pub policy: Option<String>,
    /// How many rules it has.
    pub rules: usize,
}

/// What the metadata service says, or why it does not.
pub type Imds = Looked<Metadata>;

/// What the metadata service says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metadata {
    /// The MAC of the primary ENI.
    pub primary: Option<Mac>,
    /// The MACs of all ENIs.
    pub enis: Vec<Mac>,
    /// Whether an answer's hop limit takes it further than this node; not known if `None`.
    pub reaches_pods: Option<bool>,
}

/// Whether the kernel can do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// It is there, or is loaded when asked for.
    Present,
    /// It is not.
    Absent,
    /// Nothing tells.
    Untold,
}
