//! Answers of EC2: one variant per action.

use crate::{
    Instance, InstanceType, NetworkInterface, Reservation, SecurityGroup, Subnet, Tag,
    TrunkAssociation, Vpc,
};
use config_model::{AttachmentId, CardIndex, EniId};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The answer to a [`crate::Request`] that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "variants are named after actions, fields after EC2's elements")]
pub enum Response {
    AssignIpv6Addresses(AssignedIpv6Addresses),
    AssignPrivateIpAddresses(AssignedPrivateIpAddresses),
    AssociateTrunkInterface {
        association: TrunkAssociation,
        client_token: Option<String>,
    },
    AttachNetworkInterface(Attached),
    CreateNetworkInterface {
        network_interface: Box<NetworkInterface>,
        client_token: Option<String>,
    },
    CreateSubnetCidrReservation(Reservation),
    CreateTags,
    DeleteNetworkInterface,
    DeleteSubnetCidrReservation(Reservation),
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
    DescribeTrunkInterfaceAssociations {
        associations: Vec<TrunkAssociation>,
        next_token: Option<String>,
    },
    DescribeVpcs {
        vpcs: Vec<Vpc>,
        next_token: Option<String>,
    },
    DetachNetworkInterface,
    DisassociateTrunkInterface {
        client_token: Option<String>,
    },
    GetSubnetCidrReservations {
        reservations: Vec<Reservation>,
        next_token: Option<String>,
    },
    ModifyNetworkInterfaceAttribute,
    UnassignIpv6Addresses(AssignedIpv6Addresses),
    UnassignPrivateIpAddresses,
}

/// Additions of AssignPrivateIpAddresses, without the addresses that were there before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedPrivateIpAddresses {
    /// The ENI.
    pub network_interface_id: EniId,
    /// The new secondary addresses.
    pub private_ip_addresses: Vec<Ipv4Addr>,
    /// The new prefixes.
    pub ipv4_prefixes: Vec<Ipv4Net>,
}

/// Additions of AssignIpv6Addresses, or removals of UnassignIpv6Addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssignedIpv6Addresses {
    /// The ENI.
    pub network_interface_id: EniId,
    pub ipv6_addresses: Vec<Ipv6Addr>,
    pub ipv6_prefixes: Vec<Ipv6Net>,
}

/// The attachment that AttachNetworkInterface started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attached {
    pub attachment_id: AttachmentId,
    pub network_card_index: CardIndex,
}

/// An instance and its ENIs, ordered by card and device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedInstance {
    pub instance: Instance,
    /// Its ENIs, the primary first.
    pub network_interfaces: Vec<NetworkInterface>,
}

/// One tag of one resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagDescription {
    pub resource_id: String,
    /// Such as `network-interface`.
    pub resource_type: &'static str,
    /// Key and value.
    pub tag: Tag,
}
