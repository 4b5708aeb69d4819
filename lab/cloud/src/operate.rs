//! Operations outside the API of the daemon: VPC blocks, subnets, security groups, permissions, faults, forced
//! detachment.

use crate::{
    Cloud, Fault, FaultId, Iam, InstanceState, InstanceType, OperateError, Peer, Protocol, Rule,
    SecurityGroup, SecurityGroupSpec, Subnet, SubnetSpec, ipv6::AddressPool6, spec::check_vpc,
    subnet::AddressPool, transition::Transition,
};
use config_model::{EniId, InstanceId, SecurityGroupId, SubnetId, Time};
use ipnet::{Ipv4Net, Ipv6Net};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

impl InstanceType {
    /// The type of this name.
    ///
    /// # Errors
    /// Lists the existing types of the same family if that is known, else the families.
    pub fn require(name: &str) -> Result<&'static Self, OperateError> {
        if let Some(found) = Self::named(name) {
            return Ok(found);
        }
        let family = |name: &str| name.split('.').next().unwrap_or_default().to_owned();
        let all = || Self::all().iter().map(|kind| kind.name);
        let wanted = family(name);
        let near: Vec<&str> = all().filter(|known| family(known) == wanted).collect();
        let hint = if near.is_empty() {
            let families: BTreeSet<String> = all().map(family).collect();
            format!("families: {}", families.into_iter().collect::<Vec<_>>().join(", "))
        } else {
            format!("of {wanted} there are: {}", near.join(", "))
        };
        Err(OperateError::NoType { name: name.to_owned(), hint })
    }
}

impl Cloud {
    /// The subnet that the operator called so.
    pub fn subnet_named(&self, name: &str) -> Option<&Subnet> {
        self.state.subnets.values().find(|subnet| subnet.name == name).map(Arc::as_ref)
    }

    /// The security group of this name.
    pub fn group_named(&self, name: &str) -> Option<SecurityGroupId> {
        self.state.groups.values().find(|group| group.name == name).map(|group| group.id.clone())
    }

    /// The instance whose `Name` tag this is and that is not terminated.
    pub fn instance_named(&self, name: &str) -> Option<InstanceId> {
        let found = self.state.instances.values().find(|instance| {
            !matches!(instance.state, InstanceState::ShuttingDown | InstanceState::Terminated)
                && instance.tags.get("Name").is_some_and(|tag| tag == name)
        })?;
        Some(found.id.clone())
    }

    /// Associates one more block of addresses with the VPC. Instances see it in IMDS, and callers in
    /// DescribeVpcs, at once: neither lags for a VPC.
    ///
    /// # Errors
    /// If it is no block that a VPC can have, or overlaps what is there.
    pub fn associate_block(&mut self, now: Time, cidr: Ipv4Net) -> Result<(), OperateError> {
        self.advance(now);
        check_vpc(cidr)?;
        let overlaps = |other: &Ipv4Net| other.contains(&cidr) || cidr.contains(other);
        if self.state.vpc.cidrs.iter().any(overlaps) {
            return Err(OperateError::BadVpc { cidr, why: "overlaps another block of the VPC" });
        }
        if overlaps(&self.spec.public_pool) {
            return Err(OperateError::BadVpc { cidr, why: "overlaps the public addresses" });
        }
        self.edit(|state, _| Arc::make_mut(&mut state.vpc).cidrs.push(cidr));
        Ok(())
    }

