//! Subnets, the VPC, security groups, reservations.

use super::{Document, Fields, Set, region_of, set, tags, text};
use crate::{Peer, Protocol, Reservation, Rule, SecurityGroup, Subnet, Vpc};

pub(super) fn subnet(subnet: &Subnet) -> Document {
    let region = region_of(&subnet.availability_zone);
    let ipv6 = subnet.ipv6_cidr.iter().map(|cidr| {
        Fields(vec![
            (
                "associationId",
                text(subnet.id.as_str().replacen("subnet-", "subnet-cidr-assoc-", 1)),
            ),
            ("ipv6CidrBlock", text(cidr)),
            ("ipv6CidrBlockState", Fields(vec![("state", text("associated"))])),
        ])
    });
    let arn = format!("arn:aws:ec2:{region}:{}:subnet/{}", subnet.owner_id, subnet.id);
    Fields(vec![
        ("subnetId", text(&subnet.id)),
        ("subnetArn", text(arn)),
        ("state", text("available")),
        ("ownerId", text(&subnet.owner_id)),
        ("vpcId", text(&subnet.vpc_id)),
        ("cidrBlock", text(subnet.cidr)),
        ("ipv6CidrBlockAssociationSet", Set(ipv6.collect())),
        ("availableIpAddressCount", text(subnet.available_ip_address_count)),
        ("availabilityZone", text(&subnet.availability_zone)),
        ("availabilityZoneId", text(&subnet.availability_zone_id)),
        ("defaultForAz", text(false)),
        ("mapPublicIpOnLaunch", text(subnet.map_public_ip_on_launch)),
        ("assignIpv6AddressOnCreation", text(subnet.assign_ipv6_address_on_creation)),
        ("tagSet", tags(&subnet.tags)),
    ])
}

pub(super) fn vpc(vpc: &Vpc) -> Document {
    let blocks = vpc.cidrs.iter().enumerate().map(|(index, cidr)| {
        Fields(vec![
            ("cidrBlock", text(cidr)),
            ("associationId", text(format!("vpc-cidr-assoc-{index:017x}"))),
            ("cidrBlockState", Fields(vec![("state", text("associated"))])),
        ])
    });
    let ipv6 = vpc.ipv6_cidrs.iter().enumerate().map(|(index, cidr)| {
        Fields(vec![
            ("associationId", text(format!("vpc-cidr-assoc-1{index:016x}"))),
            ("ipv6CidrBlock", text(cidr)),
            ("ipv6CidrBlockState", Fields(vec![("state", text("associated"))])),
            ("ipv6Pool", text("Amazon")),
        ])
    });
    let mut fields = vec![
        ("vpcId", text(&vpc.id)),
        ("ownerId", text(&vpc.owner_id)),
        ("state", text("available")),
    ];
    fields.extend(vpc.cidrs.first().map(|cidr| ("cidrBlock", text(cidr))));
    fields.extend([
        ("cidrBlockAssociationSet", Set(blocks.collect())),
        ("ipv6CidrBlockAssociationSet", Set(ipv6.collect())),
        ("instanceTenancy", text("default")),
        ("isDefault", text(false)),
        ("tagSet", tags(&vpc.tags)),
    ]);
    Fields(fields)
}

pub(super) fn group(group: &SecurityGroup) -> Document {
    Fields(vec![
        ("ownerId", text(&group.owner_id)),
        ("groupId", text(&group.id)),
        ("groupName", text(&group.name)),
        ("groupDescription", text(&group.description)),
        ("vpcId", text(&group.vpc_id)),
        ("ipPermissions", set(&group.ingress, |rule| permission(rule, &group.owner_id))),
        ("ipPermissionsEgress", set(&group.egress, |rule| permission(rule, &group.owner_id))),
        ("tagSet", tags(&group.tags)),
    ])
}

pub(super) fn permission(rule: &Rule, owner: &str) -> Document {
    let protocol = match rule.protocol {
        Protocol::All => "-1".to_owned(),
        Protocol::Icmp => "icmp".to_owned(),
        Protocol::Tcp => "tcp".to_owned(),
        Protocol::Udp => "udp".to_owned(),
        Protocol::Number(number) => number.to_string(),
    };
    let mut fields = vec![("ipProtocol", text(protocol))];
    if let Some((from, to)) = rule.ports {
        fields.extend([("fromPort", text(from)), ("toPort", text(to))]);
    }
    let (mut members, mut ranges, mut ipv6_ranges) = (Vec::new(), Vec::new(), Vec::new());
    match &rule.peer {
        Peer::Group(id) => {
            members.push(Fields(vec![("userId", text(owner)), ("groupId", text(id))]));
        }
        Peer::Cidr(cidr) => ranges.push(Fields(vec![("cidrIp", text(cidr))])),
        Peer::Cidr6(cidr) => ipv6_ranges.push(Fields(vec![("cidrIpv6", text(cidr))])),
    }
    fields.extend([
        ("groups", Set(members)),
        ("ipRanges", Set(ranges)),
        ("ipv6Ranges", Set(ipv6_ranges)),
        ("prefixListIds", Set(Vec::new())),
    ]);
    Fields(fields)
}

pub(super) fn reservation_of_subnet(reservation: &Reservation) -> Document {
    Fields(vec![
        ("subnetCidrReservationId", text(&reservation.id)),
        ("subnetId", text(&reservation.subnet_id)),
        ("cidr", text(reservation.cidr)),
        ("reservationType", text(reservation.kind.as_str())),
        ("ownerId", text(&reservation.owner_id)),
        ("description", text(&reservation.description)),
        ("tagSet", Set(Vec::new())),
    ])
}
