//! Values of described objects for filters.

use crate::{
    Instance, InstanceType, NetworkInterface, SecurityGroup, Subnet, TagDescription, Vpc,
    filter::Filtered,
};
use std::collections::BTreeMap;

fn one(value: impl ToString) -> Vec<String> {
    vec![value.to_string()]
}

fn many<T: ToString>(values: impl IntoIterator<Item = T>) -> Vec<String> {
    values.into_iter().map(|value| value.to_string()).collect()
}

impl Filtered for NetworkInterface {
    const NAMES: &'static [&'static str] = &[
        "addresses.primary",
        "addresses.private-ip-address",
        "association.public-ip",
        "attachment.attachment-id",
        "attachment.delete-on-termination",
        "attachment.device-index",
        "attachment.instance-id",
        "attachment.instance-owner-id",
        "attachment.network-card-index",
        "attachment.status",
        "availability-zone",
        "description",
        "group-id",
        "group-name",
        "interface-type",
        "ipv4-prefix.ipv4-prefix",
        "ipv6-addresses.ipv6-address",
        "ipv6-prefix.ipv6-prefix",
        "mac-address",
        "network-interface-id",
        "owner-id",
        "private-ip-address",
        "requester-id",
        "requester-managed",
        "source-dest-check",
        "status",
        "subnet-id",
        "vpc-id",
    ];

    fn values(&self, name: &str) -> Vec<String> {
        let attachment = self.attachment.iter();
        match name {
            "addresses.primary" => many(self.private_addresses.iter().map(|a| a.primary)),
            "addresses.private-ip-address" => {
                many(self.private_addresses.iter().map(|a| a.address))
            }
            "association.public-ip" => many(self.public_ip),
            "attachment.attachment-id" => many(attachment.map(|a| &a.id)),
            "attachment.delete-on-termination" => many(attachment.map(|a| a.delete_on_termination)),
            "attachment.device-index" => many(attachment.map(|a| a.device_index.0)),
            "attachment.instance-id" => many(attachment.map(|a| &a.instance_id)),
            "attachment.instance-owner-id" => many(attachment.map(|_| &self.owner_id)),
            "attachment.network-card-index" => many(attachment.map(|a| a.network_card_index.0)),
            "attachment.status" => many(attachment.map(|a| a.status.as_str())),
            "availability-zone" => one(&self.availability_zone),
            "description" => one(&self.description),
            "group-id" => many(self.groups.iter().map(|group| &group.id)),
            "group-name" => many(self.groups.iter().map(|group| &group.name)),
            "interface-type" => one(self.kind.as_str()),
            "ipv4-prefix.ipv4-prefix" => many(&self.ipv4_prefixes),
            "ipv6-addresses.ipv6-address" => many(&self.ipv6_addresses),
            "ipv6-prefix.ipv6-prefix" => many(&self.ipv6_prefixes),
            "mac-address" => one(self.mac),
            "network-interface-id" => one(&self.id),
            "owner-id" => one(&self.owner_id),
            "private-ip-address" => many(self.primary_address()),
            "requester-id" => one(&self.requester_id),
            "requester-managed" => one(false),
            "source-dest-check" => one(self.source_dest_check),
            "status" => one(self.status.as_str()),
            "subnet-id" => one(&self.subnet_id),
            "vpc-id" => one(&self.vpc_id),
            _ => Vec::new(),
        }
    }

    fn tags(&self) -> &BTreeMap<String, String> {
        &self.tags
    }
}

impl Filtered for Instance {
    const NAMES: &'static [&'static str] = &[
        "availability-zone",
        "image-id",
        "instance-id",
        "instance-state-code",
        "instance-state-name",
        "instance-type",
        "reservation-id",
        "subnet-id",
        "vpc-id",
    ];

    fn values(&self, name: &str) -> Vec<String> {
        match name {
            "availability-zone" => one(&self.availability_zone),
            "image-id" => one(&self.image_id),
            "instance-id" => one(&self.id),
            "instance-state-code" => one(self.state.code()),
            "instance-state-name" => one(self.state.as_str()),
            "instance-type" => one(&self.instance_type),
            "reservation-id" => one(&self.reservation_id),
            "subnet-id" => one(&self.subnet_id),
            "vpc-id" => one(&self.vpc_id),
            _ => Vec::new(),
        }
    }

    fn tags(&self) -> &BTreeMap<String, String> {
        &self.tags
    }
}

