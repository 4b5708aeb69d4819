//! Netlink messages to observed objects.

use config_model::{Mac, Mark, TableId};
use ipnet::IpNet;
use netlink_packet_route::{
    AddressFamily,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    link::{
        AfSpecInet, AfSpecInet6, AfSpecUnspec, InfoData, InfoKind, InfoVlan, LinkAttribute,
        LinkFlags, LinkInfo, LinkMessage,
    },
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::{RouteAddress, RouteAttribute, RouteMessage, RouteType},
    rule::{RuleAction, RuleAttribute, RuleFlags, RuleMessage},
};
use routing_plan::{
    Family, IfIndex, Ipv4Conf, Ipv6Conf, Link, LinkAddr, LinkKind, Neighbor, Peer, Route, Rule,
    Scope, Selector,
};
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The kernel's own table: local addresses and broadcasts, of no interest to any plan.
const LOCAL: TableId = TableId(255);

pub(crate) fn link(message: &LinkMessage) -> Link {
    let mut link = Link {
        index: IfIndex(message.header.index),
        name: String::new(),
        mac: None,
        mtu: 0,
        up: message.header.flags.contains(LinkFlags::Up),
        alias: None,
        group: 0,
        kind: LinkKind::Device,
        peer: None,
        master: None,
        ipv4: BTreeMap::new(),
        ipv6: BTreeMap::new(),
    };
    let (mut peer, mut peer_netns) = (None, None);
    for attribute in &message.attributes {
        #[expect(clippy::wildcard_enum_match_arm, reason = "links have scores of attributes")]
        match attribute {
            LinkAttribute::IfName(name) => link.name.clone_from(name),
            LinkAttribute::Address(bytes) => link.mac = mac(bytes),
            LinkAttribute::Mtu(mtu) => link.mtu = *mtu,
            LinkAttribute::IfAlias(alias) => link.alias = Some(alias.clone()),
            LinkAttribute::Group(group) => link.group = *group,
            LinkAttribute::Controller(master) => link.master = Some(IfIndex(*master)),
            LinkAttribute::Link(index) => peer = Some(IfIndex(*index)),
            LinkAttribute::LinkNetNsId(id) => peer_netns = Some(*id),
            LinkAttribute::LinkInfo(infos) => link.kind = kind(infos),
            LinkAttribute::AfSpecUnspec(specs) => {
                (link.ipv4, link.ipv6) = (ipv4(specs), ipv6(specs));
            }
            _ => {}
        }
    }
    link.peer = peer.map(|index| Peer { index, netns: peer_netns });
    link
}

fn kind(infos: &[LinkInfo]) -> LinkKind {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only the kind is of interest")]
    let kind = infos.iter().find_map(|info| match info {
        LinkInfo::Kind(kind) => Some(kind),
        _ => None,
    });
    match kind {
        None => LinkKind::Device,
        Some(InfoKind::Veth) => LinkKind::Veth,
        Some(kind @ InfoKind::Vlan) => {
            vlan(infos).map_or_else(|| LinkKind::Other(kind.to_string()), LinkKind::Vlan)
        }
        Some(other) => LinkKind::Other(other.to_string()),
    }
}

fn vlan(infos: &[LinkInfo]) -> Option<u16> {
    #[expect(clippy::wildcard_enum_match_arm, reason = "only the VLAN's number is of interest")]
    let data = infos.iter().find_map(|info| match info {
        LinkInfo::Data(InfoData::Vlan(data)) => Some(data),
        _ => None,
    })?;
    #[expect(clippy::wildcard_enum_match_arm, reason = "only the number is of interest")]
    data.iter().find_map(|part| match part {
        InfoVlan::Id(id) => Some(*id),
        _ => None,
    })
}