    /// # Errors
    /// If it is outside the VPC or overlaps another subnet.
    pub fn add_subnet(&mut self, now: Time, spec: SubnetSpec) -> Result<SubnetId, OperateError> {
        self.advance(now);
        let cidr = spec.cidr;
        let bad = |why| Err(OperateError::BadSubnet { cidr, why });
        if cidr.trunc() != cidr || !(16..=28).contains(&cidr.prefix_len()) {
            return bad("is not a /16 to /28 network");
        }
        if !self.state.vpc.cidrs.iter().any(|vpc| vpc.contains(&cidr)) {
            return bad("lies outside of the VPC");
        }
        let overlaps = |other: &Subnet| other.cidr.contains(&cidr) || cidr.contains(&other.cidr);
        if self.state.subnets.values().any(|other| overlaps(other)) {
            return bad("overlaps another subnet");
        }
        self.check_ipv6_of_subnet(&spec)?;
        let id = SubnetId::new(self.rng.id("subnet"));
        let pool = AddressPool::new(cidr);
        let mut tags = spec.tags;
        tags.insert("Name".to_owned(), spec.name.clone());
        let subnet = Subnet {
            id: id.clone(),
            name: spec.name,
            vpc_id: self.state.vpc.id.clone(),
            owner_id: self.spec.account.clone(),
            cidr,
            ipv6_cidr: spec.ipv6_cidr,
            assign_ipv6_address_on_creation: spec.assign_ipv6_address_on_creation,
            availability_zone_id: zone_id(&spec.availability_zone),
            availability_zone: spec.availability_zone,
            available_ip_address_count: pool.free(),
            map_public_ip_on_launch: spec.map_public_ip_on_launch,
            tags,
        };
        self.pools.insert(id.clone(), pool);
        if let Some(cidr) = spec.ipv6_cidr {
            self.pools6.insert(id.clone(), AddressPool6::new(cidr));
        }
        self.edit(|state, stamp| state.subnets.insert(stamp, id.clone(), subnet));
        Ok(id)
    }

    fn check_ipv6_of_subnet(&self, spec: &SubnetSpec) -> Result<(), OperateError> {
        let Some(cidr) = spec.ipv6_cidr else {
            if spec.assign_ipv6_address_on_creation {
                let (cidr, why) = (spec.cidr, "gives each ENI an IPv6 address and has none itself");
                return Err(OperateError::BadSubnet { cidr, why });
            }
            return Ok(());
        };
        let bad = |why| Err(OperateError::BadIpv6Subnet { cidr, why });
        if cidr.trunc() != cidr || cidr.prefix_len() != 64 {
            return bad("is not a /64 network");
        }
        if !self.state.vpc.ipv6_cidrs.iter().any(|vpc| vpc.contains(&cidr)) {
            return bad("lies outside of the VPC");
        }
        if self.state.subnets.values().any(|other| other.ipv6_cidr == Some(cidr)) {
            return bad("overlaps another subnet");
        }
        Ok(())
    }

    /// The group that every VPC has: its members reach each other, and may send anywhere.
    pub(crate) fn add_default_group(&mut self) {
        let id = self.insert_group(SecurityGroupSpec {
            name: "default".to_owned(),
            description: "default VPC security group".to_owned(),
            ingress: Vec::new(),
            egress: if self.state.vpc.ipv6_cidrs.is_empty() {
                vec![Rule::all(Ipv4Net::default())]
            } else {
                vec![Rule::all(Ipv4Net::default()), Rule::all6(Ipv6Net::default())]
            },
        });
        let members = Rule { protocol: Protocol::All, ports: None, peer: Peer::Group(id.clone()) };
        self.edit_group(&id, |group| group.ingress.push(members));
    }

    /// # Errors
    /// If its name is taken.
    pub fn add_security_group(
        &mut self,
        now: Time,
        spec: SecurityGroupSpec,
    ) -> Result<SecurityGroupId, OperateError> {
        self.advance(now);
        if self.group_named(&spec.name).is_some() {
            return Err(OperateError::GroupExists(spec.name));
        }
        Ok(self.insert_group(spec))
    }

    fn insert_group(&mut self, spec: SecurityGroupSpec) -> SecurityGroupId {
        let id = SecurityGroupId::new(self.rng.id("sg"));
        let group = SecurityGroup {
            id: id.clone(),
            name: spec.name,
            description: spec.description,
            vpc_id: self.state.vpc.id.clone(),
            owner_id: self.spec.account.clone(),
            ingress: spec.ingress,
            egress: spec.egress,
            tags: BTreeMap::new(),
        };
        self.edit(|state, stamp| state.groups.insert(stamp, id.clone(), group));
        id
    }

    /// Replaces the rules of a security group.
    ///
    /// # Errors
    /// If there is none.
    pub fn set_security_group_rules(
        &mut self,
        now: Time,
        group: &SecurityGroupId,
        ingress: Vec<Rule>,
        egress: Vec<Rule>,
    ) -> Result<(), OperateError> {
        self.advance(now);
        if !self.state.groups.contains_key(group) {
            return Err(OperateError::NoGroup(group.clone()));
        }
        self.edit_group(group, |group| {
            group.ingress = ingress;
            group.egress = egress;
        });
        Ok(())
    }

