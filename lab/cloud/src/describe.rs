//! The Describe calls: filter, sort, cut, from a state that may be behind.

use crate::{
    Cloud, DescribeInstanceTypes, DescribeInstances, DescribeNetworkInterfaces,
    DescribeSecurityGroups, DescribeSubnets, DescribeTags, DescribeVpcs, DescribedInstance,
    Ec2Error, Instance, InstanceType, NetworkInterface, Response, SecurityGroup, Subnet,
    TagDescription, Vpc, eni, filter, filter::Filtered, paging, state::View, tag,
};
use config_model::{EniId, InstanceId};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
    sync::Arc,
};

/// EC2's largest page of most calls, and of instance types.
const MOST: u32 = 1000;
const MOST_TYPES: u32 = 100;

impl Cloud {
    pub(crate) fn describe_enis(
        &self,
        request: &DescribeNetworkInterfaces,
    ) -> Result<Response, Ec2Error> {
        filter::check::<NetworkInterface>(&request.filters)?;
        let state = self.lagged(self.read_lag());
        let ids = &request.network_interface_ids;
        ids.iter().try_for_each(eni::check_id)?;
        let missing: Vec<&str> =
            ids.iter().filter(|id| !state.enis.contains_key(id)).map(|id| id.as_str()).collect();
        match missing.as_slice() {
            [] => {}
            [id] => return Err(Ec2Error::no_such_eni(id)),
            ids => return Err(Ec2Error::no_such_enis(&ids.join(", "))),
        }
        let found = passing(candidates(state, request).into_iter(), &request.filters);
        let (network_interfaces, next_token) =
            paging::cut(found, &request.page, !ids.is_empty(), MOST, |eni| eni.id.to_string())?;
        Ok(Response::DescribeNetworkInterfaces { network_interfaces, next_token })
    }

    pub(crate) fn describe_instances(
        &self,
        request: &DescribeInstances,
    ) -> Result<Response, Ec2Error> {
        filter::check::<Instance>(&request.filters)?;
        let state = self.lagged(self.read_lag());
        let ids = &request.instance_ids;
        if let Some(id) = ids.iter().find(|id| !state.instances.contains_key(id)) {
            return Err(Ec2Error::no_such_instance(id));
        }
        let found: Vec<&Arc<Instance>> = if ids.is_empty() {
            state.instances.values().collect()
        } else {
            ids.iter()
                .collect::<BTreeSet<_>>()
                .into_iter()
                .filter_map(|i| state.instances.get(i))
                .collect()
        };
        let found = passing(found.into_iter(), &request.filters);
        let (found, next_token) =
            paging::cut(found, &request.page, !ids.is_empty(), MOST, |i| i.id.to_string())?;
        let instances = found
            .into_iter()
            .map(|instance| DescribedInstance {
                network_interfaces: state
                    .enis_of(&instance.id)
                    .into_iter()
                    .map(|eni| NetworkInterface::clone(eni))
                    .collect(),
                instance,
            })
            .collect();
        Ok(Response::DescribeInstances { instances, next_token })
    }

    pub(crate) fn describe_subnets(&self, request: &DescribeSubnets) -> Result<Response, Ec2Error> {
        filter::check::<Subnet>(&request.filters)?;
        let state = self.lagged(self.read_lag());
        let ids = &request.subnet_ids;
        if let Some(id) = ids.iter().find(|id| !state.subnets.contains_key(id)) {
            return Err(Ec2Error::no_such_subnet(id));
        }
        let found = state.subnets.values().filter(|s| ids.is_empty() || ids.contains(&s.id));
        let found = passing(found, &request.filters);
        let (subnets, next_token) =
            paging::cut(found, &request.page, !ids.is_empty(), MOST, |s| s.id.to_string())?;
        Ok(Response::DescribeSubnets { subnets, next_token })
    }

    pub(crate) fn describe_vpcs(&self, request: &DescribeVpcs) -> Result<Response, Ec2Error> {
        filter::check::<Vpc>(&request.filters)?;
        let state = self.lagged(self.read_lag());
        let ids = &request.vpc_ids;
        if let Some(id) = ids.iter().find(|id| state.vpc.id != **id) {
            return Err(Ec2Error::no_such_vpc(id));
        }
        let found = passing(std::iter::once(state.vpc), &request.filters);
        let (vpcs, next_token) =
            paging::cut(found, &request.page, !ids.is_empty(), MOST, |v| v.id.to_string())?;
        Ok(Response::DescribeVpcs { vpcs, next_token })
    }