fn ipv4(specs: &[AfSpecUnspec]) -> BTreeMap<Ipv4Conf, u32> {
    let mut found = BTreeMap::new();
    for spec in specs {
        let AfSpecUnspec::Inet(inets) = spec else { continue };
        for inet in inets {
            let AfSpecInet::DevConf(conf) = inet else { continue };
            for (name, value) in [
                (Ipv4Conf::RpFilter, conf.rp_filter),
                (Ipv4Conf::PromoteSecondaries, conf.promote_secondaries),
            ] {
                found.extend(u32::try_from(value).ok().map(|value| (name, value)));
            }
        }
    }
    found
}

fn ipv6(specs: &[AfSpecUnspec]) -> BTreeMap<Ipv6Conf, u32> {
    let mut found = BTreeMap::new();
    for spec in specs {
        let AfSpecUnspec::Inet6(inets) = spec else { continue };
        for inet in inets {
            let AfSpecInet6::DevConf(conf) = inet else { continue };
            for (name, value) in
                [(Ipv6Conf::AcceptRa, conf.accept_ra), (Ipv6Conf::DisableIpv6, conf.disable_ipv6)]
            {
                found.extend(u32::try_from(value).ok().map(|value| (name, value)));
            }
        }
    }
    found
}

pub(crate) fn address(message: &AddressMessage) -> Option<LinkAddr> {
    let (mut local, mut remote) = (None, None);
    let mut flags = AddressFlags::from_bits_retain(u32::from(message.header.flags.bits()));
    for attribute in &message.attributes {
        #[expect(clippy::wildcard_enum_match_arm, reason = "labels and lifetimes do not count")]
        match attribute {
            AddressAttribute::Local(ip) => local = Some(*ip),
            AddressAttribute::Address(ip) => remote = Some(*ip),
            AddressAttribute::Flags(all) => flags = *all,
            _ => {}
        }
    }
    Some(LinkAddr {
        dev: IfIndex(message.header.index),
        peer: remote.filter(|remote| local.is_some_and(|local| local != *remote)),
        address: IpNet::new(local.or(remote)?, message.header.prefix_len).ok()?,
        global: message.header.scope == AddressScope::Universe,
        // For IPv6 the same bit means a temporary address.
        secondary: flags.contains(AddressFlags::Secondary)
            && message.header.family == AddressFamily::Inet,
        noprefixroute: flags.contains(AddressFlags::Noprefixroute),
    })
}

pub(crate) fn rule(message: &RuleMessage) -> Option<Rule> {
    let family = family(message.header.family)?;
    let mut rule = Rule {
        family,
        pref: 0,
        selector: Selector {
            other: message.header.tos != 0
                || message.header.flags.contains(RuleFlags::Invert)
                || message.header.action != RuleAction::ToTable,
            ..Selector::default()
        },
        table: TableId(u32::from(message.header.table)),
        protocol: 0,
    };
    let (mut value, mut mask) = (None, None);
    for attribute in &message.attributes {
        #[expect(clippy::wildcard_enum_match_arm, reason = "anything more makes it a stranger's")]
        match attribute {
            RuleAttribute::Source(ip) => {
                rule.selector.src = prefix(family, *ip, message.header.src_len);
            }
            RuleAttribute::Destination(ip) => {
                rule.selector.dst = prefix(family, *ip, message.header.dst_len);
            }
            RuleAttribute::Priority(pref) => rule.pref = *pref,
            RuleAttribute::Table(table) => rule.table = TableId(*table),
            RuleAttribute::Protocol(protocol) => rule.protocol = (*protocol).into(),
            RuleAttribute::Iifname(name) => rule.selector.iif = Some(name.clone()),
            RuleAttribute::IpProtocol(protocol) => {
                // A value that cannot be parsed belongs to another program.
                rule.selector.protocol = u8::try_from(i32::from(*protocol)).ok();
                rule.selector.other |= rule.selector.protocol.is_none();
            }
            RuleAttribute::FwMark(mark) => value = Some(*mark),
            RuleAttribute::FwMask(bits) => mask = Some(*bits),
            // Sent with every rule; -1 means none.
            RuleAttribute::SuppressPrefixLen(u32::MAX)
            | RuleAttribute::SuppressIfGroup(u32::MAX) => {}
            _ => rule.selector.other = true,
        }
    }
    // A range that cannot be parsed must not look like a rule for all packets.
    let Selector { src, dst, .. } = &rule.selector;
    rule.selector.other |= (message.header.src_len != 0 && src.is_none())
        || (message.header.dst_len != 0 && dst.is_none());
    if value.is_some() || mask.is_some_and(|mask| mask != 0) {
        rule.selector.mark =
            Some(Mark { value: value.unwrap_or(0), mask: mask.unwrap_or(u32::MAX) });
    }
    Some(rule)
}

