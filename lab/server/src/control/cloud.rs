//! Messages about the cloud itself: subnets, ENIs, security groups, permissions, branches.

use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

/// Action on a subnet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum SubnetOrder {
    /// Take one address of each /28 that is whole, so that no prefix is left.
    Fragment,
    /// Take so many single addresses.
    Take { count: usize },
    /// Give back what was taken.
    Free {
        /// All if absent.
        count: Option<usize>,
    },
    /// Give it a tag.
    Tag { key: String, value: String },
    /// Take a tag from it.
    Untag { key: String },
    /// Keep addresses of it for prefixes.
    Reserve { cidr: ipnet::Ipv4Net },
}

/// A subnet to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubnetSpec {
    /// Its address block; the VPC gets it too, if it lies outside.
    pub cidr: ipnet::Ipv4Net,
    /// The letter of its zone; its own if absent.
    pub zone: Option<char>,
    pub tags: BTreeMap<String, String>,
}

/// A subnet as the lab shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubnetView {
    /// The operator's name for it: a letter.
    pub name: String,
    pub id: String,
    /// Its address block.
    pub cidr: String,
    /// Its IPv6 addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_cidr: Option<String>,
    /// Its availability zone.
    pub zone: String,
    /// Number of free addresses.
    pub free: u32,
    /// Number of free /28 prefixes.
    pub free_prefixes: usize,
    /// Number of addresses that the operator took.
    pub taken: usize,
    pub tags: BTreeMap<String, String>,
}

/// An ENI to be made, as others than the daemon make them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EniSpec {
    /// Its subnet, by name or id.
    pub subnet: String,
    pub description: String,
    pub tags: BTreeMap<String, String>,
    /// The names or ids of its security groups.
    pub groups: Vec<String>,
    /// Number of secondary addresses.
    pub addresses: u32,
    /// The node that it is attached to.
    pub node: Option<String>,
}

/// Action on an ENI.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum EniOrder {
    /// Give it a tag.
    Tag { key: String, value: String },
    /// Take a tag from it.
    Untag { key: String },
    /// Give it other security groups.
    Groups {
        /// Their names or ids.
        groups: Vec<String>,
    },
    /// Let it outlive its instance, or not.
    DeleteOnTermination {
        /// True if the end of its instance deletes it.
        goes: bool,
    },
}

/// An ENI as EC2 has it, attached or not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InterfaceView {
    pub id: String,
    /// `interface`, `efa`, `efa-only`, `trunk` or `branch`.
    pub kind: String,
    /// `pending`, `available`, `in-use` or `associated`.
    pub status: String,
    /// The node that it is attached to.
    pub node: Option<String>,
    /// The network card.
    pub card: Option<u16>,
    /// The device number.
    pub device: Option<u16>,
    /// True if the end of its instance deletes it.
    pub delete_on_termination: Option<bool>,
    pub subnet: String,
    /// Its MAC address.
    pub mac: String,
    /// Its addresses, the primary first.
    pub addresses: Vec<Ipv4Addr>,
    /// Its prefixes, /28 and /80.
    pub prefixes: Vec<ipnet::IpNet>,
    pub ipv6_addresses: Vec<Ipv6Addr>,
    /// The names of its security groups.
    pub groups: Vec<String>,
    pub description: String,
    pub tags: BTreeMap<String, String>,
}

/// A security group to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupSpec {
    pub name: String,
    /// True if all incoming traffic is allowed; otherwise none is.
    pub open: bool,
}

/// A security group as the lab shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupView {
    pub id: String,
    pub name: String,
}

/// Denied actions of the nodes' role.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IamView {
    pub role: String,
    /// Action names, `*` at the end allowed.
    pub deny: Vec<String>,
}

/// A pod that is to have a branch of its node's trunk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BranchSpec {
    pub node: String,
    /// The Kubernetes namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The names or ids of the branch's security groups.
    pub groups: Vec<String>,
}

/// A branch as the lab shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BranchView {
    pub node: String,
    /// The Kubernetes namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The value of the annotation `vpc.amazonaws.com/pod-eni`; none before the branch is there.
    pub annotation: Option<String>,
}
