//! Translation between the core's calls and EC2's requests, in both directions, as the daemon's adapter does it.
//! `tests/bench` uses it too.

use config_model::{EniId, InstanceId, Span};
use ipamd_core::{
    AttachmentState, CloudAnswer, CloudCall, CloudFault, EniKind, Leftover, Remedy, SeenAttachment,
    SeenEni, SeenSubnet, Want,
};
use ipnet::{IpNet, Ipv4Net};
use lab_cloud::{
    AssignIpv6Addresses, AssignPrivateIpAddresses, AttachNetworkInterface, AttachmentChange,
    AttachmentStatus, CreateNetworkInterface, CreateTags, DeleteNetworkInterface,
    DescribeNetworkInterfaces, DescribeSubnets, DetachNetworkInterface, EniStatus, Filter,
    InterfaceKind, ModifyNetworkInterfaceAttribute, NetworkInterface, Page, Request, Response, Tag,
    TagSpecification, UnassignIpv6Addresses, UnassignPrivateIpAddresses,
};
use std::collections::BTreeMap;

/// The request of a call.
pub fn request(call: CloudCall) -> Request {
    match call {
        CloudCall::CreateEni { token, subnet, groups, want, tags, description } => create(
            token,
            want,
            tags,
            CreateNetworkInterface {
                subnet_id: Some(subnet),
                groups,
                description,
                ..CreateNetworkInterface::default()
            },
        ),
        CloudCall::AttachEni { eni, instance, card, device } => AttachNetworkInterface {
            network_interface_id: Some(eni),
            instance_id: Some(instance),
            device_index: Some(device.0),
            network_card_index: Some(card.0),
            dry_run: false,
        }
        .into(),
        CloudCall::KeepUntilTermination { eni, attachment } => ModifyNetworkInterfaceAttribute {
            network_interface_id: Some(eni),
            attachment: Some(AttachmentChange {
                attachment_id: Some(attachment),
                delete_on_termination: Some(true),
            }),
            ..ModifyNetworkInterfaceAttribute::default()
        }
        .into(),
        CloudCall::SetGroups { eni, groups } => ModifyNetworkInterfaceAttribute {
            network_interface_id: Some(eni),
            groups,
            ..ModifyNetworkInterfaceAttribute::default()
        }
        .into(),
        CloudCall::Assign { eni, want } => assign(eni, want),
        CloudCall::Unassign { eni, blocks } => unassign(eni, &blocks),
        CloudCall::DetachEni { eni: _, attachment } => DetachNetworkInterface {
            attachment_id: Some(attachment),
            ..DetachNetworkInterface::default()
        }
        .into(),
        CloudCall::DeleteEni { eni } => {
            DeleteNetworkInterface { network_interface_id: Some(eni), dry_run: false }.into()
        }
        CloudCall::TagEni { eni, tags } => CreateTags {
            resources: vec![eni.to_string()],
            tags: tags.into_iter().map(|(key, value)| Tag { key, value }).collect(),
            dry_run: false,
        }
        .into(),
        CloudCall::DescribeEni { eni } => DescribeNetworkInterfaces {
            network_interface_ids: vec![eni],
            ..DescribeNetworkInterfaces::default()
        }
        .into(),
        CloudCall::DescribeBranches { trunk } => DescribeNetworkInterfaces {
            filters: vec![Filter::new(
                "tag:vpcresources.k8s.aws/trunk-eni-id",
                [trunk.to_string()],
            )],
            page: whole(),
            ..DescribeNetworkInterfaces::default()
        }
        .into(),
        CloudCall::DescribeSubnets { vpc, zone } => DescribeSubnets {
            filters: vec![
                Filter::new("vpc-id", [vpc.to_string()]),
                Filter::new("availability-zone", [zone]),
            ],
            page: whole(),
            ..DescribeSubnets::default()
        }
        .into(),
        CloudCall::FindLeftovers { vpc, tags, description_prefix: _ } => {
            let mut filters = vec![
                Filter::new("vpc-id", [vpc.to_string()]),
                Filter::new("status", ["available"]),
            ];
            let tagged = |(key, value)| Filter::new(format!("tag:{key}"), [value]);
            filters.extend(tags.into_iter().map(tagged));
            DescribeNetworkInterfaces {
                filters,
                page: whole(),
                ..DescribeNetworkInterfaces::default()
            }
            .into()
        }
    }
}

/// The largest page of EC2; no list here is longer.
fn whole() -> Page {
    Page { max_results: Some(1000), next_token: None }
}