pub(crate) fn route(message: &RouteMessage) -> Option<Route> {
    let header = &message.header;
    let any = match family(header.address_family)? {
        Family::V4 => IpAddr::V4(Ipv4Addr::UNSPECIFIED),
        Family::V6 => IpAddr::V6(Ipv6Addr::UNSPECIFIED),
    };
    let mut route = Route {
        table: TableId(u32::from(header.table)),
        dst: IpNet::new(any, header.destination_prefix_length).ok()?,
        gateway: None,
        dev: None,
        scope: Scope(header.scope.into()),
        src: None,
        metric: 0,
        protocol: header.protocol.into(),
        plain: header.kind == RouteType::Unicast && header.tos == 0,
    };
    for attribute in &message.attributes {
        #[expect(clippy::wildcard_enum_match_arm, reason = "metrics and the like do not count")]
        match attribute {
            RouteAttribute::Table(table) => route.table = TableId(*table),
            RouteAttribute::Destination(address) => {
                let dst = IpNet::new(ip(address)?, header.destination_prefix_length).ok()?;
                route.dst = dst.trunc();
            }
            RouteAttribute::Gateway(address) => route.gateway = ip(address),
            RouteAttribute::Oif(dev) => route.dev = Some(IfIndex(*dev)),
            RouteAttribute::PrefSource(address) => route.src = ip(address),
            RouteAttribute::Priority(metric) => route.metric = *metric,
            RouteAttribute::MultiPath(_)
            | RouteAttribute::Via(_)
            | RouteAttribute::Encap(_)
            | RouteAttribute::NhId(_) => route.plain = false,
            _ => {}
        }
    }
    (route.table != LOCAL).then_some(route)
}

pub(crate) fn neighbor(message: &NeighbourMessage) -> Option<Neighbor> {
    let (mut address, mut hardware) = (None, None);
    for attribute in &message.attributes {
        #[expect(clippy::wildcard_enum_match_arm, reason = "probes and ages do not count")]
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(ip)) => {
                address = Some(IpAddr::V4(*ip));
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(ip)) => {
                address = Some(IpAddr::V6(*ip));
            }
            NeighbourAttribute::LinkLayerAddress(bytes) => hardware = mac(bytes),
            _ => {}
        }
    }
    Some(Neighbor {
        dev: IfIndex(message.header.ifindex),
        address: address?,
        mac: hardware,
        permanent: message.header.state == NeighbourState::Permanent,
    })
}

/// A range of the family.
fn prefix(family: Family, ip: IpAddr, length: u8) -> Option<IpNet> {
    IpNet::new(ip, length).ok().filter(|_| Family::of(ip) == family)
}

#[expect(clippy::wildcard_enum_match_arm, reason = "there are no others here")]
fn family(family: AddressFamily) -> Option<Family> {
    match family {
        AddressFamily::Inet => Some(Family::V4),
        AddressFamily::Inet6 => Some(Family::V6),
        _ => None,
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "an address of another family is no address")]
fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(ip) => Some(IpAddr::V4(*ip)),
        RouteAddress::Inet6(ip) => Some(IpAddr::V6(*ip)),
        _ => None,
    }
}

fn mac(bytes: &[u8]) -> Option<Mac> {
    <[u8; 6]>::try_from(bytes).ok().map(Mac)
}
