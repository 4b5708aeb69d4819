//! The core's calls and EC2's answers.

use super::{Ec2, eni::seen, failure::incomplete};
use aws_sdk_ec2::types::{
    Filter, NetworkInterfaceAttachmentChanges, ResourceType, Tag, TagSpecification,
};
use config_model::{AttachmentId, EniId, InstanceId, SecurityGroupId, SubnetId};
use ipamd_core::{CloudAnswer, CloudCall, CloudFault, Remedy, SeenEni, Want};
use ipnet::IpNet;
use std::{collections::BTreeMap, net::IpAddr};

/// The most that EC2 gives on one page.
const PAGE: i32 = 1000;
/// An instance has at most some 60 ENIs: more pages than this are an error of the far side.
const MAX_PAGES: u32 = 20;

impl Ec2 {
    pub(super) async fn carry_out(&self, call: CloudCall) -> Result<CloudAnswer, CloudFault> {
        let action = call.action().name();
        match call {
            CloudCall::CreateEni {
                token,
                subnet,
                groups,
                want: Want::Addresses(secondary_count),
                tags,
                description,
            } => {
                let new = NewEni { token, subnet, groups, secondary_count, tags, description };
                self.create(action, new).await
            }
            CloudCall::AttachEni { eni, instance, card, device } => {
                let request = self.client.attach_network_interface();
                let request = request
                    .network_interface_id(eni.as_str())
                    .instance_id(instance.as_str())
                    .network_card_index(card.0.into())
                    .device_index(device.0.into());
                let answer = self.ask(action, request.send()).await?;
                let id =
                    answer.attachment_id().ok_or_else(|| incomplete(action, "attachmentId"))?;
                Ok(CloudAnswer::Attached { attachment: AttachmentId::new(id) })
            }
            CloudCall::KeepUntilTermination { eni, attachment } => {
                let change = NetworkInterfaceAttachmentChanges::builder()
                    .attachment_id(attachment.as_str())
                    .delete_on_termination(true)
                    .build();
                let request = self.client.modify_network_interface_attribute();
                let request = request.network_interface_id(eni.as_str()).attachment(change);
                self.ask(action, request.send()).await.map(|_| CloudAnswer::Done)
            }
            CloudCall::Assign { eni, want: Want::Addresses(count) } => {
                self.assign(action, &eni, count).await
            }
            CloudCall::Unassign { eni, blocks }
                if blocks
                    .iter()
                    .all(|block| matches!(block, IpNet::V4(net) if net.prefix_len() == 32)) =>
            {
                let addresses = blocks.iter().map(|block| block.addr().to_string()).collect();
                let request = self.client.unassign_private_ip_addresses();
                let request = request
                    .network_interface_id(eni.as_str())
                    .set_private_ip_addresses(Some(addresses));
                self.ask(action, request.send()).await.map(|_| CloudAnswer::Done)
            }
            CloudCall::DetachEni { eni: _, attachment } => {
                let request = self.client.detach_network_interface();
                let request = request.attachment_id(attachment.as_str());
                self.ask(action, request.send()).await.map(|_| CloudAnswer::Done)
            }
            CloudCall::DeleteEni { eni } => {
                let request = self.client.delete_network_interface();
                let request = request.network_interface_id(eni.as_str());
                self.ask(action, request.send()).await.map(|_| CloudAnswer::Done)
            }
            CloudCall::DescribeEni { eni } => self.describe(action, &eni).await,
            CloudCall::CreateEni { .. }
            | CloudCall::Assign { .. }
            | CloudCall::Unassign { .. }
            | CloudCall::SetGroups { .. }
            | CloudCall::TagEni { .. }
            | CloudCall::DescribeSubnets { .. }
            | CloudCall::FindLeftovers { .. } => Err(CloudFault {
                code: "Unsupported".to_owned(),
                message: format!("this version cannot ask for {action} like that"),
                remedy: Remedy::TellOperator,
            }),
        }
    }