fn create(
    token: String,
    want: Want,
    tags: BTreeMap<String, String>,
    blank: CreateNetworkInterface,
) -> Request {
    let mut request = CreateNetworkInterface { client_token: Some(token), ..blank };
    match want {
        Want::Addresses(0) | Want::Prefixes(0) | Want::Ipv6Prefixes(0) => {}
        Want::Addresses(count) => request.secondary_private_ip_address_count = Some(count.into()),
        Want::Prefixes(count) => request.ipv4_prefix_count = Some(count.into()),
        Want::Ipv6Prefixes(count) => request.ipv6_prefix_count = Some(count.into()),
    }
    if !tags.is_empty() {
        let tags = tags.into_iter().map(|(key, value)| Tag { key, value }).collect();
        let resource_type = "network-interface".to_owned();
        request.tag_specifications.push(TagSpecification { resource_type, tags });
    }
    request.into()
}

fn assign(eni: EniId, want: Want) -> Request {
    let network_interface_id = Some(eni);
    let blank =
        AssignPrivateIpAddresses { network_interface_id, ..AssignPrivateIpAddresses::default() };
    match want {
        Want::Ipv6Prefixes(count) => {
            return AssignIpv6Addresses {
                network_interface_id: blank.network_interface_id,
                ipv6_prefix_count: Some(count.into()),
                ..AssignIpv6Addresses::default()
            }
            .into();
        }
        Want::Addresses(count) => AssignPrivateIpAddresses {
            secondary_private_ip_address_count: Some(count.into()),
            ..blank
        },
        Want::Prefixes(count) => {
            AssignPrivateIpAddresses { ipv4_prefix_count: Some(count.into()), ..blank }
        }
    }
    .into()
}

fn unassign(eni: EniId, blocks: &[IpNet]) -> Request {
    let v6 = |block: &IpNet| match block {
        IpNet::V4(_) => None,
        IpNet::V6(net) => Some(*net),
    };
    if let Some(IpNet::V6(_)) = blocks.first() {
        return UnassignIpv6Addresses {
            network_interface_id: Some(eni),
            ipv6_prefixes: blocks.iter().filter_map(v6).collect(),
            ..UnassignIpv6Addresses::default()
        }
        .into();
    }
    let v4 = |block: &IpNet| match block {
        IpNet::V4(net) => Some(*net),
        IpNet::V6(_) => None,
    };
    let (singles, prefixes): (Vec<Ipv4Net>, Vec<Ipv4Net>) =
        blocks.iter().filter_map(v4).partition(|net| net.prefix_len() == 32);
    UnassignPrivateIpAddresses {
        network_interface_id: Some(eni),
        private_ip_addresses: singles.iter().map(Ipv4Net::addr).collect(),
        ipv4_prefixes: prefixes,
        ..UnassignPrivateIpAddresses::default()
    }
    .into()
}

/// The answer to a call.
pub fn answer(
    call: &CloudCall,
    response: Response,
    now_unix_ms: u64,
) -> Result<CloudAnswer, CloudFault> {
    Ok(match (call, response) {
        (_, Response::CreateNetworkInterface { network_interface, .. }) => {
            CloudAnswer::Created(seen_by_ec2(&network_interface))
        }
        (_, Response::AttachNetworkInterface(attached)) => {
            CloudAnswer::Attached { attachment: attached.attachment_id }
        }
        (_, Response::AssignPrivateIpAddresses(given)) => {
            let singles = given
                .private_ip_addresses
                .into_iter()
                .map(|ip| IpNet::from(std::net::IpAddr::V4(ip)));
            let prefixes = given.ipv4_prefixes.into_iter().map(IpNet::V4);
            CloudAnswer::Assigned { blocks: singles.chain(prefixes).collect() }
        }
        (_, Response::AssignIpv6Addresses(given)) => CloudAnswer::Assigned {
            blocks: given.ipv6_prefixes.into_iter().map(IpNet::V6).collect(),
        },
        (
            CloudCall::FindLeftovers { description_prefix, .. },
            Response::DescribeNetworkInterfaces { network_interfaces, .. },
        ) => {
            let begins = |eni: &&NetworkInterface| eni.description.starts_with(description_prefix);
            let found = network_interfaces.iter().filter(begins);
            CloudAnswer::Leftovers(found.map(|eni| leftover(eni, now_unix_ms)).collect())
        }
        (
            CloudCall::DescribeBranches { .. },
            Response::DescribeNetworkInterfaces { network_interfaces, .. },
        ) => CloudAnswer::Branches(network_interfaces.iter().map(seen_by_ec2).collect()),
        (_, Response::DescribeNetworkInterfaces { network_interfaces, .. }) => {
            match network_interfaces.first() {
                Some(eni) => CloudAnswer::Described(seen_by_ec2(eni)),
                None => return Err(not_shown()),
            }
        }
        (_, Response::DescribeSubnets { subnets, .. }) => {
            CloudAnswer::Subnets(subnets.into_iter().map(subnet).collect())
        }
        _ => CloudAnswer::Done,
    })
}

