//! The operator's hands: what happens outside of the API that the daemon uses.

use config_model::{EniId, InstanceId, SecurityGroupId, SubnetId};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// An instance to launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Its `Name` tag.
    pub name: String,
    /// For example `c5.xlarge`.
    pub instance_type: String,
    /// The subnet of its primary ENI.
    pub subnet: SubnetId,
    /// The groups of its primary ENI; the VPC's `default` if empty.
    pub security_groups: Vec<SecurityGroupId>,
    /// More tags.
    pub tags: BTreeMap<String, String>,
    /// The IP TTL of IMDS answers.
    pub metadata_hop_limit: u8,
    /// Whether IMDS shows its tags.
    pub metadata_tags: bool,
    /// The role of its instance profile.
    pub role: Option<String>,
}

impl Launch {
    /// An instance with hop limit 1, tags in IMDS and the role `lab-node`.
    pub fn new(
        name: impl Into<String>,
        instance_type: impl Into<String>,
        subnet: SubnetId,
    ) -> Self {
        Self {
            name: name.into(),
            instance_type: instance_type.into(),
            subnet,
            security_groups: Vec::new(),
            tags: BTreeMap::new(),
            metadata_hop_limit: 1,
            metadata_tags: true,
            role: Some("lab-node".to_owned()),
        }
    }
}

/// What a role may not do; everything else it may.
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
    #[error("there is no subnet {0}")]
    NoSubnet(SubnetId),
    #[error("there is no security group {0}")]
    NoGroup(SecurityGroupId),
    #[error("{0:?} is not an instance type of the table")]
    NoType(String),
    #[error("instance {instance} is {state}, but should be {wanted}")]
    WrongState { instance: InstanceId, state: &'static str, wanted: &'static str },
    #[error("subnet {cidr} {why}")]
    BadSubnet { cidr: ipnet::Ipv4Net, why: &'static str },
    #[error("the VPC already has a security group {0:?}")]
    GroupExists(String),
    #[error("subnet {0} has no free address")]
    SubnetFull(SubnetId),
    #[error("there is no public address left in {0}")]
    PublicPoolEmpty(ipnet::Ipv4Net),
}