impl Filtered for Subnet {
    const NAMES: &'static [&'static str] = &[
        "availability-zone",
        "availability-zone-id",
        "available-ip-address-count",
        "cidr",
        "cidr-block",
        "ipv6-cidr-block-association.ipv6-cidr-block",
        "map-public-ip-on-launch",
        "owner-id",
        "state",
        "subnet-id",
        "vpc-id",
    ];

    fn values(&self, name: &str) -> Vec<String> {
        match name {
            "availability-zone" => one(&self.availability_zone),
            "availability-zone-id" => one(&self.availability_zone_id),
            "available-ip-address-count" => one(self.available_ip_address_count),
            "cidr" | "cidr-block" => one(self.cidr),
            "ipv6-cidr-block-association.ipv6-cidr-block" => many(self.ipv6_cidr),
            "map-public-ip-on-launch" => one(self.map_public_ip_on_launch),
            "owner-id" => one(&self.owner_id),
            "state" => one("available"),
            "subnet-id" => one(&self.id),
            "vpc-id" => one(&self.vpc_id),
            _ => Vec::new(),
        }
    }

    fn tags(&self) -> &BTreeMap<String, String> {
        &self.tags
    }
}

impl Filtered for Vpc {
    const NAMES: &'static [&'static str] = &[
        "cidr",
        "cidr-block-association.cidr-block",
        "ipv6-cidr-block-association.ipv6-cidr-block",
        "is-default",
        "owner-id",
        "state",
        "vpc-id",
    ];

    fn values(&self, name: &str) -> Vec<String> {
        match name {
            "cidr" => many(self.cidrs.first()),
            "cidr-block-association.cidr-block" => many(&self.cidrs),
            "ipv6-cidr-block-association.ipv6-cidr-block" => many(&self.ipv6_cidrs),
            "is-default" => one(false),
            "owner-id" => one(&self.owner_id),
            "state" => one("available"),
            "vpc-id" => one(&self.id),
            _ => Vec::new(),
        }
    }

    fn tags(&self) -> &BTreeMap<String, String> {
        &self.tags
    }
}

impl Filtered for SecurityGroup {
    const NAMES: &'static [&'static str] =
        &["description", "group-id", "group-name", "owner-id", "vpc-id"];

    fn values(&self, name: &str) -> Vec<String> {
        match name {
            "description" => one(&self.description),
            "group-id" => one(&self.id),
            "group-name" => one(&self.name),
            "owner-id" => one(&self.owner_id),
            "vpc-id" => one(&self.vpc_id),
            _ => Vec::new(),
        }
    }

    fn tags(&self) -> &BTreeMap<String, String> {
        &self.tags
    }
}

static NO_TAGS: BTreeMap<String, String> = BTreeMap::new();

impl Filtered for InstanceType {
    const NAMES: &'static [&'static str] = &[
        "bare-metal",
        "hypervisor",
        "instance-type",
        "network-info.ipv4-addresses-per-interface",
        "network-info.maximum-network-cards",
        "network-info.maximum-network-interfaces",
        "processor-info.supported-architecture",
    ];

    fn values(&self, name: &str) -> Vec<String> {
        match name {
            "bare-metal" => one(self.bare_metal),
            "hypervisor" => many(self.hypervisor.as_str()),
            "instance-type" => one(self.name),
            "network-info.ipv4-addresses-per-interface" => one(self.ipv4_per_interface),
            "network-info.maximum-network-cards" => one(self.cards.len()),
            "network-info.maximum-network-interfaces" => one(self.maximum_network_interfaces()),
            "processor-info.supported-architecture" => one(self.architecture),
            _ => Vec::new(),
        }
    }

    fn tags(&self) -> &BTreeMap<String, String> {
        &NO_TAGS
    }
}

impl Filtered for TagDescription {
    const NAMES: &'static [&'static str] = &["key", "resource-id", "resource-type", "value"];

    fn values(&self, name: &str) -> Vec<String> {
        match name {
            "key" => one(&self.tag.key),
            "resource-id" => one(&self.resource_id),
            "resource-type" => one(self.resource_type),
            "value" => one(&self.tag.value),
            _ => Vec::new(),
        }
    }

    fn tags(&self) -> &BTreeMap<String, String> {
        &NO_TAGS
    }
}
