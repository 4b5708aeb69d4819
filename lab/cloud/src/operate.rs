//! Operations outside the API of the daemon: VPC blocks, subnets, security groups, permissions, forced detachment.

use crate::{
    Cloud, InstanceState, InstanceType, Peer, Protocol, Rule, SecurityGroup, SecurityGroupSpec,
    Subnet, SubnetSpec, ipv6::AddressPool6, subnet::AddressPool,
};
use config_model::{EniId, InstanceId, SecurityGroupId, SubnetId, Time};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// Actions that a role may not do; all others are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iam {
    /// Action names without `ec2:`, `*` at the end allowed, such as `Describe*`.
    pub deny: BTreeSet<String>,
}

/// An order that the operator cannot give.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum OperateError {
    #[error("there is no instance {0}")]
    NoInstance(InstanceId),
    #[error("there is no ENI {0}")]
    NoEni(EniId),
    #[error("ENI {0} is not attached")]
    NotAttached(EniId),
    #[error("ENI {0} is the primary one of its instance")]
    PrimaryEni(EniId),
    #[error("there is no subnet {0}")]
    NoSubnet(SubnetId),
    #[error("there is no security group {0}")]
    NoGroup(SecurityGroupId),
    #[error("{name:?} is not an instance type that the lab knows; {hint}")]
    NoType { name: String, hint: String },
    #[error("instance {instance} is {state}, but should be {wanted}")]
    WrongState { instance: InstanceId, state: &'static str, wanted: &'static str },
    #[error("VPC {cidr} {why}")]
    BadVpc { cidr: Ipv4Net, why: &'static str },
    #[error("subnet {cidr} {why}")]
    BadSubnet { cidr: Ipv4Net, why: &'static str },
    #[error("subnet {cidr} {why}")]
    BadIpv6Subnet { cidr: Ipv6Net, why: &'static str },
    #[error("the VPC already has a security group {0:?}")]
    GroupExists(String),
    #[error("subnet {0} has no free address")]
    SubnetFull(SubnetId),
    #[error("EC2 would refuse this: {0}")]
    Refused(String),
    #[error("there is no public address left in {0}")]
    PublicPoolEmpty(Ipv4Net),
}

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

/// EC2's conditions for a VPC's block.
pub(crate) fn check_vpc(cidr: Ipv4Net) -> Result<(), OperateError> {
    let bad = |why| Err(OperateError::BadVpc { cidr, why });
    if cidr.trunc() != cidr {
        return bad("has bits behind its prefix");
    }
    if !(16..=28).contains(&cidr.prefix_len()) {
        return bad("is not a /16 to /28 network");
    }
    let first = cidr.network();
    if first.is_loopback()
        || first.is_link_local()
        || first.octets()[0] == 0
        || first.octets()[0] >= 224
    {
        return bad("is in a range with a meaning of its own");
    }
    Ok(())
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
    fn a_vpc_has_the_properties_of_one_in_ec2() {
        let check = |cidr: &str| check_vpc(cidr.parse().unwrap());
        for good in ["10.0.0.0/16", "172.31.0.0/28", "100.64.0.0/16"] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for bad in ["10.0.0.0/8", "10.0.0.0/29", "10.0.0.5/16", "127.0.0.0/16", "169.254.0.0/16"] {
            let said = check(bad).unwrap_err().to_string();
            assert!(said.contains(bad), "{said}");
        }
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