fn not_shown() -> CloudFault {
    CloudFault {
        code: "InvalidNetworkInterfaceID.NotFound".to_owned(),
        message: "EC2 does not show it".to_owned(),
        remedy: Remedy::Gone,
    }
}

fn subnet(subnet: lab_cloud::Subnet) -> SeenSubnet {
    SeenSubnet {
        id: subnet.id,
        cidr: Some(subnet.cidr),
        cidr_v6: subnet.ipv6_cidr,
        free_addresses: subnet.available_ip_address_count,
        tags: subnet.tags,
    }
}

fn leftover(eni: &NetworkInterface, _now_unix_ms: u64) -> Leftover {
    Leftover {
        eni: eni.id.clone(),
        subnet: eni.subnet_id.clone(),
        tags: eni.tags.clone(),
        description: eni.description.clone(),
        age: eni.tags.get("node.k8s.amazonaws.com/createdAt").and(Some(Span::seconds(3600))),
        created_unreadable: false,
        available: eni.status == EniStatus::Available,
    }
}

/// The blocks for pods.
pub fn blocks(eni: &NetworkInterface) -> Vec<IpNet> {
    let singles = eni.secondary_addresses().map(|ip| IpNet::from(std::net::IpAddr::V4(ip)));
    let prefixes = eni.ipv4_prefixes.iter().map(|net| IpNet::V4(*net));
    let v6 = eni.ipv6_prefixes.iter().map(|net| IpNet::V6(*net));
    singles.chain(prefixes).chain(v6).collect()
}

fn state_of(status: AttachmentStatus) -> AttachmentState {
    match status {
        AttachmentStatus::Attaching => AttachmentState::Attaching,
        AttachmentStatus::Attached => AttachmentState::Attached,
        AttachmentStatus::Detaching => AttachmentState::Detaching,
    }
}

/// The ENI as DescribeNetworkInterfaces shows it.
pub fn seen_by_ec2(eni: &NetworkInterface) -> SeenEni {
    SeenEni {
        id: eni.id.clone(),
        mac: eni.mac,
        subnet: eni.subnet_id.clone(),
        subnet_cidr: None,
        subnet_cidr_v6: None,
        primary_address: eni.private_addresses.first().map(|first| first.address),
        ipv6_addresses: eni.ipv6_addresses.clone(),
        blocks: blocks(eni),
        attachment: eni.attachment.as_ref().map(|found| SeenAttachment {
            id: Some(found.id.clone()),
            instance: found.instance_id.clone(),
            card: found.network_card_index,
            device: found.device_index,
            state: state_of(found.status),
            delete_on_termination: Some(found.delete_on_termination),
        }),
        kind: Some(match eni.kind {
            InterfaceKind::Interface => EniKind::Standard,
            InterfaceKind::Efa => EniKind::Efa,
            InterfaceKind::EfaOnly => EniKind::EfaOnly,
            InterfaceKind::Trunk => EniKind::Trunk,
            InterfaceKind::Branch => EniKind::Branch,
        }),
        groups: Some(eni.groups.iter().map(|group| group.id.clone()).collect()),
        tags: Some(eni.tags.clone()),
    }
}

/// The ENI as IMDS shows it to its instance.
pub fn seen_by_imds(
    eni: &NetworkInterface,
    instance: &InstanceId,
    (subnet_cidr, subnet_cidr_v6): (Option<Ipv4Net>, Option<ipnet::Ipv6Net>),
) -> Option<SeenEni> {
    let attachment = eni.attachment.as_ref()?;
    Some(SeenEni {
        subnet_cidr,
        subnet_cidr_v6,
        attachment: Some(SeenAttachment {
            id: None,
            instance: instance.clone(),
            card: attachment.network_card_index,
            device: attachment.device_index,
            state: AttachmentState::Attached,
            delete_on_termination: None,
        }),
        kind: None,
        tags: None,
        ..seen_by_ec2(eni)
    })
}
