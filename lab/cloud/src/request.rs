//! Requests to EC2: one struct per action, fields named as EC2's parameters.
//!
//! A parameter that was not sent is `None`, an empty list or `false`. The model, not the HTTP layer, reports
//! missing parameters.

mod read;

pub use read::{
    DescribeInstanceTypes, DescribeInstances, DescribeNetworkInterfaces, DescribeSecurityGroups,
    DescribeSubnets, DescribeTags, DescribeTrunkInterfaceAssociations, DescribeVpcs,
    GetSubnetCidrReservations,
};

use crate::{Action, Tag};
use config_model::{AttachmentId, EniId, InstanceId, SecurityGroupId, SubnetId};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

macro_rules! requests {
    ($($name:ident),+ $(,)?) => {
        /// One call of the EC2 API.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each variant is named after its struct, which says it")]
        pub enum Request {
            $($name($name)),+
        }

        impl Request {
            pub fn action(&self) -> Action {
                match self {
                    $(Self::$name(_) => Action::$name),+
                }
            }

            /// True if only permission is to be checked (`DryRun=true`).
            pub fn dry_run(&self) -> bool {
                match self {
                    $(Self::$name(request) => request.dry_run),+
                }
            }
        }

        $(impl From<$name> for Request {
            fn from(request: $name) -> Self {
                Self::$name(request)
            }
        })+
    };
}

requests!(
    AssignIpv6Addresses,
    AssignPrivateIpAddresses,
    AssociateTrunkInterface,
    AttachNetworkInterface,
    CreateNetworkInterface,
    CreateSubnetCidrReservation,
    CreateTags,
    DeleteNetworkInterface,
    DeleteSubnetCidrReservation,
    DeleteTags,
    DescribeInstanceTypes,
    DescribeInstances,
    DescribeNetworkInterfaces,
    DescribeSecurityGroups,
    DescribeSubnets,
    DescribeTags,
    DescribeTrunkInterfaceAssociations,
    DescribeVpcs,
    DetachNetworkInterface,
    DisassociateTrunkInterface,
    GetSubnetCidrReservations,
    ModifyNetworkInterfaceAttribute,
    UnassignIpv6Addresses,
    UnassignPrivateIpAddresses,
);

/// `Filter.N.Name` and `Filter.N.Value.M`: an object passes if any value matches; `*` and `?` are
/// wildcards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// For example `attachment.instance-id`, `status`, `tag:Name`, `tag-key`.
    pub name: String,
    /// The values, any of which may match.
    pub values: Vec<String>,
}

impl Filter {
    /// A filter with one or more values.
    pub fn new<V: Into<String>>(
        name: impl Into<String>,
        values: impl IntoIterator<Item = V>,
    ) -> Self {
        Self { name: name.into(), values: values.into_iter().map(Into::into).collect() }
    }
}

/// `MaxResults` and `NextToken`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// At most this many results.
    pub max_results: Option<u32>,
    /// End of the previous page.
    pub next_token: Option<String>,
}

/// `TagSpecification.N`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TagSpecification {
    /// `network-interface` is the only type that can be tagged on creation here.
    pub resource_type: String,
    /// `Tag.M`.
    pub tags: Vec<Tag>,
}

/// `PrivateIpAddresses.N` of CreateNetworkInterface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrivateAddressRequest {
    pub address: Ipv4Addr,
    /// True if it is to be the primary one.
    pub primary: bool,
}

