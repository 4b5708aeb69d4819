//! The limits of an instance type.

use super::{Ec2, failure::incomplete};
use crate::TypeLimits;
use aws_sdk_ec2::types::{InstanceType, InstanceTypeHypervisor, NetworkInfo};
use config_model::CardIndex;
use ipamd_core::CloudFault;
use std::collections::BTreeMap;

impl Ec2 {
    pub(super) async fn limits(&self, instance_type: &str) -> Result<TypeLimits, CloudFault> {
        let action = "DescribeInstanceTypes";
        let request = self.client.describe_instance_types();
        let request = request.instance_types(InstanceType::from(instance_type));
        let answer = self.ask(action, request.send()).await.map_err(|fault| {
            let message = match fault.code.as_str() {
                "InvalidInstanceType" => format!(
                    "EC2 knows no instance type {instance_type} in this region, so the node's limits of \
                     ENIs and addresses are unknown: {}",
                    fault.message
                ),
                _ => fault.message.clone(),
            };
            CloudFault { message, ..fault }
        })?;
        let [found] = answer.instance_types() else {
            return Err(incomplete(action, "exactly one instance type"));
        };
        let network = found.network_info().ok_or_else(|| incomplete(action, "networkInfo"))?;
        let ipv4_per_eni = network.ipv4_addresses_per_interface().and_then(natural);
        let on_nitro = found.hypervisor() == Some(&InstanceTypeHypervisor::Nitro);
        let ipv6_per_eni = network.ipv6_addresses_per_interface().and_then(natural);
        let prefixes = on_nitro || found.bare_metal() == Some(true);
        Ok(TypeLimits {
            enis: enis(network).ok_or_else(|| incomplete(action, "networkCards"))?,
            ipv4_per_eni: ipv4_per_eni
                .ok_or_else(|| incomplete(action, "ipv4AddressesPerInterface"))?,
            ipv6_per_eni: ipv6_per_eni.unwrap_or_default(),
            prefixes,
            trunk: prefixes && !has_no_trunk(instance_type),
        })
    }
}

/// EC2 does not report the types that can have a trunk ENI. By the resource controller's list they are the Nitro
/// types except the burstable ones; an unknown type counts as one of them.
fn has_no_trunk(instance_type: &str) -> bool {
    let family = instance_type.split('.').next().unwrap_or_default();
    ["t2", "t3", "t3a", "t4g"].contains(&family)
}

/// By card. The type's own maximum is the sum over all cards, so it applies to card 0 only if no cards are
/// listed.
fn enis(network: &NetworkInfo) -> Option<BTreeMap<CardIndex, u16>> {
    if network.network_cards().is_empty() {
        let all = network.maximum_network_interfaces().and_then(natural)?;
        return Some(BTreeMap::from([(CardIndex(0), all)]));
    }
    let cards = network.network_cards().iter();
    let enis: BTreeMap<_, _> = cards
        .map(|card| {
            let index = u16::try_from(card.network_card_index()?).ok()?;
            Some((CardIndex(index), card.maximum_network_interfaces().and_then(natural)?))
        })
        .collect::<Option<_>>()?;
    enis.contains_key(&CardIndex(0)).then_some(enis)
}

fn natural(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|number| *number > 0)
}
