//! Parameters of an instance's launch.

use crate::InterfaceKind;
use config_model::{CardIndex, DeviceIndex, SecurityGroupId, SubnetId};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// An instance to launch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Launch {
    /// Its `Name` tag.
    pub name: String,
    /// For example `c5.xlarge`.
    pub instance_type: String,
    /// The type that the instance shows instead, such as an unknown one.
    pub shown_type: Option<String>,
    /// The subnet of its primary ENI.
    pub subnet: SubnetId,
    /// The groups of its primary ENI; the VPC's `default` if empty.
    pub security_groups: Vec<SecurityGroupId>,
    /// More tags.
    pub tags: BTreeMap<String, String>,
    /// The IP TTL of IMDS answers.
    pub metadata_hop_limit: u8,
    /// True if IMDS shows its tags.
    pub metadata_tags: bool,
    /// The role of its instance profile.
    pub role: Option<String>,
    /// IPv6 addresses of the primary ENI; at least one if the subnet gives each ENI one.
    pub ipv6_addresses: u16,
    /// ENIs beside the primary one, in the same subnet and groups; they go with the instance.
    pub interfaces: Vec<LaunchInterface>,
}

/// An ENI that an instance is launched with: the only way to an EFA without stopping it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchInterface {
    pub card: CardIndex,
    /// The place on the card.
    pub device: DeviceIndex,
    pub kind: InterfaceKind,
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
            shown_type: None,
            subnet,
            security_groups: Vec::new(),
            tags: BTreeMap::new(),
            metadata_hop_limit: 1,
            metadata_tags: true,
            role: Some("lab-node".to_owned()),
            ipv6_addresses: 0,
            interfaces: Vec::new(),
        }
    }
}
