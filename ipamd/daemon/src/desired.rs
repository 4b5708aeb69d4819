//! From the address book to the host networking that it calls for.

use config_model::{CardIndex, DeviceIndex, EniId};
use config_settings::Settings;
use ipamd_core::{EniKind, EniView, Snapshot};
use ipnet::IpNet;
use routing_plan::{EniDesired, Family, NodeDesired, PodDesired, PrimaryDesired};
use std::{collections::BTreeSet, net::IpAddr};

/// The primary ENI of the book, once a witness has shown it.
pub(crate) fn primary(book: &Snapshot) -> Option<&EniView> {
    book.enis.iter().find(|eni| (eni.card, eni.device) == (CardIndex(0), DeviceIndex(0)))
}

/// What the node should look like; `None` until the primary ENI is known.
pub fn node(book: &Snapshot, settings: &Settings) -> Option<NodeDesired> {
    let primary = primary(book)?;
    let family = family(settings);
    let ours = || book.enis.iter().filter(|eni| eni.managed || eni.id == primary.id);
    let secondary = ours().filter(|eni| eni.id != primary.id && !eni.leaving);
    let pods = book.pods.iter().flat_map(|pod| {
        let addresses = pod.addresses.iter().map(|held| (held.address, held.table));
        let prefix = &settings.veth_prefix;
        PodDesired::interfaces(&pod.key, &pod.pod, prefix, pod.confirmed, addresses)
    });
    Some(NodeDesired {
        family,
        primary: PrimaryDesired { mac: primary.mac, mtu: settings.eni_mtu },
        // Marked traffic exists if node ports are kept on the primary ENI, or if pods' traffic is
        // translated there.
        connmark: (settings.node_port_support || !settings.external_snat)
            .then_some(settings.connmark),
        enis: secondary.filter_map(|eni| desired_eni(eni, family, settings.eni_mtu)).collect(),
        pods: pods.collect(),
        spared: BTreeSet::new(),
        managed: ours().flat_map(blocks).chain(pod_blocks(book)).collect(),
        veth_prefix: settings.veth_prefix.clone(),
        sysctls: family.sysctls(),
    })
}

/// The family of the pods' addresses.
pub fn family(settings: &Settings) -> Family {
    match settings.family {
        config_settings::Family::V4 => Family::V4,
        config_settings::Family::V6 => Family::V6,
    }
}

/// `None` while its subnet is not known, or an IPv4 address of its own.
fn desired_eni(eni: &EniView, family: Family, mtu: u32) -> Option<EniDesired> {
    let (address, subnet) = match family {
        Family::V4 => (Some(IpAddr::V4(eni.primary_address?)), IpNet::V4(eni.subnet_cidr?)),
        Family::V6 => (eni.primary_v6.map(IpAddr::V6), IpNet::V6(eni.subnet_cidr_v6?)),
    };
    let trunk = eni.kind == Some(EniKind::Trunk);
    let (id, mac, table) = (eni.id.clone(), eni.mac, eni.table);
    Some(EniDesired { eni: id, mac, address, subnet, table, mtu, trunk })
}

fn blocks(eni: &EniView) -> impl Iterator<Item = IpNet> + use<> {
    let own = [eni.primary_address.map(IpAddr::V4), eni.primary_v6.map(IpAddr::V6)];
    eni.blocks.clone().into_iter().chain(own.into_iter().flatten().map(IpNet::from))
}

fn pod_blocks(book: &Snapshot) -> impl Iterator<Item = IpNet> {
    let held = book.pods.iter().flat_map(|pod| &pod.addresses);
    held.map(|held| IpNet::from(held.address))
}

/// The ENIs whose addresses pods may get, as far as the host is concerned.
pub(crate) fn managed_enis(book: &Snapshot) -> impl Iterator<Item = (&EniId, bool)> {
    book.enis.iter().filter(|eni| eni.managed && !eni.leaving).map(|eni| (&eni.id, eni.ready))
}
