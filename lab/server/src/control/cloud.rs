//! What is said of the cloud itself: subnets, ENIs, security groups, permissions, branches.

use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, Ipv6Addr},
};

/// What to do with a subnet.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum SubnetOrder {
    /// Take one address of each /28 that is whole, so that no prefix is left.
    Fragment,
    /// Take so many single addresses.
    Take {
        /// How many.
        count: usize,
    },
    /// Give back what was taken.
    Free {
        /// How many; all if absent.
        count: Option<usize>,
    },
    /// Give it a tag.
    Tag {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Take a tag from it.
    Untag {
        /// The key.
        key: String,
    },
    /// Keep addresses of it for prefixes.
    Reserve {
        /// Which.
        cidr: ipnet::Ipv4Net,
    },
}

/// A subnet to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubnetSpec {
    /// Its address block; the VPC gets it too, if it lies outside.
    pub cidr: ipnet::Ipv4Net,
    /// The letter of its zone; its own if absent.
    pub zone: Option<char>,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// A subnet as the lab shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SubnetView {
    /// The operator's name for it: a letter.
    pub name: String,
    /// Its id.
    pub id: String,
    /// Its address block.
    pub cidr: String,
    /// Its IPv6 addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ipv6_cidr: Option<String>,
    /// Its availability zone.
    pub zone: String,
    /// How many addresses are free.
    pub free: u32,
    /// How many /28 prefixes are free.
    pub free_prefixes: usize,
    /// How many addresses the operator took.
    pub taken: usize,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// An ENI to be made, as others than the daemon make them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct EniSpec {
    /// Its subnet, by name or id.
    pub subnet: String,
    /// Its description.
    pub description: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
    /// The names or ids of its security groups.
    pub groups: Vec<String>,
    /// How many secondary addresses it has.
    pub addresses: u32,
    /// The node that it is attached to.
    pub node: Option<String>,
}

/// What to do with an ENI.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "kebab-case")]
pub enum EniOrder {
    /// Give it a tag.
    Tag {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Take a tag from it.
    Untag {
        /// The key.
        key: String,
    },
    /// Give it other security groups.
    Groups {
        /// Their names or ids.
        groups: Vec<String>,
    },
    /// Let it outlive its instance, or not.
    DeleteOnTermination {
        /// Whether it goes with its instance.
        goes: bool,
    },
}

/// An ENI as EC2 has it, attached or not.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct InterfaceView {
    /// Its id.
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
    /// Whether it goes with its instance.
    pub delete_on_termination: Option<bool>,
    /// Its subnet.
    pub subnet: String,
    /// Its MAC address.
    pub mac: String,
    /// Its addresses, the primary first.
    pub addresses: Vec<Ipv4Addr>,
    /// Its prefixes, /28 and /80.
    pub prefixes: Vec<ipnet::IpNet>,
    /// Its IPv6 addresses.
    pub ipv6_addresses: Vec<Ipv6Addr>,
    /// The names of its security groups.
    pub groups: Vec<String>,
    /// Its description.
    pub description: String,
    /// Its tags.
    pub tags: BTreeMap<String, String>,
}

/// A security group to be made.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupSpec {
    /// Its name.
    pub name: String,
    /// Whether everything may come in; otherwise nothing may.
    pub open: bool,
}

/// A security group as the lab shows it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GroupView {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
}

/// What the nodes' role may not do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct IamView {
    /// The role.
    pub role: String,
    /// Action names, `*` at the end allowed.
    pub deny: Vec<String>,
}

/// A pod that is to have a branch of its node's trunk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BranchSpec {
    /// The node.
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
    /// The node.
    pub node: String,
    /// The Kubernetes namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The value of the annotation `vpc.amazonaws.com/pod-eni`; none before the branch is there.
    pub annotation: Option<String>,
}
