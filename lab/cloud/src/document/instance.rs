//! Instances and their types.

use super::{Document, Fields, Set, eni, groups, primary_address, region_of, set, tags, text};
use crate::{DescribedInstance, InstanceType, clock::Epoch, describe::public_dns_name};

/// Every instance here has a reservation of its own.
pub(super) fn reservation(described: &DescribedInstance, epoch: Epoch) -> Document {
    let instance = &described.instance;
    let owner = described.network_interfaces.first().map(|eni| eni.owner_id.clone());
    Fields(vec![
        ("reservationId", text(&instance.reservation_id)),
        ("ownerId", text(owner.unwrap_or_default())),
        ("groupSet", Set(Vec::new())),
        ("instancesSet", Set(vec![instance_item(described, epoch)])),
    ])
}

pub(super) fn instance_item(described: &DescribedInstance, epoch: Epoch) -> Document {
    let instance = &described.instance;
    let region = region_of(&instance.availability_zone);
    let kind = instance.limits();
    let state =
        vec![("code", text(instance.state.code())), ("name", text(instance.state.as_str()))];
    let placement = vec![
        ("availabilityZone", text(&instance.availability_zone)),
        ("groupName", text("")),
        ("tenancy", text("default")),
    ];
    let in_tags = if instance.metadata_tags { "enabled" } else { "disabled" };
    let metadata = vec![
        ("state", text("applied")),
        ("httpTokens", text("required")),
        ("httpPutResponseHopLimit", text(instance.metadata_hop_limit)),
        ("httpEndpoint", text("enabled")),
        ("instanceMetadataTags", text(in_tags)),
    ];
    let mut fields = vec![
        ("instanceId", text(&instance.id)),
        ("imageId", text(&instance.image_id)),
        ("instanceState", Fields(state)),
        ("amiLaunchIndex", text(0)),
        ("instanceType", text(&instance.instance_type)),
        ("launchTime", text(epoch.with_millis(instance.launch_time))),
        ("placement", Fields(placement)),
        ("monitoring", Fields(vec![("state", text("disabled"))])),
        ("architecture", text(kind.map_or("x86_64", |kind| kind.architecture))),
        ("rootDeviceType", text("ebs")),
        ("virtualizationType", text("hvm")),
        // EC2 answers this for Nitro too.
        ("hypervisor", text("xen")),
        ("tagSet", tags(&instance.tags)),
        ("metadataOptions", Fields(metadata)),
    ];
    if let Some(primary) = described.network_interfaces.first() {
        fields.extend([
            ("subnetId", text(&instance.subnet_id)),
            ("vpcId", text(&instance.vpc_id)),
            ("sourceDestCheck", text(primary.source_dest_check)),
            ("groupSet", groups(primary)),
        ]);
        fields.extend(primary_address(primary, region));
        if let Some(public) = primary.public_ip {
            fields.extend([
                ("ipAddress", text(public)),
                ("dnsName", text(public_dns_name(public, region))),
            ]);
        }
    }
    let enis = set(&described.network_interfaces, |e| eni(e, epoch, false));
    fields.push(("networkInterfaceSet", enis));
    Fields(fields)
}

pub(super) fn instance_type(kind: &InstanceType) -> Document {
    let cards = set(&kind.cards, |card| {
        Fields(vec![
            ("networkCardIndex", text(card.index)),
            ("maximumNetworkInterfaces", text(card.maximum_network_interfaces)),
        ])
    });
    let network = vec![
        ("maximumNetworkInterfaces", text(kind.maximum_network_interfaces())),
        ("maximumNetworkCards", text(kind.cards.len())),
        ("defaultNetworkCardIndex", text(0)),
        ("networkCards", cards),
        ("ipv4AddressesPerInterface", text(kind.ipv4_per_interface)),
        ("ipv6AddressesPerInterface", text(kind.ipv6_per_interface)),
        ("ipv6Supported", text(kind.ipv6_per_interface > 0)),
    ];
    let mut fields = vec![
        ("instanceType", text(kind.name)),
        ("currentGeneration", text(true)),
        ("bareMetal", text(kind.bare_metal)),
    ];
    fields.extend(kind.hypervisor.as_str().map(|hypervisor| ("hypervisor", text(hypervisor))));
    let architectures = Set(vec![text(kind.architecture)]);
    fields.extend([
        ("processorInfo", Fields(vec![("supportedArchitectures", architectures)])),
        ("networkInfo", Fields(network)),
    ]);
    Fields(fields)
}
