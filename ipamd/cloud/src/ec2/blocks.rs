//! Addresses and prefixes of an ENI.

use super::{Ec2, failure::incomplete};
use config_model::EniId;
use ipamd_core::{CloudAnswer, CloudFault, Remedy, Want};
use ipnet::IpNet;
use std::net::IpAddr;

impl Ec2 {
    pub(super) async fn assign(
        &self,
        action: &'static str,
        eni: &EniId,
        want: Want,
    ) -> Result<CloudAnswer, CloudFault> {
        let v4 = || self.client.assign_private_ip_addresses().network_interface_id(eni.as_str());
        let blocks = match want {
            Want::Addresses(count) => {
                let request = v4().secondary_private_ip_address_count(count.into());
                let answer = self.ask(action, request.send()).await?;
                let texts = answer.assigned_private_ip_addresses().iter();
                single_addresses(texts.map(|assigned| assigned.private_ip_address()))
                    .ok_or_else(|| incomplete(action, "assignedPrivateIpAddressesSet"))?
            }
            Want::Prefixes(count) => {
                let answer = self.ask(action, v4().ipv4_prefix_count(count.into()).send()).await?;
                let texts = answer.assigned_ipv4_prefixes().iter();
                prefixes(texts.map(|assigned| assigned.ipv4_prefix()))
                    .ok_or_else(|| incomplete(action, "assignedIpv4PrefixSet"))?
            }
            Want::Ipv6Prefixes(count) => {
                let request = self.client.assign_ipv6_addresses();
                let request =
                    request.network_interface_id(eni.as_str()).ipv6_prefix_count(count.into());
                let answer = self.ask(action, request.send()).await?;
                let texts = answer.assigned_ipv6_prefixes().iter();
                prefixes(texts.map(|assigned| Some(assigned.as_str())))
                    .ok_or_else(|| incomplete(action, "assignedIpv6PrefixSet"))?
            }
        };
        Ok(CloudAnswer::Assigned { blocks })
    }

    pub(super) async fn unassign(
        &self,
        action: &'static str,
        eni: &EniId,
        blocks: Vec<IpNet>,
    ) -> Result<CloudAnswer, CloudFault> {
        let single = |block: &IpNet| block.prefix_len() == block.max_prefix_len();
        let v4 = |block: &IpNet| matches!(block, IpNet::V4(_));
        let texts = blocks.iter().map(ToString::to_string).collect();
        if blocks.iter().all(|block| v4(block) && single(block)) {
            let addresses = blocks.iter().map(|block| block.addr().to_string()).collect();
            let request = self.client.unassign_private_ip_addresses();
            let request = request
                .network_interface_id(eni.as_str())
                .set_private_ip_addresses(Some(addresses));
            self.ask(action, request.send()).await?;
        } else if blocks.iter().all(|block| v4(block) && !single(block)) {
            let request = self.client.unassign_private_ip_addresses();
            let request = request.network_interface_id(eni.as_str()).set_ipv4_prefixes(Some(texts));
            self.ask(action, request.send()).await?;
        } else if blocks.iter().all(|block| !v4(block) && !single(block)) {
            let request = self.client.unassign_ipv6_addresses();
            let request = request.network_interface_id(eni.as_str()).set_ipv6_prefixes(Some(texts));
            self.ask(action, request.send()).await?;
        } else {
            return Err(CloudFault {
                code: "MixedBlocks".to_owned(),
                message: format!("one call returns blocks of one kind, not all of {blocks:?}"),
                remedy: Remedy::NotifyOperator,
            });
        }
        Ok(CloudAnswer::Done)
    }
}

/// Parses addresses, each as a block; `None` if one is missing or invalid.
pub(super) fn single_addresses<'a>(
    texts: impl Iterator<Item = Option<&'a str>>,
) -> Option<Vec<IpNet>> {
    texts.map(|text| Some(IpNet::from(text?.parse::<IpAddr>().ok()?))).collect()
}

/// Parses prefixes; `None` if one is missing or invalid.
pub(super) fn prefixes<'a>(texts: impl Iterator<Item = Option<&'a str>>) -> Option<Vec<IpNet>> {
    texts.map(|text| text?.parse().ok()).collect()
}
