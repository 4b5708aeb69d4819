//! What the VPC's router counted.

use config_model::EniId;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::Ipv4Addr};

/// Packets and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Packets {
    /// How many packets.
    pub packets: u64,
    /// How many bytes, IP headers included.
    pub bytes: u64,
}

/// Why the router dropped a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DropReason {
    /// Its source is no address of the ENI that it came from.
    SourceCheck,
    /// No egress rule of the sending ENI's groups allows it.
    GroupEgress,
    /// No ingress rule of the receiving ENI's groups allows it.
    GroupIngress,
    /// Its source has no public address and its destination is on the internet.
    NoPublicAddress,
    /// Its destination lies in the VPC but no attached ENI holds it.
    NoSuchAddress,
    /// It came from the internet and is not for an instance.
    FromInternet,
}

/// What one ENI's port counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EniCounters {
    /// Packets that came from the node by this ENI, by source; every address of the ENI is listed.
    pub sources: BTreeMap<Ipv4Addr, Packets>,
    /// Packets that came from the node by this ENI and failed the source check, by source.
    pub spoofed: BTreeMap<Ipv4Addr, Packets>,
    /// Packets towards the internet that had no public address, by source.
    pub no_public_address: BTreeMap<Ipv4Addr, Packets>,
}

/// What the VPC's router counted since the lab was made; an ENI's counts go when it is detached, an
/// address's when it is unassigned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters {
    /// By ENI.
    pub enis: BTreeMap<EniId, EniCounters>,
    /// Drops by reason; every reason is listed.
    pub drops: BTreeMap<DropReason, Packets>,
}

impl Counters {
    /// How many packets were dropped for this reason.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(&reason).map_or(0, |count| count.packets)
    }
}
