//! Initial state of a lab's cloud.

use crate::{OperateError, Rule, Throttling};
use config_model::Span;
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

/// Everything that is there before the first instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudSpec {
    /// Twelve digits.
    pub account: String,
    /// For example `eu-west-1`.
    pub region: String,
    /// The VPC's CIDR blocks, the primary first.
    pub vpc_cidrs: Vec<Ipv4Net>,
    /// The VPC's IPv6 block, a /56 as Amazon gives them; without it no subnet can have IPv6.
    pub vpc_ipv6_cidr: Option<Ipv6Net>,
    /// The first subnets.
    pub subnets: Vec<SubnetSpec>,
    /// Security groups beside `default`, which every VPC has.
    pub security_groups: Vec<SecurityGroupSpec>,
    /// Public addresses for ENIs of subnets that give them.
    pub public_pool: Ipv4Net,
    /// The wall clock, in Unix milliseconds, at `Time(0)`; EC2 prints dates.
    pub epoch_unix_ms: u64,
    /// Delays and lags.
    pub timing: Timing,
    pub throttling: Throttling,
}

/// A subnet to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetSpec {
    /// The operator's name for it; becomes its `Name` tag.
    pub name: String,
    /// Its addresses, /16 to /28.
    pub cidr: Ipv4Net,
    /// Its IPv6 addresses, a /64 of the VPC's block.
    pub ipv6_cidr: Option<Ipv6Net>,
    /// For example `eu-west-1a`.
    pub availability_zone: String,
    /// True if the primary ENI of a new instance gets a public address.
    pub map_public_ip_on_launch: bool,
    /// True if each new ENI gets an IPv6 address.
    pub assign_ipv6_address_on_creation: bool,
    /// More tags.
    pub tags: BTreeMap<String, String>,
}

impl SubnetSpec {
    /// A private IPv4 subnet without tags.
    pub fn new(name: impl Into<String>, cidr: Ipv4Net, zone: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            cidr,
            ipv6_cidr: None,
            availability_zone: zone.into(),
            map_public_ip_on_launch: false,
            assign_ipv6_address_on_creation: false,
            tags: BTreeMap::new(),
        }
    }

    /// The same subnet with a tag.
    pub fn tagged(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.tags.insert(key.into(), value.into());
        self
    }
}

/// A security group to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroupSpec {
    /// Unique in the VPC.
    pub name: String,
    /// Free text.
    pub description: String,
    /// Rules for incoming traffic.
    pub ingress: Vec<Rule>,
    /// Rules for outgoing traffic.
    pub egress: Vec<Rule>,
}

/// Delays and lags of the cloud.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Timing {
    /// From CreateNetworkInterface until the ENI leaves `pending`.
    pub create: Span,
    /// From AttachNetworkInterface until the instance has the device.
    pub attach: Span,
    /// From DetachNetworkInterface until the device is gone.
    pub detach: Span,
    /// From a forced detach until the device is gone.
    pub force_detach: Span,
    /// From launch or start until `running`.
    pub boot: Span,
    /// From stop until `stopped`, from terminate until `terminated`.
    pub shutdown: Span,
    /// Age of the state from which Describe calls answer.
    pub read_lag: Span,
    /// Age of the state from which IMDS answers.
    pub imds_lag: Span,
    pub describe_latency: Span,
    /// Duration of a call that changes something.
    pub mutate_latency: Span,
}

impl CloudSpec {
    /// Two subnets in two zones of 10.0.0.0/16, with delays as EC2 has them on a good day.
    pub fn two_zones() -> Self {
        let subnet = |name: &str, third: u8, zone: &str| SubnetSpec {
            map_public_ip_on_launch: true,
            ..SubnetSpec::new(
                name,
                Ipv4Net::new_assert(Ipv4Addr::new(10, 0, third, 0), 20),
                format!("eu-west-1{zone}"),
            )
        };
        Self {
            account: "123456789012".to_owned(),
            region: "eu-west-1".to_owned(),
            vpc_cidrs: vec![Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 16)],
            vpc_ipv6_cidr: None,
            subnets: vec![subnet("a", 0, "a"), subnet("b", 16, "b")],
            security_groups: Vec::new(),
            public_pool: Ipv4Net::new_assert(Ipv4Addr::new(203, 0, 113, 0), 24),
            epoch_unix_ms: 0,
            timing: Timing::good_day(),
            throttling: Throttling::Published,
        }
    }
}

impl CloudSpec {
    /// The same with IPv6: the VPC has a /56, each subnet without one gets the next /64 of it.
    #[must_use]
    pub fn with_ipv6(mut self) -> Self {
        let block = Ipv6Net::new_assert(VPC_IPV6, 56);
        self.vpc_ipv6_cidr = Some(block);
        for (subnet, cidr) in self.subnets.iter_mut().zip(block.subnets(64).into_iter().flatten()) {
            subnet.ipv6_cidr.get_or_insert(cidr);
        }
        self
    }
}

/// The VPC's IPv6 block: of the range that RFC 3849 keeps for documentation, as nothing here may
/// ever be routed elsewhere.
const VPC_IPV6: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x1234, 0x1a00, 0, 0, 0, 0);

impl Timing {
    /// Everything happens at once: for tests that ask about something else.
    pub const INSTANT: Self = Self {
        create: Span(0),
        attach: Span(0),
        detach: Span(0),
        force_detach: Span(0),
        boot: Span(0),
        shutdown: Span(0),
        read_lag: Span(0),
        imds_lag: Span(0),
        describe_latency: Span(0),
        mutate_latency: Span(0),
    };

    /// Delays as they are seen on EC2 when nothing is wrong.
    pub const fn good_day() -> Self {
        Self {
            create: Span::millis(200),
            attach: Span::millis(1500),
            detach: Span::seconds(3),
            force_detach: Span::seconds(1),
            boot: Span(0),
            shutdown: Span(0),
            read_lag: Span::millis(300),
            imds_lag: Span::seconds(1),
            describe_latency: Span::millis(60),
            mutate_latency: Span::millis(250),
        }
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

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
}
