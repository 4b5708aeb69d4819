//! Security groups.

use config_model::{SecurityGroupId, VpcId};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Protocol selector of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Every protocol.
    All,
    Icmp,
    Tcp,
    Udp,
    /// Another IP protocol by number.
    Number(u8),
}

/// The other side of a security group's rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// Addresses.
    Cidr(Ipv4Net),
    /// IPv6 addresses.
    Cidr6(Ipv6Net),
    /// Every address of every ENI that has this group.
    Group(SecurityGroupId),
}

/// One allowance of a security group.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Rule {
    pub protocol: Protocol,
    /// First and last port (TCP, UDP), or ICMP type and code with -1 for any; all if absent.
    pub ports: Option<(i32, i32)>,
    pub peer: Peer,
}

impl Rule {
    /// Everything from or to these addresses.
    pub fn all(cidr: Ipv4Net) -> Self {
        Self { protocol: Protocol::All, ports: None, peer: Peer::Cidr(cidr) }
    }

    /// Everything from or to these IPv6 addresses.
    pub fn all6(cidr: Ipv6Net) -> Self {
        Self { protocol: Protocol::All, ports: None, peer: Peer::Cidr6(cidr) }
    }
}

/// A security group; stateful, and what no rule allows is dropped.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SecurityGroup {
    pub id: SecurityGroupId,
    /// Its name, unique in the VPC.
    pub name: String,
    pub description: String,
    pub vpc_id: VpcId,
    /// The account.
    pub owner_id: String,
    /// Rules for incoming traffic.
    pub ingress: Vec<Rule>,
    /// Rules for outgoing traffic.
    pub egress: Vec<Rule>,
    pub tags: BTreeMap<String, String>,
}

/// A security group by id and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct GroupIdentifier {
    pub id: SecurityGroupId,
    pub name: String,
}
