//! The desired state of the node's networking.

use crate::{Branch, Family, SysctlName, egress};
use config_model::{
    EniId, HostEndMode, Mac, Mark, PodKey, PodName, RuleLayout, TableId, VethName, registry,
};
use ipnet::{IpNet, Ipv4Net};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

/// The host networking of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDesired {
    /// The family of the pods' addresses. Remains of the other family are still removed.
    pub family: Family,
    /// Layout of the rules for pods. Remains of the other layout are still removed.
    pub layout: RuleLayout,
    pub primary: PrimaryDesired,
    /// The mark of connections that must use the primary ENI; `None` if no component sets one.
    pub connmark: Option<Mark>,
    /// Ranges of external Services. Packets to them use table main, whatever their source.
    pub external: BTreeSet<Ipv4Net>,
    pub enis: Vec<EniDesired>,
    /// Every pod interface with an address, including those of ADDs in progress: one per interface, see
    /// [`PodDesired::interfaces`].
    pub pods: Vec<PodDesired>,
    /// Every pod with a branch ENI, including those of ADDs in progress.
    pub branches: Vec<BranchDesired>,
    /// The trunk ENI's address; `None` until it is known.
    pub trunk: Option<Mac>,
    /// Mode of new pods with branch ENIs. A pod keeps the mode with which it was built.
    pub strict: bool,
    /// Further addresses whose kernel objects another process is changing: no operation touches them.
    pub spared: BTreeSet<IpAddr>,
    /// Every block of our ENIs and of the node's pod CIDRs, and the ENIs' primary addresses. An orphan without our
    /// protocol number must have one of them.
    pub managed: BTreeSet<IpNet>,
    /// The prefix of host veths' names, `eni` by default (amazon-vpc-cni's setting).
    pub veth_prefix: String,
    /// True if pods reach destinations of the other family: see [`crate::egress`].
    pub egress: bool,
    /// Desired sysctls by name: see [`Family::sysctls`]. A sysctl that is not observed does not exist in this kernel.
    pub sysctls: BTreeMap<SysctlName, String>,
}

impl NodeDesired {
    /// The keys of every pod interface.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &PodKey> {
        let branches = self.branches.iter().map(|pod| &pod.key);
        self.pods.iter().map(|pod| &pod.key).chain(branches)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryDesired {
    pub mac: Mac,
    /// In bytes.
    pub mtu: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EniDesired {
    pub eni: EniId,
    pub mac: Mac,
    /// Its primary address, the only one that the link gets. `None` for an ENI with an IPv6 prefix and no IPv6
    /// address of its own.
    pub address: Option<IpAddr>,
    /// Of the node's family. With IPv4 the gateway is the first address after the base.
    pub subnet: IpNet,
    /// The table for packets from its addresses.
    pub table: TableId,
    /// In bytes.
    pub mtu: u32,
    /// Its addresses for pods, single ones and prefixes.
    pub blocks: BTreeSet<IpNet>,
    /// True for a trunk. The host sends no packets from a trunk's own address, so it needs no rule.
    pub trunk: bool,
}

impl EniDesired {
    /// The subnet's router.
    pub fn gateway(&self) -> IpAddr {
        match self.subnet {
            IpNet::V4(subnet) => base_plus_one(subnet).into(),
            IpNet::V6(_) => registry::VPC_GATEWAY_V6.into(),
        }
    }
}

fn base_plus_one(subnet: Ipv4Net) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(subnet.network()).saturating_add(1))
}

/// One pod interface as the host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDesired {
    /// Also the alias of its host veth.
    pub key: PodKey,
    /// Identifies adopted pods, which have no alias.
    pub veth: VethName,
    pub address: IpAddr,
    /// The table of its ENI.
    pub table: TableId,
    /// The link of the host's route to it: its host veth, or the gateway port of a bridge.
    pub host_end: HostEndMode,
    /// True once the plugin has confirmed the build. The plan repairs confirmed pods only.
    pub confirmed: bool,
    /// True for a pod that amazon-vpc-cni built.
    pub adopted: bool,
}

impl PodDesired {
    /// The pod's second address if it is an IPv4 pod and has dual egress. Further interfaces have none.
    pub(crate) fn egress_v6(&self) -> Option<IpAddr> {
        match self.address {
            IpAddr::V4(own) if self.key.number() == 0 => Some(egress::v6_of(own).into()),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        }
    }

    /// The interfaces of one pod, in the order in which its addresses were reserved under `key`. The first interface
    /// has `key` itself; the names and host veths of the others are derived from it.
    pub fn interfaces(
        key: &PodKey,
        pod: &PodName,
        veth_prefix: &str,
        host_end: &HostEndMode,
        confirmed: bool,
        addresses: impl IntoIterator<Item = (IpAddr, TableId)>,
    ) -> impl Iterator<Item = Self> {
        (0..=u8::MAX).zip(addresses).map(move |(number, (address, table))| Self {
            key: key.interface(number),
            veth: VethName::of(veth_prefix, pod, number),
            address,
            table,
            host_end: host_end.clone(),
            confirmed,
            adopted: false,
        })
    }
}

/// A pod with a branch ENI as the host sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchDesired {
    /// Also the alias of its host veth and of its VLAN link.
    pub key: PodKey,
    /// The name of its host veth in mode strict.
    pub strict_veth: VethName,
    /// The name of its host veth in mode standard.
    pub standard_veth: VethName,
    pub address: IpAddr,
    /// Its mode applies only until the host veth exists: the veth's name shows the actual one.
    pub branch: Branch,
    /// True once the plugin has confirmed the build. The plan repairs confirmed pods only.
    pub confirmed: bool,
}

impl BranchDesired {
    /// `branch` has the mode for a pod that is not built yet.
    pub fn new(
        key: PodKey,
        pod: &PodName,
        veth_prefix: &str,
        address: IpAddr,
        branch: Branch,
        confirmed: bool,
    ) -> Self {
        let veth = |prefix| VethName::of(prefix, pod, 0);
        let strict_veth = veth(registry::STRICT_VETH_PREFIX);
        Self { key, strict_veth, standard_veth: veth(veth_prefix), address, branch, confirmed }
    }
}

impl Family {
    /// The sysctls without which the node forwards no packet of a pod.
    pub fn sysctls(self) -> BTreeMap<SysctlName, String> {
        let wanted: &[(&str, &str)] = match self {
            Self::V4 => &[("net/ipv4/ip_forward", "1")],
            Self::V6 => &[("net/ipv6/conf/all/disable_ipv6", "0"), (FORWARDING_V6, "1")],
        };
        let named =
            |(name, value): &(&str, &str)| Some((SysctlName::new(*name)?, (*value).to_owned()));
        wanted.iter().filter_map(named).collect()
    }
}

/// True if the node forwards IPv6.
pub(crate) const FORWARDING_V6: &str = "net/ipv6/conf/all/forwarding";
