//! The addresses of a node: ENIs, their blocks, and the use of each address.

use crate::Subnet;
use serde::{Deserialize, Serialize};

/// The address book of a node at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Addresses {
    /// The version of the daemon.
    pub version: String,
    /// The node's name; `None` if the daemon does not know it.
    pub node: Option<String>,
    /// RFC 3339.
    pub at: String,
    /// `running`, `starting: …` or `stopping`.
    pub phase: String,
    /// The daemon requests /28 prefixes.
    pub prefixes: bool,
    pub subnets: Vec<Subnet>,
    /// By card and device number.
    pub enis: Vec<Eni>,
    /// The node's pod CIDRs, which belong to no subnet.
    pub pod_cidrs: Vec<String>,
    /// The addresses that are not free.
    pub used: Vec<UsedAddress>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Eni {
    pub id: String,
    pub subnet: String,
    /// IPv4; `None` while it is unknown.
    pub subnet_cidr: Option<String>,
    /// The network card.
    pub card: u16,
    /// The ENI's number on its card.
    pub device: u16,
    /// Such as `standard` or `trunk`; `None` until EC2 has shown it.
    pub kind: Option<String>,
    /// No pod gets it.
    pub primary_address: Option<String>,
    /// Secondary addresses and prefixes, as CIDRs.
    pub blocks: Vec<String>,
    /// Pods may use it. Other ENIs only occupy a place.
    pub managed: bool,
    /// Pods get no new addresses of it.
    pub excluded: bool,
    /// True while the daemon removes it.
    pub leaving: bool,
    /// EC2 and the metadata service lack it, but pods use its addresses.
    pub missing: bool,
    /// Blocks that EC2 and the metadata service lack, but pods use.
    pub lost: Vec<String>,
    /// Addresses for pods.
    pub total: u64,
    pub assigned: u32,
    pub cooling: u32,
    pub free: u64,
}

/// An address in use or in cooldown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct UsedAddress {
    pub address: String,
    /// `None` for an address of a pod CIDR.
    pub eni: Option<String>,
    /// `None` in cooldown.
    pub pod: Option<PodRef>,
    /// The time since the reservation or the release.
    pub seconds: u64,
    /// In cooldown: the time for which the cooldown is over, while the kernel still shows the address.
    pub stuck_seconds: Option<u64>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodRef {
    pub namespace: String,
    pub name: String,
    /// True if its ADD is complete.
    pub confirmed: bool,
}
