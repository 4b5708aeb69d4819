//! Responses as trees, with the element names of EC2's XML.

mod instance;
mod network;

use crate::{
    NetworkInterface, Response, TagDescription, TrunkAssociation,
    clock::Epoch,
    describe::{private_dns_name, public_dns_name},
};
use instance::{instance_type, reservation};
use network::{group, reservation_of_subnet, subnet, vpc};
use std::collections::BTreeMap;

/// A piece of an EC2 response, ready to be printed.
///
/// `Fields` become one element each, `Set` becomes an `<item>` per member, `Text` is escaped text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// A leaf.
    Text(String),
    /// Named elements, in EC2's order.
    Fields(Vec<(&'static str, Document)>),
    /// A list: each member is an `<item>`.
    Set(Vec<Document>),
}

use Document::{Fields, Set};

impl Response {
    /// The elements inside of `<ActionResponse>`, after `<requestId>`. The epoch is
    /// [`crate::CloudSpec::epoch_unix_ms`].
    pub fn document(&self, epoch_unix_ms: u64) -> Document {
        let epoch = Epoch(epoch_unix_ms);
        match self {
            Self::AssignPrivateIpAddresses(assigned) => Fields(vec![
                ("networkInterfaceId", text(&assigned.network_interface_id)),
                (
                    "assignedPrivateIpAddressesSet",
                    set(&assigned.private_ip_addresses, |address| {
                        Fields(vec![("privateIpAddress", text(address))])
                    }),
                ),
                (
                    "assignedIpv4PrefixSet",
                    set(&assigned.ipv4_prefixes, |prefix| {
                        Fields(vec![("ipv4Prefix", text(prefix))])
                    }),
                ),
                ("return", text(true)),
            ]),
            Self::AssignIpv6Addresses(assigned) => Fields(vec![
                ("networkInterfaceId", text(&assigned.network_interface_id)),
                ("assignedIpv6Addresses", texts(&assigned.ipv6_addresses)),
                ("assignedIpv6PrefixSet", texts(&assigned.ipv6_prefixes)),
            ]),
            Self::UnassignIpv6Addresses(taken) => Fields(vec![
                ("networkInterfaceId", text(&taken.network_interface_id)),
                ("unassignedIpv6Addresses", texts(&taken.ipv6_addresses)),
                ("unassignedIpv6PrefixSet", texts(&taken.ipv6_prefixes)),
            ]),
            Self::AssociateTrunkInterface { association, client_token } => {
                let mut fields = vec![("interfaceAssociation", trunk_association(association))];
                fields.extend(client_token.as_ref().map(|token| ("clientToken", text(token))));
                Fields(fields)
            }
            Self::DisassociateTrunkInterface { client_token } => {
                let mut fields = vec![("return", text(true))];
                fields.extend(client_token.as_ref().map(|token| ("clientToken", text(token))));
                Fields(fields)
            }
            Self::DescribeTrunkInterfaceAssociations { associations, next_token } => {
                listing("interfaceAssociationSet", set(associations, trunk_association), next_token)
            }
            Self::CreateSubnetCidrReservation(made) => {
                Fields(vec![("subnetCidrReservation", reservation_of_subnet(made))])
            }
            Self::DeleteSubnetCidrReservation(ended) => {
                Fields(vec![("deletedSubnetCidrReservation", reservation_of_subnet(ended))])
            }
            Self::GetSubnetCidrReservations { reservations, next_token } => {
                let reservations = set(reservations, reservation_of_subnet);
                let mut fields = vec![
                    ("subnetIpv4CidrReservationSet", reservations),
                    ("subnetIpv6CidrReservationSet", Set(Vec::new())),
                ];
                fields.extend(next_token.as_ref().map(|token| ("nextToken", text(token))));
                Fields(fields)
            }
            Self::AttachNetworkInterface(attached) => Fields(vec![
                ("attachmentId", text(&attached.attachment_id)),
                ("networkCardIndex", text(attached.network_card_index.0)),
            ]),
            Self::CreateNetworkInterface { network_interface, client_token } => {
                let mut fields = vec![("networkInterface", eni(network_interface, epoch, true))];
                fields.extend(client_token.as_ref().map(|token| ("clientToken", text(token))));
                Fields(fields)
            }
            Self::CreateTags
            | Self::DeleteNetworkInterface
            | Self::DeleteTags
            | Self::DetachNetworkInterface
            | Self::ModifyNetworkInterfaceAttribute
            | Self::UnassignPrivateIpAddresses => Fields(vec![("return", text(true))]),
            Self::DescribeInstanceTypes { instance_types, next_token } => {
                listing("instanceTypeSet", set(instance_types, instance_type), next_token)
            }
            Self::DescribeInstances { instances, next_token } => {
                listing("reservationSet", set(instances, |i| reservation(i, epoch)), next_token)
            }
            Self::DescribeNetworkInterfaces { network_interfaces, next_token } => listing(
                "networkInterfaceSet",
                set(network_interfaces, |e| eni(e, epoch, true)),
                next_token,
            ),
            Self::DescribeSecurityGroups { security_groups, next_token } => {
                listing("securityGroupInfo", set(security_groups, group), next_token)
            }
            Self::DescribeSubnets { subnets, next_token } => {
                listing("subnetSet", set(subnets, subnet), next_token)
            }
            Self::DescribeTags { tags, next_token } => {
                listing("tagSet", set(tags, described_tag), next_token)
            }
            Self::DescribeVpcs { vpcs, next_token } => {
                listing("vpcSet", set(vpcs, vpc), next_token)
            }
        }
    }
}

fn text(value: impl ToString) -> Document {
    Document::Text(value.to_string())
}

fn texts<T: ToString>(items: &[T]) -> Document {
    set(items, |item| text(item.to_string()))
}

fn set<T>(items: &[T], each: impl Fn(&T) -> Document) -> Document {
    Set(items.iter().map(each).collect())
}

fn listing(name: &'static str, items: Document, next_token: &Option<String>) -> Document {
    let mut fields = vec![(name, items)];
    fields.extend(next_token.as_ref().map(|token| ("nextToken", text(token))));
    Fields(fields)
}

fn tags(tags: &BTreeMap<String, String>) -> Document {
    let item =
        |(key, value): (&String, &String)| Fields(vec![("key", text(key)), ("value", text(value))]);
    Set(tags.iter().map(item).collect())
}

fn described_tag(tag: &TagDescription) -> Document {
    Fields(vec![
        ("resourceId", text(&tag.resource_id)),
        ("resourceType", text(tag.resource_type)),
        ("key", text(&tag.tag.key)),
        ("value", text(&tag.tag.value)),
    ])
}

fn region_of(zone: &str) -> &str {
    zone.trim_end_matches(|c: char| c.is_ascii_lowercase())
}

fn groups(eni: &NetworkInterface) -> Document {
    set(&eni.groups, |group| {
        Fields(vec![("groupId", text(&group.id)), ("groupName", text(&group.name))])
    })
}

/// An ENI by itself, or within its instance, where EC2 leaves out who holds it.
fn eni(eni: &NetworkInterface, epoch: Epoch, by_itself: bool) -> Document {
    let region = region_of(&eni.availability_zone);
    let association = eni.public_ip.map(|public| {
        Fields(vec![
            ("publicIp", text(public)),
            ("publicDnsName", text(public_dns_name(public, region))),
            ("ipOwnerId", text("amazon")),
        ])
    });
    let addresses = set(&eni.private_addresses, |address| {
        let mut fields = vec![
            ("privateIpAddress", text(address.address)),
            ("privateDnsName", text(private_dns_name(address.address, region))),
            ("primary", text(address.primary)),
        ];
        if address.primary {
            fields.extend(association.clone().map(|association| ("association", association)));
        }
        Fields(fields)
    });
    let mut fields = vec![
        ("networkInterfaceId", text(&eni.id)),
        ("subnetId", text(&eni.subnet_id)),
        ("vpcId", text(&eni.vpc_id)),
        ("description", text(&eni.description)),
        ("ownerId", text(&eni.owner_id)),
        ("status", text(eni.status.as_str())),
        ("macAddress", text(eni.mac)),
        ("sourceDestCheck", text(eni.source_dest_check)),
        ("groupSet", groups(eni)),
    ];
    fields.extend(primary_address(eni, region));
    if by_itself {
        fields.extend([
            ("availabilityZone", text(&eni.availability_zone)),
            ("requesterId", text(&eni.requester_id)),
            ("requesterManaged", text(false)),
            ("tagSet", tags(&eni.tags)),
        ]);
    }
    fields.extend(attachment(eni, epoch, by_itself).map(|attachment| ("attachment", attachment)));
    fields.extend(association.clone().map(|association| ("association", association)));
    fields.extend([
        ("privateIpAddressesSet", addresses),
        (
            "ipv6AddressesSet",
            set(&eni.ipv6_addresses, |address| Fields(vec![("ipv6Address", text(address))])),
        ),
        (
            "ipv4PrefixSet",
            set(&eni.ipv4_prefixes, |prefix| Fields(vec![("ipv4Prefix", text(prefix))])),
        ),
        (
            "ipv6PrefixSet",
            set(&eni.ipv6_prefixes, |prefix| Fields(vec![("ipv6Prefix", text(prefix))])),
        ),
        ("interfaceType", text(eni.kind.as_str())),
    ]);
    Fields(fields)
}

/// Elements that an efa-only ENI does not have.
fn primary_address(eni: &NetworkInterface, region: &str) -> Vec<(&'static str, Document)> {
    let address = eni.primary_address().map(|address| {
        let name = text(private_dns_name(address, region));
        [("privateIpAddress", text(address)), ("privateDnsName", name)]
    });
    let ipv6 = eni.ipv6_addresses.first().map(|address| ("ipv6Address", text(address)));
    address.into_iter().flatten().chain(ipv6).collect()
}

fn trunk_association(association: &TrunkAssociation) -> Document {
    Fields(vec![
        ("associationId", text(&association.id)),
        ("branchInterfaceId", text(&association.branch)),
        ("trunkInterfaceId", text(&association.trunk)),
        ("interfaceProtocol", text("VLAN")),
        ("vlanId", text(association.vlan)),
        ("tagSet", Set(Vec::new())),
    ])
}

fn attachment(eni: &NetworkInterface, epoch: Epoch, by_itself: bool) -> Option<Document> {
    let attachment = eni.attachment.as_ref()?;
    let mut fields = vec![("attachmentId", text(&attachment.id))];
    if by_itself {
        fields.extend([
            ("instanceId", text(&attachment.instance_id)),
            ("instanceOwnerId", text(&eni.owner_id)),
        ]);
    }
    fields.extend([
        ("deviceIndex", text(attachment.device_index.0)),
        ("networkCardIndex", text(attachment.network_card_index.0)),
        ("status", text(attachment.status.as_str())),
        ("attachTime", text(epoch.with_millis(attachment.attach_time))),
        ("deleteOnTermination", text(attachment.delete_on_termination)),
    ]);
    Some(Fields(fields))
}