    fn edit_group(&mut self, id: &SecurityGroupId, change: impl FnOnce(&mut SecurityGroup)) {
        self.edit(|state, stamp| state.groups.change(stamp, id, change));
    }

    /// Denied actions by role; only roles with a setting are listed.
    pub fn iam(&self) -> &BTreeMap<String, Iam> {
        &self.iam
    }

    /// Replaces the denied actions of a role.
    pub fn set_iam(&mut self, role: &str, iam: Iam) {
        self.iam.insert(role.to_owned(), iam);
    }

    /// Pulls an ENI out of its instance behind the daemon's back.
    ///
    /// # Errors
    /// If it is not attached, or is the primary.
    pub fn pull_eni(&mut self, now: Time, eni: &EniId) -> Result<(), OperateError> {
        self.advance(now);
        let found = self.state.enis.get(eni).ok_or_else(|| OperateError::NoEni(eni.clone()))?;
        let Some(attachment) = found.attachment.clone() else {
            return Err(OperateError::NotAttached(eni.clone()));
        };
        if (attachment.network_card_index.0, attachment.device_index.0) == (0, 0) {
            return Err(OperateError::PrimaryEni(eni.clone()));
        }
        self.unplug(eni, &attachment.id, self.spec.timing.force_detach);
        self.settle();
        Ok(())
    }

    /// Makes something go wrong.
    pub fn set_fault(&mut self, now: Time, fault: Fault) -> FaultId {
        self.advance(now);
        // A new lag goes back only to its own start at first: the state before the lag was not kept.
        self.faults.add(fault)
    }

    /// Ends a fault; false if it was not set. Attachments that waited for it continue.
    pub fn clear_fault(&mut self, now: Time, id: FaultId) -> bool {
        self.advance(now);
        let Some(held) = self.faults.remove(id) else { return false };
        for (eni, attachment) in held {
            self.after(self.spec.timing.attach, Transition::Attached(eni, attachment));
        }
        self.settle();
        true
    }

    /// Ends all faults.
    pub fn clear_faults(&mut self, now: Time) {
        for (id, _) in self.faults.all() {
            self.clear_fault(now, id);
        }
    }

    /// The faults that are set; counted ones show what is left of them.
    pub fn faults(&self) -> Vec<(FaultId, Fault)> {
        self.faults.all()
    }

    /// The HTTP status with which IMDS fails for this instance now; `None` without such a fault.
    pub fn imds_outage(&self, instance: &InstanceId) -> Option<u16> {
        self.faults.imds_status(instance)
    }
}

/// `euw1-az1` for `eu-west-1a`: the same zone by the name that all accounts share.
fn zone_id(zone: &str) -> String {
    let digits = zone.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let letter = zone.as_bytes().last().copied().unwrap_or(b'a');
    let mut parts = digits.split('-').collect::<Vec<_>>();
    let number = parts.pop().unwrap_or("1");
    let area = parts.first().copied().unwrap_or("");
    let side = parts.get(1..).unwrap_or_default().join("");
    let short = ["north", "south", "east", "west", "central"]
        .iter()
        .fold(side, |side, word| side.replace(word, word.get(..1).unwrap_or("")));
    format!("{area}{short}{number}-az{}", letter.saturating_sub(b'a') + 1)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    #[test]
    fn a_type_that_is_not_known_is_answered_with_those_that_are() {
        assert_eq!(InstanceType::require("c5.xlarge").unwrap().name, "c5.xlarge");
        let said = |name| InstanceType::require(name).unwrap_err().to_string();
        assert!(said("c5.nope").contains("c5.xlarge") && !said("c5.nope").contains("m5."));
        assert!(said("nope").contains("c5, ") && said("nope").contains("\"nope\""));
    }

    #[test]
    fn zone_ids_are_short_region_names() {
        for (zone, id) in [
            ("eu-west-1a", "euw1-az1"),
            ("us-east-1f", "use1-az6"),
            ("ap-southeast-2c", "apse2-az3"),
            ("eu-central-1b", "euc1-az2"),
        ] {
            assert_eq!(zone_id(zone), id);
        }
    }
}
