//! An ENI in EC2's answers.

use super::{
    blocks::{prefixes, single_addresses},
    failure::incomplete,
};
use aws_sdk_ec2::types::{NetworkInterface, NetworkInterfaceAttachment, Tag};
use config_model::{
    AttachmentId, CardIndex, DeviceIndex, EniId, InstanceId, SecurityGroupId, SubnetId,
};
use ipamd_core::{AttachmentState, CloudFault, EniKind, SeenAttachment, SeenEni};
use std::collections::BTreeMap;

/// Reads an ENI. An ENI of an IPv6-only subnet, or for EFA only, has no primary address.
pub(super) fn seen(action: &'static str, eni: &NetworkInterface) -> Result<SeenEni, CloudFault> {
    let missing = |what| move || incomplete(action, what);
    let id = eni.network_interface_id().ok_or_else(missing("networkInterfaceId"))?;
    let mac = eni.mac_address().and_then(|mac| mac.parse().ok());
    let primary_address = match eni.private_ip_address().filter(|text| !text.is_empty()) {
        Some(text) => Some(text.parse().map_err(|_| incomplete(action, "privateIpAddress"))?),
        None => None,
    };
    let secondary = eni.private_ip_addresses().iter().filter(|held| held.primary() != Some(true));
    let mut blocks = single_addresses(secondary.map(|held| held.private_ip_address()))
        .ok_or_else(missing("privateIpAddressesSet"))?;
    let v4 = eni.ipv4_prefixes().iter().map(|held| held.ipv4_prefix());
    blocks.extend(prefixes(v4).ok_or_else(missing("ipv4PrefixSet"))?);
    let v6 = eni.ipv6_prefixes().iter().map(|held| held.ipv6_prefix());
    blocks.extend(prefixes(v6).ok_or_else(missing("ipv6PrefixSet"))?);
    let ipv6 = eni.ipv6_addresses().iter().map(|held| held.ipv6_address()?.parse().ok());
    let groups = eni.groups().iter().filter_map(|group| group.group_id());
    Ok(SeenEni {
        id: EniId::new(id),
        mac: mac.ok_or_else(missing("macAddress"))?,
        subnet: SubnetId::new(eni.subnet_id().ok_or_else(missing("subnetId"))?),
        subnet_cidr: None,
        subnet_cidr_v6: None,
        primary_address,
        ipv6_addresses: ipv6.collect::<Option<_>>().ok_or_else(missing("ipv6AddressesSet"))?,
        blocks,
        attachment: match eni.attachment() {
            Some(found) => attachment(found).ok_or_else(missing("attachment"))?,
            None => None,
        },
        kind: Some(kind(eni)),
        groups: Some(groups.map(SecurityGroupId::new).collect()),
        tags: Some(tags_of(eni.tag_set())),
    })
}

pub(super) fn tags_of(tags: &[Tag]) -> BTreeMap<String, String> {
    let text = |text: Option<&str>| text.unwrap_or_default().to_owned();
    tags.iter().map(|tag| (text(tag.key()), text(tag.value()))).collect()
}

/// Some answers omit the type of an ordinary ENI.
fn kind(eni: &NetworkInterface) -> EniKind {
    match eni.interface_type().map_or("interface", |kind| kind.as_str()) {
        "interface" => EniKind::Standard,
        "efa" => EniKind::Efa,
        "efa-only" => EniKind::EfaOnly,
        "trunk" => EniKind::Trunk,
        "branch" => EniKind::Branch,
        _ => EniKind::Other,
    }
}

/// The outer `None` is an incomplete attachment, the inner one a detached attachment.
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
