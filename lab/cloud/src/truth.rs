//! Current attachments without lag: the input of the fabric.

use crate::{
    AttachmentStatus, Cloud, Instance, InstanceState, InterfaceKind, NetworkInterface,
    SecurityGroup, Subnet, TrunkAssociation,
};
use config_model::{
    CardIndex, DeviceIndex, EniId, InstanceId, Mac, SecurityGroupId, SubnetId, Time, VpcId,
};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::Serialize;
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

/// The whole network as it is now, without lag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Truth {
    /// Grows with every change; equal versions mean equal truths.
    pub version: u64,
    pub vpc_id: VpcId,
    /// Its CIDR blocks, the primary first.
    pub vpc_cidrs: Vec<Ipv4Net>,
    /// Its IPv6 blocks.
    pub vpc_ipv6_cidrs: Vec<Ipv6Net>,
    pub subnets: Vec<TruthSubnet>,
    /// All security groups, by id.
    pub security_groups: BTreeMap<SecurityGroupId, SecurityGroup>,
    /// All instances that are not forgotten yet; terminated ones have no ENIs.
    pub instances: Vec<TruthInstance>,
}

/// A subnet for the router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruthSubnet {
    pub id: SubnetId,
    /// The operator's name for it.
    pub name: String,
    /// Its addresses.
    pub cidr: Ipv4Net,
    /// Base + 1.
    pub gateway: Ipv4Addr,
    /// Its IPv6 addresses; their router is link-local.
    pub ipv6_cidr: Option<Ipv6Net>,
    pub availability_zone: String,
}

/// An instance and the ENIs that it sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruthInstance {
    pub id: InstanceId,
    /// Its `Name` tag, or its id.
    pub name: String,
    pub instance_type: String,
    /// ENIs of a stopped instance stay attached.
    pub state: InstanceState,
    /// Number of boots; a change means that it was rebooted or started.
    pub boots: u32,
    /// The IP TTL of IMDS answers.
    pub metadata_hop_limit: u8,
    /// Branches of its trunks, by VLAN: they have no device of their own.
    pub branches: Vec<TruthBranch>,
    /// ENIs whose attachment is complete (or not yet detached), by card and device. Efa-only ones
    /// are not among them: they bring no network device.
    pub enis: Vec<TruthEni>,
}

/// A branch: an ENI whose packets a trunk carries with a VLAN tag.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruthBranch {
    pub id: EniId,
    pub trunk: EniId,
    /// The VLAN on the trunk.
    pub vlan: u16,
    pub mac: Mac,
    pub subnet_id: SubnetId,
    /// The subnet's addresses.
    pub subnet_cidr: Ipv4Net,
    /// The subnet's router.
    pub gateway: Ipv4Addr,
    /// Its address.
    pub primary: Ipv4Addr,
    pub ipv6_addresses: Vec<Ipv6Addr>,
    /// Its security groups; the rules are in [`Truth::security_groups`].
    pub security_groups: Vec<SecurityGroupId>,
}

/// An ENI that is plugged in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TruthEni {
    pub id: EniId,
    pub mac: Mac,
    /// Only `interface`, `efa` or `trunk`.
    pub kind: InterfaceKind,
    pub network_card_index: CardIndex,
    /// The place on the card.
    pub device_index: DeviceIndex,
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
    /// The subnet's IPv6 addresses.
    pub subnet_ipv6_cidr: Option<Ipv6Net>,
    pub ipv6_addresses: Vec<Ipv6Addr>,
    /// Delegated IPv6 prefixes.
    pub ipv6_prefixes: Vec<Ipv6Net>,
    /// A public address, mapped to the primary one.
    pub public_ip: Option<Ipv4Addr>,
    /// Its security groups; the rules are in [`Truth::security_groups`].
    pub security_groups: Vec<SecurityGroupId>,
    /// True if packets from or to other addresses are dropped.
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

