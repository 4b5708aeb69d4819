//! Security groups.

use config_model::{SecurityGroupId, VpcId};
use ipnet::{Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What a rule speaks of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protocol {
    /// Every protocol.
    All,
    /// ICMP.
    Icmp,
    /// TCP.
    Tcp,
    /// UDP.
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
    /// The protocol.
    pub protocol: Protocol,
    /// First and last port (TCP, UDP), or ICMP type and code with -1 for any; all if absent.
    pub ports: Option<(i32, i32)>,
    /// Who.
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
    /// Its id.
    pub id: SecurityGroupId,
    /// Its name, unique in the VPC.
    pub name: String,
    /// Its description.
    pub description: String,
    /// Its VPC.
    pub vpc_id: VpcId,
    /// The account.
    pub owner_id: String,
    /// What may come in.
    pub ingress: Vec<Rule>,
    /// What may go out.
    pub egress: Vec<Rule>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// A security group by id and name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct GroupIdentifier {
    /// Its id.
    pub id: SecurityGroupId,
    /// Its name.
    pub name: String,
}
