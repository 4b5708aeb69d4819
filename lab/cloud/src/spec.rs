//! What a lab's cloud looks like on its first day.

use crate::{Bucket, Rule};
use config_model::Span;
use ipnet::Ipv4Net;
use serde::{Deserialize, Serialize};
use std::{collections::BTreeMap, net::Ipv4Addr};

/// Everything that is there before the first instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloudSpec {
    /// Twelve digits.
    pub account: String,
    /// For example `eu-west-1`.
    pub region: String,
    /// The VPC's CIDR blocks, the primary first.
    pub vpc_cidrs: Vec<Ipv4Net>,
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
    /// How calls are throttled.
    pub throttling: Throttling,
}

/// A subnet to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubnetSpec {
    /// How the operator calls it; becomes its `Name` tag.
    pub name: String,
    /// Its addresses, /16 to /28.
    pub cidr: Ipv4Net,
    /// For example `eu-west-1a`.
    pub availability_zone: String,
    /// Whether the primary ENI of a new instance gets a public address.
    pub map_public_ip_on_launch: bool,
    /// More tags.
    pub tags: BTreeMap<String, String>,
}

/// A security group to make.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroupSpec {
    /// Unique in the VPC.
    pub name: String,
    /// Free text.
    pub description: String,
    /// What may come in.
    pub ingress: Vec<Rule>,
    /// What may go out.
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
    /// How old the state is from which Describe calls answer.
    pub read_lag: Span,
    /// How old the state is from which IMDS answers.
    pub imds_lag: Span,
    /// How long a Describe call takes.
    pub describe_latency: Span,
    /// How long a call takes that changes something.
    pub mutate_latency: Span,
}

/// How calls are throttled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Throttling {
    /// Not at all.
    Off,
    /// As AWS publishes it; see [`Bucket::published`].
    Published,
    /// The same bucket for every action, each action its own.
    Uniform(Bucket),
}

impl CloudSpec {
    /// Two subnets in two zones of 10.0.0.0/16, with delays as EC2 has them on a good day.
    pub fn two_zones() -> Self {
        let subnet = |name: &str, third: u8, zone: &str| SubnetSpec {
            name: name.to_owned(),
            cidr: Ipv4Net::new_assert(Ipv4Addr::new(10, 0, third, 0), 20),
            availability_zone: format!("eu-west-1{zone}"),
            map_public_ip_on_launch: true,
            tags: BTreeMap::new(),
        };
        Self {
            account: "123456789012".to_owned(),
            region: "eu-west-1".to_owned(),
            vpc_cidrs: vec![Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 16)],
            subnets: vec![subnet("a", 0, "a"), subnet("b", 16, "b")],
            security_groups: Vec::new(),
            public_pool: Ipv4Net::new_assert(Ipv4Addr::new(203, 0, 113, 0), 24),
            epoch_unix_ms: 0,
            timing: Timing::good_day(),
            throttling: Throttling::Published,
        }
    }
}

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