impl Cloud {
    /// The network as it really is now.
    pub fn truth(&mut self, now: Time) -> Truth {
        self.advance(now);
        let state = &self.state;
        Truth {
            version: self.version,
            vpc_id: state.vpc.id.clone(),
            vpc_cidrs: state.vpc.cidrs.clone(),
            vpc_ipv6_cidrs: state.vpc.ipv6_cidrs.clone(),
            subnets: state.subnets.values().map(|subnet| truth_of_subnet(subnet)).collect(),
            security_groups: state
                .groups
                .values()
                .map(|group| (group.id.clone(), SecurityGroup::clone(group)))
                .collect(),
            instances: state.instances.values().map(|i| self.truth_of_instance(i)).collect(),
        }
    }

    /// Grows with every change of the truth that is visible at `now`.
    pub fn version(&mut self, now: Time) -> u64 {
        self.advance(now);
        self.version
    }

    /// One instance as it really is now; far cheaper than [`Cloud::truth`] where there are many.
    pub fn truth_of(&mut self, now: Time, instance: &InstanceId) -> Option<TruthInstance> {
        self.advance(now);
        let instance = self.state.instances.get(instance)?;
        Some(self.truth_of_instance(instance))
    }

    fn truth_of_instance(&self, instance: &Instance) -> TruthInstance {
        let name = instance.tags.get("Name").cloned();
        let enis: Vec<TruthEni> = self
            .state
            .enis_of(&instance.id)
            .into_iter()
            .filter_map(|eni| self.truth_of_eni(eni))
            .collect();
        let branches = enis
            .iter()
            .flat_map(|eni| self.trunks.branches(&eni.id))
            .filter_map(|association| self.truth_of_branch(association))
            .collect();
        TruthInstance {
            id: instance.id.clone(),
            name: name.unwrap_or_else(|| instance.id.to_string()),
            instance_type: instance.instance_type.clone(),
            state: instance.state,
            boots: instance.boots,
            metadata_hop_limit: instance.metadata_hop_limit,
            branches,
            enis,
        }
    }

    fn truth_of_branch(&self, association: &TrunkAssociation) -> Option<TruthBranch> {
        let eni = self.state.enis.get(&association.branch)?;
        let subnet = self.state.subnets.get(&eni.subnet_id)?;
        Some(TruthBranch {
            id: eni.id.clone(),
            trunk: association.trunk.clone(),
            vlan: association.vlan,
            mac: eni.mac,
            subnet_id: eni.subnet_id.clone(),
            subnet_cidr: subnet.cidr,
            gateway: gateway(subnet.cidr),
            primary: eni.primary_address()?,
            ipv6_addresses: eni.ipv6_addresses.clone(),
            security_groups: eni.groups.iter().map(|group| group.id.clone()).collect(),
        })
    }

    /// `None` while the instance does not see it.
    fn truth_of_eni(&self, eni: &NetworkInterface) -> Option<TruthEni> {
        let attachment = eni.attachment.as_ref()?;
        let subnet = self.state.subnets.get(&eni.subnet_id)?;
        if attachment.status == AttachmentStatus::Attaching || eni.kind == InterfaceKind::EfaOnly {
            return None;
        }
        Some(TruthEni {
            id: eni.id.clone(),
            mac: eni.mac,
            kind: eni.kind,
            network_card_index: attachment.network_card_index,
            device_index: attachment.device_index,
            subnet_id: eni.subnet_id.clone(),
            subnet_cidr: subnet.cidr,
            gateway: gateway(subnet.cidr),
            primary: eni.primary_address()?,
            secondary: eni.secondary_addresses().collect(),
            prefixes: eni.ipv4_prefixes.clone(),
            subnet_ipv6_cidr: subnet.ipv6_cidr,
            ipv6_addresses: eni.ipv6_addresses.clone(),
            ipv6_prefixes: eni.ipv6_prefixes.clone(),
            public_ip: eni.public_ip,
            security_groups: eni.groups.iter().map(|group| group.id.clone()).collect(),
            source_dest_check: eni.source_dest_check,
        })
    }
}

fn truth_of_subnet(subnet: &Subnet) -> TruthSubnet {
    TruthSubnet {
        id: subnet.id.clone(),
        name: subnet.name.clone(),
        cidr: subnet.cidr,
        gateway: gateway(subnet.cidr),
        ipv6_cidr: subnet.ipv6_cidr,
        availability_zone: subnet.availability_zone.clone(),
    }
}

/// The VPC router's address in a subnet.
fn gateway(cidr: Ipv4Net) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(cidr.network()) + 1)
}
