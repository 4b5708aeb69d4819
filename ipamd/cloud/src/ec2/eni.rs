//! An ENI as EC2 shows it.

use super::failure::incomplete;
use aws_sdk_ec2::types::{NetworkInterface, NetworkInterfaceAttachment};
use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, SecurityGroupId, SubnetId,
};
use ipamd_core::{AttachmentState, CloudFault, SeenAttachment, SeenEni};
use ipnet::IpNet;
use std::net::IpAddr;

/// Reads an ENI; `None` if it has no IPv4 address.
pub(super) fn seen(
    action: &'static str,
    eni: &NetworkInterface,
) -> Result<Option<SeenEni>, CloudFault> {
    let Some(primary) = eni.private_ip_address() else { return Ok(None) };
    let missing = |what| move || incomplete(action, what);
    let id = eni.network_interface_id().ok_or_else(missing("networkInterfaceId"))?;
    let mac = eni.mac_address().and_then(|mac| mac.parse().ok());
    let primary_address = primary.parse().map_err(|_| incomplete(action, "privateIpAddress"))?;
    let secondary = eni.private_ip_addresses().iter().filter(|held| held.primary() != Some(true));
    let blocks = secondary
        .map(|held| Some(IpNet::from(held.private_ip_address()?.parse::<IpAddr>().ok()?)))
        .collect::<Option<Vec<IpNet>>>()
        .ok_or_else(missing("privateIpAddressesSet"))?;
    let groups = eni.groups().iter().filter_map(|group| group.group_id());
    let tags = eni.tag_set().iter().map(|tag| {
        (tag.key().unwrap_or_default().to_owned(), tag.value().unwrap_or_default().to_owned())
    });
    Ok(Some(SeenEni {
        id: EniId::new(id),
        mac: mac.ok_or_else(missing("macAddress"))?,
        subnet: SubnetId::new(eni.subnet_id().ok_or_else(missing("subnetId"))?),
        subnet_cidr: None,
        subnet_cidr_v6: None,
        primary_address: Some(primary_address),
        ipv6_addresses: Vec::new(),
        blocks,
        attachment: match eni.attachment() {
            Some(found) => attachment(found).ok_or_else(missing("attachment"))?,
            None => None,
        },
        kind: None,
        groups: Some(groups.map(SecurityGroupId::new).collect()),
        tags: Some(tags.collect()),
    }))
}

/// The outer `None` is an attachment that lacks something, the inner one that is over.
fn attachment(found: &NetworkInterfaceAttachment) -> Option<Option<SeenAttachment>> {
    let state = match found.status()?.as_str() {
        "attaching" => AttachmentState::Attaching,
        "attached" => AttachmentState::Attached,
        "detaching" => AttachmentState::Detaching,
        "detached" => return Some(None),
        _ => return None,
    };
    Some(Some(SeenAttachment {
        id: Some(AttachmentId::new(found.attachment_id()?)),
        instance: InstanceId::new(found.instance_id()?),
        card: CardIndex(u16::try_from(found.network_card_index().unwrap_or(0)).ok()?),
        device: DeviceIndex(u16::try_from(found.device_index()?).ok()?),
        state,
        delete_on_termination: found.delete_on_termination(),
    }))
}