    async fn create(&self, action: &'static str, new: NewEni) -> Result<CloudAnswer, CloudFault> {
        let groups = new.groups.iter().map(|group| group.as_str().to_owned()).collect();
        let mut request = self
            .client
            .create_network_interface()
            .client_token(new.token)
            .subnet_id(new.subnet.as_str())
            .set_groups(Some(groups))
            .description(new.description);
        if new.secondary_count > 0 {
            request = request.secondary_private_ip_address_count(new.secondary_count.into());
        }
        if !new.tags.is_empty() {
            request = request.tag_specifications(tag_specification(new.tags));
        }
        let answer = self.ask(action, request.send()).await?;
        let made = answer.network_interface();
        let made = made.ok_or_else(|| incomplete(action, "networkInterface"))?;
        let made = seen(action, made)?.ok_or_else(|| incomplete(action, "privateIpAddress"))?;
        Ok(CloudAnswer::Created(made))
    }

    async fn assign(
        &self,
        action: &'static str,
        eni: &EniId,
        count: u16,
    ) -> Result<CloudAnswer, CloudFault> {
        let request = self.client.assign_private_ip_addresses();
        let request = request
            .network_interface_id(eni.as_str())
            .secondary_private_ip_address_count(count.into());
        let answer = self.ask(action, request.send()).await?;
        let texts = answer.assigned_private_ip_addresses().iter();
        let blocks = texts
            .map(|assigned| {
                Some(IpNet::from(assigned.private_ip_address()?.parse::<IpAddr>().ok()?))
            })
            .collect::<Option<Vec<IpNet>>>()
            .ok_or_else(|| incomplete(action, "assignedPrivateIpAddressesSet"))?;
        Ok(CloudAnswer::Assigned { blocks })
    }

    async fn describe(&self, action: &'static str, eni: &EniId) -> Result<CloudAnswer, CloudFault> {
        let request = self.client.describe_network_interfaces();
        let request = request.network_interface_ids(eni.as_str());
        let answer = self.ask(action, request.send()).await?;
        match answer.network_interfaces() {
            [found] => {
                let found = seen(action, found)?;
                let found = found.ok_or_else(|| incomplete(action, "privateIpAddress"))?;
                Ok(CloudAnswer::Described(found))
            }
            [] => Err(CloudFault {
                code: "InvalidNetworkInterfaceID.NotFound".to_owned(),
                message: format!("EC2 does not show {eni}"),
                remedy: Remedy::Gone,
            }),
            [..] => Err(incomplete(action, "networkInterfaceSet")),
        }
    }

    /// All ENIs attached to the instance, page by page.
    pub(super) async fn attached_enis(
        &self,
        instance: &InstanceId,
    ) -> Result<Vec<SeenEni>, CloudFault> {
        let action = "DescribeNetworkInterfaces";
        let ours = Filter::builder().name("attachment.instance-id").values(instance.as_str());
        let request = self.client.describe_network_interfaces().filters(ours.build());
        let (mut enis, mut token) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let page = request.clone().max_results(PAGE).set_next_token(token.take());
            let answer = self.ask(action, page.send()).await?;
            for found in answer.network_interfaces() {
                enis.extend(seen(action, found)?);
            }
            token = answer.next_token().filter(|token| !token.is_empty()).map(str::to_owned);
            if token.is_none() {
                return Ok(enis);
            }
        }
        Err(incomplete(action, "an end of its pages"))
    }
}

struct NewEni {
    token: String,
    subnet: SubnetId,
    groups: Vec<SecurityGroupId>,
    secondary_count: u16,
    tags: BTreeMap<String, String>,
    description: String,
}

fn tag_specification(tags: BTreeMap<String, String>) -> TagSpecification {
    let tags = tags.into_iter().map(|(key, value)| Tag::builder().key(key).value(value).build());
    TagSpecification::builder()
        .resource_type(ResourceType::NetworkInterface)
        .set_tags(Some(tags.collect()))
        .build()
}
