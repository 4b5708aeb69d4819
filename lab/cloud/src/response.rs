//! What EC2 answers: one variant per action.

use crate::{Instance, InstanceType, NetworkInterface, SecurityGroup, Subnet, Tag, Vpc};
use config_model::{AttachmentId, CardIndex, EniId};
use ipnet::Ipv4Net;
use std::net::Ipv4Addr;

/// The answer to a [`crate::Request`] that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants are named after actions, fields after EC2's elements")]
pub enum Response {
    AssignPrivateIpAddresses(AssignedPrivateIpAddresses),
    AttachNetworkInterface(Attached),
    CreateNetworkInterface {
        network_interface: Box<NetworkInterface>,
        client_token: Option<String>,
    },
    CreateTags,
    DeleteNetworkInterface,
    DeleteTags,
    DescribeInstanceTypes {
        instance_types: Vec<InstanceType>,
        next_token: Option<String>,
    },
    DescribeInstances {
        instances: Vec<DescribedInstance>,
        next_token: Option<String>,
    },
    DescribeNetworkInterfaces {
        network_interfaces: Vec<NetworkInterface>,
        next_token: Option<String>,
    },
    DescribeSecurityGroups {
        security_groups: Vec<SecurityGroup>,
        next_token: Option<String>,
    },
    DescribeSubnets {
        subnets: Vec<Subnet>,
        next_token: Option<String>,
    },
    DescribeTags {
        tags: Vec<TagDescription>,
        next_token: Option<String>,
    },
    DescribeVpcs {
        vpcs: Vec<Vpc>,
        next_token: Option<String>,
    },
    DetachNetworkInterface,
    ModifyNetworkInterfaceAttribute,
    UnassignPrivateIpAddresses,
}

/// What AssignPrivateIpAddresses added; addresses that were there before are not in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedPrivateIpAddresses {
    /// The ENI.
    pub network_interface_id: EniId,
    /// The new secondary addresses.
    pub private_ip_addresses: Vec<Ipv4Addr>,
    /// The new prefixes.
    pub ipv4_prefixes: Vec<Ipv4Net>,
}

/// The attachment that AttachNetworkInterface began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    /// Its id.
    pub attachment_id: AttachmentId,
    /// The network card.
    pub network_card_index: CardIndex,
}

/// An instance and its ENIs, ordered by card and device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedInstance {
    /// The instance.
    pub instance: Instance,
    /// Its ENIs, the primary first.
    pub network_interfaces: Vec<NetworkInterface>,
}

/// One tag of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagDescription {
    /// The resource.
    pub resource_id: String,
    /// Such as `network-interface`.
    pub resource_type: &'static str,
    /// Key and value.
    pub tag: Tag,
}
