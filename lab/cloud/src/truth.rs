//! What is really plugged in where: the fabric's orders.

use crate::{InstanceState, SecurityGroup};
use config_model::{
    CardIndex, DeviceIndex, EniId, InstanceId, Mac, SecurityGroupId, SubnetId, VpcId,
};
use ipnet::Ipv4Net;
use serde::Serialize;
use std::{collections::BTreeMap, net::Ipv4Addr};

/// The whole network as it is now, without lag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Truth {
    /// Grows with every change; equal versions mean equal truths.
    pub version: u64,
    /// The VPC.
    pub vpc_id: VpcId,
    /// Its CIDR blocks, the primary first.
    pub vpc_cidrs: Vec<Ipv4Net>,
    /// All subnets.
    pub subnets: Vec<TruthSubnet>,
    /// All security groups, by id.
    pub security_groups: BTreeMap<SecurityGroupId, SecurityGroup>,
    /// All instances that are not forgotten yet; terminated ones have no ENIs.
    pub instances: Vec<TruthInstance>,
}

/// A subnet for the router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruthSubnet {
    /// Its id.
    pub id: SubnetId,
    /// The operator's name for it.
    pub name: String,
    /// Its addresses.
    pub cidr: Ipv4Net,
    /// Base + 1.
    pub gateway: Ipv4Addr,
    /// Its zone.
    pub availability_zone: String,
}

/// An instance and the ENIs that it sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruthInstance {
    /// Its id.
    pub id: InstanceId,
    /// Its `Name` tag, or its id.
    pub name: String,
    /// Its type.
    pub instance_type: String,
    /// Where it is in its life; ENIs of a stopped instance stay attached.
    pub state: InstanceState,
    /// How often it has booted; a change means that it was rebooted or started.
    pub boots: u32,
    /// The IP TTL of IMDS answers.
    pub metadata_hop_limit: u8,
    /// ENIs whose attachment is complete (or not yet detached), by card and device.
    pub enis: Vec<TruthEni>,
}

/// An ENI that is plugged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruthEni {
    /// Its id.
    pub id: EniId,
    /// Its MAC.
    pub mac: Mac,
    /// The card.
    pub network_card_index: CardIndex,
    /// The place on the card.
    pub device_index: DeviceIndex,
    /// Its subnet.
    pub subnet_id: SubnetId,
    /// The subnet's addresses.
    pub subnet_cidr: Ipv4Net,
    /// The subnet's router.
    pub gateway: Ipv4Addr,
    /// Its own address.
    pub primary: Ipv4Addr,
    /// Further addresses.
    pub secondary: Vec<Ipv4Addr>,
    /// Delegated prefixes.
    pub prefixes: Vec<Ipv4Net>,
    /// A public address, mapped to the primary one.
    pub public_ip: Option<Ipv4Addr>,
    /// Its security groups; the rules are in [`Truth::security_groups`].
    pub security_groups: Vec<SecurityGroupId>,
    /// Whether packets from or to other addresses are dropped.
    pub source_dest_check: bool,
}

impl TruthEni {
    /// Every single address of it, the primary first; prefixes are not expanded.
    pub fn addresses(&self) -> impl Iterator<Item = Ipv4Addr> + '_ {
        std::iter::once(self.primary).chain(self.secondary.iter().copied())
    }
}

impl Truth {
    /// The ENIs that have this security group, with their instances.
    pub fn members<'a>(
        &'a self,
        group: &'a SecurityGroupId,
    ) -> impl Iterator<Item = (&'a TruthInstance, &'a TruthEni)> + 'a {
        self.instances
            .iter()
            .flat_map(|instance| instance.enis.iter().map(move |eni| (instance, eni)))
            .filter(move |(_, eni)| eni.security_groups.contains(group))
    }
}
