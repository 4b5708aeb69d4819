//! From the address book to the host networking that it calls for.

use config_model::{CardIndex, DeviceIndex, EniId, VethName};
use config_settings::Settings;
use ipamd_core::{EniView, PodAddress, Snapshot};
use ipnet::IpNet;
use routing_plan::{EniDesired, NodeDesired, PodDesired, PrimaryDesired, SysctlName};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

/// The primary ENI of the book, once a witness has shown it.
pub(crate) fn primary(book: &Snapshot) -> Option<&EniView> {
    book.enis.iter().find(|eni| (eni.card, eni.device) == (CardIndex(0), DeviceIndex(0)))
}

/// What the node should look like; `None` until the primary ENI is known.
pub fn node(book: &Snapshot, settings: &Settings) -> Option<NodeDesired> {
    let primary = primary(book)?;
    let ours = || book.enis.iter().filter(|eni| eni.managed || eni.id == primary.id);
    let secondary = ours().filter(|eni| eni.id != primary.id && !eni.leaving);
    let managed: BTreeSet<_> = ours()
        .flat_map(|eni| eni.blocks.iter().flat_map(addresses).chain(eni.primary_address))
        .chain(book.pods.iter().flat_map(|pod| pod.addresses.iter().filter_map(v4)))
        .collect();
    let pods = book.pods.iter().filter_map(|pod| {
        let held = pod.addresses.first()?;
        Some(PodDesired {
            key: pod.key.clone(),
            veth: VethName::of(&settings.veth_prefix, &pod.pod, 0),
            address: v4(held)?,
            table: held.table,
            confirmed: pod.confirmed,
        })
    });
    Some(NodeDesired {
        primary: PrimaryDesired { mac: primary.mac, mtu: settings.eni_mtu },
        // Marked traffic exists if node ports are kept on the primary ENI, or if pods' traffic is
        // translated there.
        connmark: (settings.node_port_support || !settings.external_snat)
            .then_some(settings.connmark),
        enis: secondary.filter_map(|eni| desired_eni(eni, settings)).collect(),
        pods: pods.collect(),
        spared: BTreeSet::new(),
        managed,
        veth_prefix: settings.veth_prefix.clone(),
        sysctls: sysctls(),
    })
}

/// `None` without an IPv4 address and a subnet.
fn desired_eni(eni: &EniView, settings: &Settings) -> Option<EniDesired> {
    Some(EniDesired {
        eni: eni.id.clone(),
        mac: eni.mac,
        address: eni.primary_address?,
        subnet: eni.subnet_cidr?,
        table: eni.table,
        mtu: settings.eni_mtu,
    })
}

/// All IPv4 addresses of a block, the first and the last among them.
fn addresses(block: &IpNet) -> impl Iterator<Item = Ipv4Addr> + use<> {
    let ends = match block {
        IpNet::V4(net) => Some((u32::from(net.network()), u32::from(net.broadcast()))),
        IpNet::V6(_) => None,
    };
    ends.into_iter().flat_map(|(first, last)| first..=last).map(Ipv4Addr::from)
}

fn v4(held: &PodAddress) -> Option<Ipv4Addr> {
    match held.address {
        IpAddr::V4(address) => Some(address),
        IpAddr::V6(_) => None,
    }
}

/// Settings that are files: without forwarding no packet of a pod leaves the node.
pub fn sysctls() -> BTreeMap<SysctlName, String> {
    let forward = SysctlName::new("net/ipv4/ip_forward").expect("the name lies below net/");
    BTreeMap::from([(forward, "1".to_owned())])
}

/// The ENIs whose addresses pods may get, as far as the host is concerned.
pub(crate) fn managed_enis(book: &Snapshot) -> impl Iterator<Item = (&EniId, bool)> {
    book.enis.iter().filter(|eni| eni.managed && !eni.leaving).map(|eni| (&eni.id, eni.ready))
}