/// Makes an ENI in a subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateNetworkInterface {
    /// `SubnetId`.
    pub subnet_id: Option<SubnetId>,
    /// `Description`.
    pub description: String,
    /// `SecurityGroupId.N`; the VPC's default group if empty.
    pub groups: Vec<SecurityGroupId>,
    /// `PrivateIpAddress`: the primary address.
    pub private_ip_address: Option<Ipv4Addr>,
    /// `PrivateIpAddresses.N`: explicit addresses.
    pub private_ip_addresses: Vec<PrivateAddressRequest>,
    /// `SecondaryPrivateIpAddressCount`.
    pub secondary_private_ip_address_count: Option<u32>,
    /// `Ipv4PrefixCount`.
    pub ipv4_prefix_count: Option<u32>,
    /// `Ipv4Prefix.N.Ipv4Prefix`.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// `Ipv6AddressCount`; 0 overrides a subnet that gives each new ENI an address.
    pub ipv6_address_count: Option<u32>,
    /// `Ipv6Addresses.N.Ipv6Address`.
    pub ipv6_addresses: Vec<Ipv6Addr>,
    /// `Ipv6PrefixCount`.
    pub ipv6_prefix_count: Option<u32>,
    /// `Ipv6Prefix.N.Ipv6Prefix`.
    pub ipv6_prefixes: Vec<Ipv6Net>,
    /// `InterfaceType`: `efa`, `efa-only`, `trunk` or `branch`; a plain one if absent.
    pub interface_type: Option<String>,
    /// `ClientToken`: the same token again gives the same ENI.
    pub client_token: Option<String>,
    /// `TagSpecification.N`.
    pub tag_specifications: Vec<TagSpecification>,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Plugs an ENI into an instance.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachNetworkInterface {
    /// `NetworkInterfaceId`.
    pub network_interface_id: Option<EniId>,
    /// `InstanceId`.
    pub instance_id: Option<InstanceId>,
    /// `DeviceIndex`.
    pub device_index: Option<u16>,
    /// `NetworkCardIndex`; 0 if absent.
    pub network_card_index: Option<u16>,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Unplugs an ENI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DetachNetworkInterface {
    /// `AttachmentId`.
    pub attachment_id: Option<AttachmentId>,
    /// `Force`.
    pub force: bool,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Removes an ENI that is not attached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteNetworkInterface {
    /// `NetworkInterfaceId`.
    pub network_interface_id: Option<EniId>,
    /// `DryRun`.
    pub dry_run: bool,
}

/// `Attachment` of ModifyNetworkInterfaceAttribute.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AttachmentChange {
    /// `Attachment.AttachmentId`.
    pub attachment_id: Option<AttachmentId>,
    /// `Attachment.DeleteOnTermination`.
    pub delete_on_termination: Option<bool>,
}

/// Changes one attribute of an ENI; EC2 takes exactly one at a time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModifyNetworkInterfaceAttribute {
    /// `NetworkInterfaceId`.
    pub network_interface_id: Option<EniId>,
    /// `Attachment.…`.
    pub attachment: Option<AttachmentChange>,
    /// `Description.Value`.
    pub description: Option<String>,
    /// `SecurityGroupId.N`.
    pub groups: Vec<SecurityGroupId>,
    /// `SourceDestCheck.Value`.
    pub source_dest_check: Option<bool>,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Adds secondary addresses or prefixes to an ENI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignPrivateIpAddresses {
    /// `NetworkInterfaceId`.
    pub network_interface_id: Option<EniId>,
    /// `SecondaryPrivateIpAddressCount`.
    pub secondary_private_ip_address_count: Option<u32>,
    /// `PrivateIpAddress.N`.
    pub private_ip_addresses: Vec<Ipv4Addr>,
    /// `Ipv4PrefixCount`.
    pub ipv4_prefix_count: Option<u32>,
    /// `Ipv4Prefix.N`.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// `AllowReassignment`: take explicit addresses away from another ENI of the subnet.
    pub allow_reassignment: bool,
    /// Always false: EC2 has no `DryRun` here; kept so that all requests look alike.
    pub dry_run: bool,
}

/// Takes secondary addresses or prefixes from an ENI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnassignPrivateIpAddresses {
    /// `NetworkInterfaceId`.
    pub network_interface_id: Option<EniId>,
    /// `PrivateIpAddress.N`.
    pub private_ip_addresses: Vec<Ipv4Addr>,
    /// `Ipv4Prefix.N`.
    pub ipv4_prefixes: Vec<Ipv4Net>,
    /// Always false: EC2 has no `DryRun` here; kept so that all requests look alike.
    pub dry_run: bool,
}

/// Adds IPv6 addresses or prefixes to an ENI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssignIpv6Addresses {
    /// `NetworkInterfaceId`.
    pub network_interface_id: Option<EniId>,
    /// `Ipv6AddressCount`.
    pub ipv6_address_count: Option<u32>,
    /// `Ipv6Addresses.N`.
    pub ipv6_addresses: Vec<Ipv6Addr>,
    /// `Ipv6PrefixCount`.
    pub ipv6_prefix_count: Option<u32>,
    /// `Ipv6Prefix.N`.
    pub ipv6_prefixes: Vec<Ipv6Net>,
    /// Always false: EC2 has no `DryRun` here; kept so that all requests look alike.
    pub dry_run: bool,
}

/// Takes IPv6 addresses or prefixes from an ENI.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnassignIpv6Addresses {
    /// `NetworkInterfaceId`.
    pub network_interface_id: Option<EniId>,
    /// `Ipv6Addresses.N`.
    pub ipv6_addresses: Vec<Ipv6Addr>,
    /// `Ipv6Prefix.N`.
    pub ipv6_prefixes: Vec<Ipv6Net>,
    /// Always false: EC2 has no `DryRun` here; kept so that all requests look alike.
    pub dry_run: bool,
}

/// Makes an ENI a branch of a trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AssociateTrunkInterface {
    /// `BranchInterfaceId`.
    pub branch_interface_id: Option<EniId>,
    /// `TrunkInterfaceId`.
    pub trunk_interface_id: Option<EniId>,
    /// `VlanId`. EC2 also knows `GreKey`, which the lab does not.
    pub vlan_id: Option<u16>,
    /// `ClientToken`: with one, an association that exists already is answered again.
    pub client_token: Option<String>,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Takes a branch from its trunk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DisassociateTrunkInterface {
    /// `AssociationId`.
    pub association_id: Option<String>,
    /// `ClientToken`.
    pub client_token: Option<String>,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Keeps addresses of a subnet for prefixes, or for those who name them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateSubnetCidrReservation {
    /// `SubnetId`.
    pub subnet_id: Option<SubnetId>,
    /// `Cidr`. EC2 also takes IPv6 blocks, which the lab does not.
    pub cidr: Option<Ipv4Net>,
    /// `ReservationType`: `prefix` or `explicit`.
    pub reservation_type: Option<String>,
    /// `Description`.
    pub description: String,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Ends a reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteSubnetCidrReservation {
    /// `SubnetCidrReservationId`.
    pub subnet_cidr_reservation_id: Option<String>,
    /// `DryRun`.
    pub dry_run: bool,
}

/// Adds or overwrites tags of resources, named by id.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CreateTags {
    /// `ResourceId.N`.
    pub resources: Vec<String>,
    /// `Tag.N`.
    pub tags: Vec<Tag>,
    /// `DryRun`.
    pub dry_run: bool,
}

/// `Tag.N` of DeleteTags.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TagToDelete {
    pub key: String,
    /// Delete only if the tag has this value; any value if absent.
    pub value: Option<String>,
}

/// Removes tags of resources; without tags, all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeleteTags {
    /// `ResourceId.N`.
    pub resources: Vec<String>,
    /// `Tag.N`.
    pub tags: Vec<TagToDelete>,
    /// `DryRun`.
    pub dry_run: bool,
}
