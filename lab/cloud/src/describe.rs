//! The Describe calls: filter, sort, cut, from a state that may be behind.

mod attributes;

use crate::{
    Cloud, DescribeInstanceTypes, DescribeInstances, DescribeNetworkInterfaces,
    DescribeSecurityGroups, DescribeSubnets, DescribeTags, DescribeVpcs, DescribedInstance,
    Ec2Error, Instance, InstanceType, NetworkInterface, Response, SecurityGroup, Subnet,
    TagDescription, Vpc, eni, filter, filter::Filtered, paging, state::View, tag,
};
use config_model::{EniId, InstanceId};
use std::{collections::BTreeSet, net::Ipv4Addr, sync::Arc};

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
