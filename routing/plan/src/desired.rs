//! What the node's networking should be.

use crate::SysctlName;
use config_model::{EniId, Mac, Mark, PodKey, TableId, VethName};
use ipnet::Ipv4Net;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

/// The host networking of one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDesired {
    /// The ENI that the node itself lives on.
    pub primary: PrimaryDesired,
    /// The mark of connections that must use the primary ENI; `None` if nothing marks.
    pub connmark: Option<Mark>,
    /// The secondary ENIs.
    pub enis: Vec<EniDesired>,
    /// Every pod interface with an address, those of ADDs in flight among them.
    pub pods: Vec<PodDesired>,
    /// Further addresses whose kernel objects are someone's work in progress: left alone.
    pub spared: BTreeSet<Ipv4Addr>,
    /// Every address of our ENIs, primary ones too. What an orphan must carry to be ours, where
    /// nothing else proves it.
    pub managed: BTreeSet<Ipv4Addr>,
    /// What host veths are called, as amazon-vpc-cni's setting has it: `eni`.
    pub veth_prefix: String,
    /// Settings that are files, by name.
    pub sysctls: BTreeMap<SysctlName, String>,
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
    /// Its primary address: the only one that goes on the link.
    pub address: Ipv4Addr,
    /// Its subnet; the gateway is the base plus one.
    pub subnet: Ipv4Net,
    /// The route table of what comes from its addresses.
    pub table: TableId,
    /// Largest packet in bytes.
    pub mtu: u32,
}

impl EniDesired {
    /// The address of the subnet's router.
    pub fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.subnet.network()).saturating_add(1))
    }
}

/// One interface of one pod, as far as the host is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodDesired {
    /// Which; also the alias of its host veth.
    pub key: PodKey,
    /// The name of its host veth, by which pods of before are found that carry no alias.
    pub veth: VethName,
    /// Its address.
    pub address: Ipv4Addr,
    /// The table of its ENI.
    pub table: TableId,
    /// Whether the plugin has built it. Only then is it defended; before, it is left alone.
    pub confirmed: bool,
}
