//! The core's calls, each as one request.

use super::{Ec2, eni::seen, failure::incomplete};
use aws_sdk_ec2::types::{NetworkInterfaceAttachmentChanges, Tag};
use config_model::{AttachmentId, EniId, SecurityGroupId};
use ipamd_core::{CloudAnswer, CloudCall, CloudFault, Remedy};
use std::collections::BTreeMap;

impl Ec2 {
    pub(super) async fn carry_out(&self, call: CloudCall) -> Result<CloudAnswer, CloudFault> {
        let action = call.action().name();
        match call {
            CloudCall::CreateEni { token, subnet, groups, want, tags, description } => {
                let new = super::create::NewEni { token, subnet, groups, want, tags, description };
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
            CloudCall::SetGroups { eni, groups } => {
                let request = self.client.modify_network_interface_attribute();
                let request =
                    request.network_interface_id(eni.as_str()).set_groups(Some(names(groups)));
                self.ask(action, request.send()).await.map(|_| CloudAnswer::Done)
            }
            CloudCall::TagEni { eni, tags: new } => {
                let request = self.client.create_tags();
                let request = request.resources(eni.as_str()).set_tags(Some(tags(new)));
                self.ask(action, request.send()).await.map(|_| CloudAnswer::Done)
            }
            CloudCall::Assign { eni, want } => self.assign(action, &eni, want).await,
            CloudCall::Unassign { eni, blocks } => self.unassign(action, &eni, blocks).await,
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
            CloudCall::DescribeBranches { trunk } => {
                self.branches(action, &trunk).await.map(CloudAnswer::Branches)
            }
            CloudCall::DescribeSubnets { vpc, zone } => {
                self.subnets(action, &vpc, &zone).await.map(CloudAnswer::Subnets)
            }
            CloudCall::FindLeftovers { vpc, tags, description_prefix } => {
                let found = self.leftovers(action, &vpc, tags, &description_prefix).await?;
                Ok(CloudAnswer::Leftovers(found))
            }
        }
    }

    async fn describe(&self, action: &'static str, eni: &EniId) -> Result<CloudAnswer, CloudFault> {
        let request = self.client.describe_network_interfaces();
        let request = request.network_interface_ids(eni.as_str());
        let answer = self.ask(action, request.send()).await?;
        match answer.network_interfaces() {
            [found] => Ok(CloudAnswer::Described(seen(action, found)?)),
            [] => Err(CloudFault {
                code: "InvalidNetworkInterfaceID.NotFound".to_owned(),
                message: format!("EC2 does not list {eni}"),
                remedy: Remedy::Gone,
            }),
            [..] => Err(incomplete(action, "networkInterfaceSet")),
        }
    }
}

pub(super) fn names(groups: Vec<SecurityGroupId>) -> Vec<String> {
    groups.iter().map(|group| group.as_str().to_owned()).collect()
}

pub(super) fn tags(tags: BTreeMap<String, String>) -> Vec<Tag> {
    tags.into_iter().map(|(key, value)| Tag::builder().key(key).value(value).build()).collect()
}
