//! Paginated answers of EC2.

use super::{
    Ec2,
    eni::{seen, tags_of},
    failure::incomplete,
    leftover::leftover,
};
use aws_sdk_ec2::types::{Filter, NetworkInterface, Subnet};
use config_model::{EniId, InstanceId, SubnetId, VpcId};
use ipamd_core::{Action, CloudFault, Leftover, SeenEni, SeenSubnet};
use std::{collections::BTreeMap, time::SystemTime};

/// EC2's maximum page size.
const PAGE: i32 = 1000;
/// An instance has at most some 60 ENIs, and a VPC a few hundred subnets: more pages are an error of the server.
const MAX_PAGES: u32 = 20;

impl Ec2 {
    pub(super) async fn attached_enis(
        &self,
        instance: &InstanceId,
    ) -> Result<Vec<SeenEni>, CloudFault> {
        let action = Action::Describe.name();
        let of_instance = filter("attachment.instance-id", instance.as_str());
        let found = self.enis(action, vec![of_instance]).await?;
        found.iter().map(|eni| seen(action, eni)).collect()
    }

    /// The ENIs that the VPC resource controller has tagged as branches of the trunk.
    pub(super) async fn branches(
        &self,
        action: &'static str,
        trunk: &EniId,
    ) -> Result<Vec<SeenEni>, CloudFault> {
        let of_trunk = filter("tag:vpcresources.k8s.aws/trunk-eni-id", trunk.as_str());
        let found = self.enis(action, vec![of_trunk]).await?;
        // A branch has no attachment of its own, and an unreadable ENI must not hide the others.
        let branches = found.into_iter().filter_map(|mut eni| {
            eni.attachment = None;
            seen(action, &eni).ok()
        });
        Ok(branches.collect())
    }

    /// Unattached ENIs of the VPC that have all of the tags.
    pub(super) async fn leftovers(
        &self,
        action: &'static str,
        vpc: &VpcId,
        tags: BTreeMap<String, String>,
        description_prefix: &str,
    ) -> Result<Vec<Leftover>, CloudFault> {
        let mut filters = vec![filter("vpc-id", vpc.as_str()), filter("status", "available")];
        filters.extend(tags.iter().map(|(key, value)| filter(&format!("tag:{key}"), value)));
        let found = self.enis(action, filters).await?;
        let now = SystemTime::now();
        found
            .iter()
            .map(|eni| leftover(action, eni, now))
            // The result of the filters is checked again, because ENIs are deleted by it.
            .filter(|found| {
                found.as_ref().map_or(true, |found| {
                    found.description.starts_with(description_prefix)
                        && tags.iter().all(|(key, value)| found.tags.get(key) == Some(value))
                })
            })
            .collect()
    }

    /// The VPC's subnets in a zone.
    pub(super) async fn subnets(
        &self,
        action: &'static str,
        vpc: &VpcId,
        zone: &str,
    ) -> Result<Vec<SeenSubnet>, CloudFault> {
        let request = self
            .client
            .describe_subnets()
            .filters(filter("vpc-id", vpc.as_str()))
            .filters(filter("availability-zone", zone));
        let (mut subnets, mut token) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let page = request.clone().max_results(PAGE).set_next_token(token.take());
            let answer = self.ask(action, page.send()).await?;
            for found in answer.subnets() {
                subnets.push(subnet(found).ok_or_else(|| incomplete(action, "subnetSet"))?);
            }
            token = further(answer.next_token());
            if token.is_none() {
                return Ok(subnets);
            }
        }
        Err(incomplete(action, "an end of its pages"))
    }

    async fn enis(
        &self,
        action: &'static str,
        filters: Vec<Filter>,
    ) -> Result<Vec<NetworkInterface>, CloudFault> {
        let request = self.client.describe_network_interfaces().set_filters(Some(filters));
        let (mut enis, mut token) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let page = request.clone().max_results(PAGE).set_next_token(token.take());
            let answer = self.ask(action, page.send()).await?;
            token = further(answer.next_token());
            enis.extend(answer.network_interfaces.unwrap_or_default());
            if token.is_none() {
                return Ok(enis);
            }
        }
        Err(incomplete(action, "an end of its pages"))
    }
}

fn filter(name: &str, value: &str) -> Filter {
    Filter::builder().name(name).values(value).build()
}

fn further(token: Option<&str>) -> Option<String> {
    token.filter(|token| !token.is_empty()).map(str::to_owned)
}

fn subnet(found: &Subnet) -> Option<SeenSubnet> {
    let associated = found.ipv6_cidr_block_association_set().iter().find(|association| {
        let state = association.ipv6_cidr_block_state().and_then(|state| state.state());
        state.is_none_or(|state| state.as_str() == "associated")
    });
    let cidr_v6 = match associated.and_then(|association| association.ipv6_cidr_block()) {
        Some(text) => Some(text.parse().ok()?),
        None => None,
    };
    let cidr = match found.cidr_block().filter(|text| !text.is_empty()) {
        Some(text) => Some(text.parse().ok()?),
        None => None,
    };
    let free = found.available_ip_address_count().unwrap_or_default();
    Some(SeenSubnet {
        id: SubnetId::new(found.subnet_id()?),
        cidr,
        cidr_v6,
        free_addresses: u32::try_from(free).unwrap_or_default(),
        tags: tags_of(found.tags()),
    })
}
