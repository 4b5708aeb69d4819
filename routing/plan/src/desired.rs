//! What the node's networking should be.

use crate::{Branch, Family, SysctlName, egress};
use config_model::{EniId, Mac, Mark, PodKey, PodName, RuleLayout, TableId, VethName, registry};
use ipnet::{IpNet, Ipv4Net};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

/// The host networking of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDesired {
    /// The family of the pods' addresses. What of the other family is left of before still goes.
    pub family: Family,
    /// How the rules for pods are laid out. What is left of the other way still goes.
    pub layout: RuleLayout,
    /// The ENI that the node itself lives on.
    pub primary: PrimaryDesired,
    /// The mark of connections that must use the primary ENI; `None` if nothing marks.
    pub connmark: Option<Mark>,
    /// Ranges of external Services, which are routed by table main whoever asks.
    pub external: BTreeSet<Ipv4Net>,
    /// The secondary ENIs.
    pub enis: Vec<EniDesired>,
    /// Every pod interface with an address, those of ADDs in flight among them: one for each
    /// interface of a pod, see [`PodDesired::interfaces`].
    pub pods: Vec<PodDesired>,
    /// Every pod with a branch ENI, those of ADDs in flight among them.
    pub branches: Vec<BranchDesired>,
    /// The trunk that carries the branches, once it is known.
    pub trunk: Option<Mac>,
    /// Whether pods with branch ENIs are to be strict. One that was built so stays so anyhow.
    pub strict: bool,
    /// Further addresses whose kernel objects are someone's work in progress: left alone.
    pub spared: BTreeSet<IpAddr>,
    /// Every block of our ENIs, their primary addresses too. What an orphan must carry to be ours,
    /// where nothing else proves it.
    pub managed: BTreeSet<IpNet>,
    /// What host veths are called, as amazon-vpc-cni's setting has it: `eni`.
    pub veth_prefix: String,
    /// Whether pods reach the other family's destinations: see [`crate::egress`].
    pub egress: bool,
    /// Settings that are files, by name: see [`Family::sysctls`]. What is not observed the kernel does
    /// not have.
    pub sysctls: BTreeMap<SysctlName, String>,
}

impl NodeDesired {
    /// The keys of every pod interface.
    pub(crate) fn keys(&self) -> impl Iterator<Item = &PodKey> {
        let branches = self.branches.iter().map(|pod| &pod.key);
        self.pods.iter().map(|pod| &pod.key).chain(branches)
    }
}

/// The primary ENI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrimaryDesired {
    /// By which its link is found.
    pub mac: Mac,
    /// Largest packet in bytes.
    pub mtu: u32,
}

/// A secondary ENI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EniDesired {
    /// Which.
    pub eni: EniId,
    /// By which its link is found.
    pub mac: Mac,
    /// Its primary address: the only one that goes on the link. An ENI may have an IPv6 prefix and
    /// no IPv6 address of its own.
    pub address: Option<IpAddr>,
    /// Its subnet, of the node's family; for IPv4 the gateway is the base plus one.
    pub subnet: IpNet,
    /// The route table of what comes from its addresses.
    pub table: TableId,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// The addresses that it has for pods, singly or by prefix.
    pub blocks: BTreeSet<IpNet>,
    /// Whether it is a trunk: then nothing leaves by its own address, and no rule sends it there.
    pub trunk: bool,
}

impl EniDesired {
    /// The address of the subnet's router.
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

/// One interface of one pod, as far as the host is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDesired {
    /// Which; also the alias of its host veth.
    pub key: PodKey,
    /// The name of its host veth, by which pods of before are found that carry no alias.
    pub veth: VethName,
    /// Its address.
    pub address: IpAddr,
    /// The table of its ENI.
    pub table: TableId,
    /// Whether the plugin has built it. Only then is it defended; before, it is left alone.
    pub confirmed: bool,
}

impl PodDesired {
    /// The IPv6 address that the pod has besides its IPv4 address where there is egress. Further
    /// interfaces have none.
    pub(crate) fn egress_v6(&self) -> Option<IpAddr> {
        match self.address {
            IpAddr::V4(own) if self.key.number() == 0 => Some(egress::v6_of(own).into()),
            IpAddr::V4(_) | IpAddr::V6(_) => None,
        }
    }

    /// The interfaces of one pod, in the order in which its addresses were reserved under `key`:
    /// the first is `key`'s own, the others have names and host veths that follow from it.
    pub fn interfaces(
        key: &PodKey,
        pod: &PodName,
        veth_prefix: &str,
        confirmed: bool,
        addresses: impl IntoIterator<Item = (IpAddr, TableId)>,
    ) -> impl Iterator<Item = Self> {
        (0..=u8::MAX).zip(addresses).map(move |(number, (address, table))| Self {
            key: key.interface(number),
            veth: VethName::of(veth_prefix, pod, number),
            address,
            table,
            confirmed,
        })
    }
}

/// A pod with a branch ENI, as far as the host is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BranchDesired {
    /// Which; also the alias of its host veth and of the link that carries its branch.
    pub key: PodKey,
    /// The name of its host veth if it is strict.
    pub strict_veth: VethName,
    /// The name of its host veth if it is not.
    pub standard_veth: VethName,
    /// Its address.
    pub address: IpAddr,
    /// Its branch; how strict it is, its host veth says.
    pub branch: Branch,
    /// Whether the plugin has built it. Only then is it defended; before, it is left alone.
    pub confirmed: bool,
}

impl BranchDesired {
    /// The pod of this name, whose branch is built as `branch` says unless its host veth exists.
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
    /// The settings that are files without which no packet of a pod leaves the node.
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

/// Whether the node forwards IPv6.
pub(crate) const FORWARDING_V6: &str = "net/ipv6/conf/all/forwarding";
