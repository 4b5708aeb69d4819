//! The desired host networking, derived from the address book and the settings.

use config_model::{CardIndex, DeviceIndex, EniId, HostEndMode, Mac, VethName, registry};
use config_settings::{PodEniMode, Settings};
use ipamd_core::{BranchEni, EniKind, EniView, PodView, Snapshot};
use ipnet::{IpNet, Ipv4Net};
use routing_plan::{
    Branch, BranchDesired, Enforcing, EniDesired, Family, NodeDesired, PodDesired, PrimaryDesired,
    SysctlName,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

/// The primary ENI; `None` until a witness has shown it.
pub fn primary(book: &Snapshot) -> Option<&EniView> {
    book.enis.iter().find(|eni| (eni.card, eni.device) == (CardIndex(0), DeviceIndex(0)))
}

/// The desired state of the node; `None` until the primary ENI is known.
pub fn node(book: &Snapshot, settings: &Settings) -> Option<NodeDesired> {
    let primary = primary(book)?;
    let family = family(settings);
    let ours = || book.enis.iter().filter(|eni| eni.managed || eni.id == primary.id);
    let secondary = ours().filter(|eni| eni.id != primary.id && !eni.leaving);
    let host_end = host_end(settings);
    let pods = book.pods.iter().flat_map(|pod| {
        let addresses = pod.addresses.iter().map(|held| (held.address, held.table));
        let prefix = &settings.veth_prefix;
        PodDesired::interfaces(&pod.key, &pod.pod, prefix, &host_end, pod.confirmed, addresses)
            .map(|interface| of_adopted(interface, pod))
    });
    Some(NodeDesired {
        family,
        layout: settings.rules,
        primary: PrimaryDesired { mac: primary.mac, mtu: settings.eni_mtu },
        // Marked traffic exists if node ports work on the primary ENI, or if pods' traffic is translated there.
        connmark: (settings.node_port_support || !settings.external_snat)
            .then_some(settings.connmark),
        external: settings.external_service_cidrs.iter().copied().collect(),
        enis: secondary.filter_map(|eni| desired_eni(eni, family, settings.eni_mtu)).collect(),
        pods: pods.collect(),
        branches: book.pods.iter().filter_map(|pod| branch_pod(pod, family, settings)).collect(),
        trunk: trunk(book),
        strict: settings.pod_enis == Some(PodEniMode::Strict),
        spared: BTreeSet::new(),
        managed: ours()
            .flat_map(blocks)
            .chain(book.node_cidrs.iter().map(|of_node| of_node.cidr))
            .chain(pod_blocks(book))
            .collect(),
        veth_prefix: settings.veth_prefix.clone(),
        egress: settings.egress && (family == Family::V6 || primary.primary_v6.is_some()),
        sysctls: sysctls(settings),
    })
}

/// An adopted pod is found by the name that its first host end had at the takeover. The pod's own name may be unknown.
fn of_adopted(interface: PodDesired, pod: &PodView) -> PodDesired {
    let first = interface.key.number() == 0 && pod.adopted;
    let veth = match pod.host_interface.as_deref().filter(|_| first) {
        Some(name) => VethName::observed(name),
        None => interface.veth.clone(),
    };
    PodDesired { adopted: pod.adopted, veth, ..interface }
}

/// The mode of pods' host ends. Every pod is routed, because no backend of ferrule-agent needs a bridge.
pub fn host_end(_: &Settings) -> HostEndMode {
    HostEndMode::Routed
}

/// The sysctls that the settings require.
pub fn sysctls(settings: &Settings) -> BTreeMap<SysctlName, String> {
    let early = if settings.tcp_early_demux { "1" } else { "0" };
    let mut wanted = family(settings).sysctls();
    if settings.egress {
        wanted.extend(family(settings).other().sysctls());
    }
    wanted.extend(SysctlName::new(TCP_EARLY_DEMUX).map(|name| (name, early.to_owned())));
    wanted
}

const TCP_EARLY_DEMUX: &str = "net/ipv4/tcp_early_demux";

pub fn family(settings: &Settings) -> Family {
    match settings.family {
        config_settings::Family::V4 => Family::V4,
        config_settings::Family::V6 => Family::V6,
    }
}

/// `None` until its subnet, and with IPv4 its primary address, is known.
fn desired_eni(eni: &EniView, family: Family, mtu: u32) -> Option<EniDesired> {
    let (address, subnet) = match family {
        Family::V4 => (Some(IpAddr::V4(eni.primary_address?)), IpNet::V4(eni.subnet_cidr?)),
        Family::V6 => (eni.primary_v6.map(IpAddr::V6), IpNet::V6(eni.subnet_cidr_v6?)),
    };
    let trunk = eni.kind == Some(EniKind::Trunk);
    let (id, mac, table) = (eni.id.clone(), eni.mac, eni.table);
    let blocks = eni.blocks.iter().copied().collect();
    Some(EniDesired { eni: id, mac, address, subnet, table, mtu, blocks, trunk })
}

/// The MAC address of the trunk that carries the node's branch ENIs.
pub fn trunk(book: &Snapshot) -> Option<Mac> {
    let trunk = |eni: &&EniView| eni.kind == Some(EniKind::Trunk) && !eni.leaving;
    book.enis.iter().find(trunk).map(|eni| eni.mac)
}

/// A branch's address of this family, and the router of its subnet. The router is the first address of an IPv4 subnet;
/// for IPv6 it is the same fixed address in every subnet of a VPC.
pub fn way_of(branch: &BranchEni, family: Family) -> Option<(IpAddr, IpAddr)> {
    let first = |subnet: Ipv4Net| u32::from(subnet.network()).checked_add(1).map(Ipv4Addr::from);
    match family {
        Family::V4 => Some((branch.address?.into(), branch.subnet_cidr.and_then(first)?.into())),
        Family::V6 => Some((branch.address_v6?.into(), registry::VPC_GATEWAY_V6.into())),
    }
}

fn branch_pod(pod: &PodView, family: Family, settings: &Settings) -> Option<BranchDesired> {
    let branch = pod.branch.as_ref()?;
    let (address, gateway) = way_of(branch, family)?;
    let enforcing = match settings.pod_enis {
        Some(PodEniMode::Standard) => Enforcing::Standard,
        Some(PodEniMode::Strict) | None => Enforcing::Strict,
    };
    let branch = Branch { vlan: branch.vlan, mac: branch.mac, gateway, enforcing };
    let (key, prefix) = (pod.key.clone(), &settings.veth_prefix);
    Some(BranchDesired::new(key, &pod.pod, prefix, address, branch, pod.confirmed))
}

fn blocks(eni: &EniView) -> impl Iterator<Item = IpNet> + use<> {
    let own = [eni.primary_address.map(IpAddr::V4), eni.primary_v6.map(IpAddr::V6)];
    eni.blocks.clone().into_iter().chain(own.into_iter().flatten().map(IpNet::from))
}

fn pod_blocks(book: &Snapshot) -> impl Iterator<Item = IpNet> {
    let held = book.pods.iter().flat_map(|pod| &pod.addresses);
    held.map(|held| IpNet::from(held.address))
}

/// The ENIs for pods, and whether each is ready.
pub fn managed_enis(book: &Snapshot) -> impl Iterator<Item = (&EniId, bool)> {
    book.enis.iter().filter(|eni| eni.managed && !eni.leaving).map(|eni| (&eni.id, eni.ready))
}