    pub(crate) fn describe_groups(
        &self,
        request: &DescribeSecurityGroups,
    ) -> Result<Response, Ec2Error> {
        filter::check::<SecurityGroup>(&request.filters)?;
        let state = self.lagged(self.read_lag());
        let ids = &request.group_ids;
        if let Some(id) = ids.iter().find(|id| !state.groups.contains_key(id)) {
            return Err(Ec2Error::no_such_group(id));
        }
        let found = state.groups.values().filter(|g| ids.is_empty() || ids.contains(&g.id));
        let found = passing(found, &request.filters);
        let (security_groups, next_token) =
            paging::cut(found, &request.page, !ids.is_empty(), MOST, |g| g.id.to_string())?;
        Ok(Response::DescribeSecurityGroups { security_groups, next_token })
    }

    pub(crate) fn describe_instance_types(
        &self,
        request: &DescribeInstanceTypes,
    ) -> Result<Response, Ec2Error> {
        filter::check::<InstanceType>(&request.filters)?;
        let names = &request.instance_types;
        let unknown: Vec<&str> = names
            .iter()
            .filter(|name| InstanceType::named(name).is_none())
            .map(String::as_str)
            .collect();
        if !unknown.is_empty() {
            return Err(Ec2Error::new(
                "InvalidInstanceType",
                format!(
                    "The following supplied instance types do not exist: [{}]",
                    unknown.join(", ")
                ),
            ));
        }
        let found = InstanceType::all()
            .iter()
            .filter(|kind| names.is_empty() || names.iter().any(|name| name == kind.name))
            .filter(|kind| filter::passes(*kind, &request.filters))
            .cloned()
            .collect();
        let (instance_types, next_token) =
            paging::cut(found, &request.page, !names.is_empty(), MOST_TYPES, |kind| {
                kind.name.to_owned()
            })?;
        Ok(Response::DescribeInstanceTypes { instance_types, next_token })
    }

    pub(crate) fn describe_tags(&self, request: &DescribeTags) -> Result<Response, Ec2Error> {
        filter::check::<TagDescription>(&request.filters)?;
        let state = self.lagged(self.read_lag());
        let mut found = tag::all(state);
        found.retain(|tag| filter::passes(tag, &request.filters));
        let (tags, next_token) = paging::cut(found, &request.page, false, MOST, |tag| {
            format!("{}\0{}", tag.resource_id, tag.tag.key)
        })?;
        Ok(Response::DescribeTags { tags, next_token })
    }
}

/// The ENIs that may be meant, in the order of their ids: by id or by instance without looking at
/// all the others.
fn candidates<'a>(
    state: View<'a>,
    request: &DescribeNetworkInterfaces,
) -> Vec<&'a Arc<NetworkInterface>> {
    let by_id = |ids: BTreeSet<EniId>| -> Vec<_> {
        ids.iter().filter_map(|id| state.enis.get(id)).collect()
    };
    if !request.network_interface_ids.is_empty() {
        return by_id(request.network_interface_ids.iter().cloned().collect());
    }
    if let Some(ids) = filter::plain_values(&request.filters, "network-interface-id") {
        return by_id(ids.iter().map(EniId::new).collect());
    }
    if let Some(ids) = filter::plain_values(&request.filters, "attachment.instance-id") {
        let ids: BTreeSet<InstanceId> = ids.iter().map(InstanceId::new).collect();
        let mut enis: Vec<_> = ids.iter().flat_map(|id| state.enis_of(id)).collect();
        enis.sort_by(|a, b| a.id.cmp(&b.id));
        return enis;
    }
    state.enis.values().collect()
}

/// Copies of the objects that pass, in the order of their ids.
fn passing<'a, T: Filtered + Clone + 'a>(
    objects: impl Iterator<Item = &'a Arc<T>>,
    filters: &[crate::Filter],
) -> Vec<T> {
    objects.filter(|object| filter::passes(object.as_ref(), filters)).map(|o| T::clone(o)).collect()
}

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

/// EC2's name for an address within the VPC.
pub(crate) fn private_dns_name(address: Ipv4Addr, region: &str) -> String {
    let dashed = address.to_string().replace('.', "-");
    if region == "us-east-1" {
        format!("ip-{dashed}.ec2.internal")
    } else {
        format!("ip-{dashed}.{region}.compute.internal")
    }
}

/// EC2's name for a public address.
pub(crate) fn public_dns_name(address: Ipv4Addr, region: &str) -> String {
    let dashed = address.to_string().replace('.', "-");
    if region == "us-east-1" {
        format!("ec2-{dashed}.compute-1.amazonaws.com")
    } else {
        format!("ec2-{dashed}.{region}.compute.amazonaws.com")
    }
}
