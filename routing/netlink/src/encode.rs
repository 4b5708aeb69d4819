//! Operations to netlink messages.

use config_model::{Mac, TableId, registry};
use ipnet::IpNet;
use netlink_packet_core::{
    DefaultNla, NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST,
    NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    address::{AddressAttribute, AddressFlags, AddressMessage, AddressScope},
    link::{
        AfSpecInet, AfSpecUnspec, InfoData, InfoKind, InfoVeth, InfoVlan, LinkAttribute,
        LinkExtentMask, LinkFlags, LinkInfo, LinkMessage,
    },
    neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState},
    route::{RouteAttribute, RouteMessage, RouteScope, RouteType},
    rule::{RuleAction, RuleAttribute, RuleMessage},
};
use routing_plan::{
    Action, Family, IfIndex, Ipv4Conf, LinkAddr, LinkRef, Neighbor, Route, Rule, RulePattern,
    Scope, Selector, SysctlName, VlanLink,
    pod::{VethEnd, VethPair},
};
use std::{
    net::IpAddr,
    os::fd::{AsRawFd, BorrowedFd},
};

/// A request and its flags, without a sequence number.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) body: RouteNetlinkMessage,
    flags: u16,
}

impl Request {
    pub(crate) fn new(body: RouteNetlinkMessage, flags: u16) -> Self {
        Self { body, flags }
    }

    /// The message, asking for an acknowledgement of success or not. A failure always answers.
    pub(crate) fn message(
        &self,
        sequence: u32,
        acknowledge: bool,
    ) -> NetlinkMessage<RouteNetlinkMessage> {
        let ack = if acknowledge { NLM_F_ACK } else { 0 };
        let payload = NetlinkPayload::InnerMessage(self.body.clone());
        let mut message = NetlinkMessage::new(Default::default(), payload);
        message.header.flags = NLM_F_REQUEST | self.flags | ack;
        message.header.sequence_number = sequence;
        message.finalize();
        message
    }
}

/// The way to carry out an action.
pub(crate) enum Means {
    /// One message.
    One(Request),
    /// One message, repeated until nothing is left to delete.
    UntilGone(Request),
    /// A file instead of a message.
    #[cfg_attr(
        not(feature = "daemon"),
        expect(dead_code, reason = "the plugin's batches are made of messages alone")
    )]
    File { name: SysctlName, value: String },
}

pub(crate) fn means(action: &Action) -> Means {
    Means::One(match action {
        Action::AddVlan(vlan) => add_vlan(vlan),
        Action::SetUp(link) => set_link(link, Vec::new(), LinkFlags::Up),
        Action::SetMtu(link, mtu) => set(link, LinkAttribute::Mtu(*mtu)),
        Action::SetAlias(link, alias) => set(link, LinkAttribute::IfAlias(alias.clone())),
        Action::Claim(link, alias) => {
            let group = LinkAttribute::Group(0);
            set_link(link, vec![LinkAttribute::IfAlias(alias.clone()), group], LinkFlags::empty())
        }
        Action::SetGroup(link, group) => set(link, LinkAttribute::Group(*group)),
        Action::SetIpv4(link, conf, value) => set(link, ipv4_conf(*conf, *value)),
        Action::DeleteLink(link) => delete_link(link.index.0, Vec::new()),
        Action::DeleteGroup(group) => delete_link(0, vec![LinkAttribute::Group(*group)]),
        Action::AddAddress(address) => {
            let body = RouteNetlinkMessage::NewAddress(address_message(address));
            Request::new(body, NLM_F_CREATE | NLM_F_EXCL)
        }
        Action::DeleteAddress(address) => {
            Request::new(RouteNetlinkMessage::DelAddress(address_message(address)), 0)
        }
        Action::ReplaceRoute(route) => {
            let body = RouteNetlinkMessage::NewRoute(route_message(route, route.scope));
            Request::new(body, NLM_F_CREATE | NLM_F_REPLACE)
        }
        Action::AddRoute(route) => {
            let body = RouteNetlinkMessage::NewRoute(route_message(route, route.scope));
            Request::new(body, NLM_F_CREATE | NLM_F_EXCL)
        }
        Action::DeleteRoute(route) => {
            Request::new(RouteNetlinkMessage::DelRoute(route_message(route, NOWHERE)), 0)
        }
        Action::AddRule(rule) => {
            let body = RouteNetlinkMessage::NewRule(rule_message(rule));
            Request::new(body, NLM_F_CREATE | NLM_F_EXCL)
        }
        Action::DeleteRule(rule) => {
            Request::new(RouteNetlinkMessage::DelRule(rule_message(rule)), 0)
        }
        Action::PurgeRules(pattern) => {
            let body = RouteNetlinkMessage::DelRule(pattern_message(*pattern));
            return Means::UntilGone(Request::new(body, 0));
        }
        Action::SetNeighbor(neighbor) => {
            let body = RouteNetlinkMessage::NewNeighbour(neighbor_message(neighbor));
            Request::new(body, NLM_F_CREATE | NLM_F_REPLACE)
        }
        Action::DeleteNeighbor(neighbor) => {
            Request::new(RouteNetlinkMessage::DelNeighbour(neighbor_message(neighbor)), 0)
        }
        Action::WriteSysctl(name, value) => {
            return Means::File { name: name.clone(), value: value.clone() };
        }
        Action::SetIpv6(link, conf, value) => {
            return Means::File { name: conf.sysctl(&link.name), value: value.to_string() };
        }
    })
}

/// One message that makes both ends, each in its final namespace: moving an end afterwards costs
/// a grace period of the kernel.
pub(crate) fn create_veth(pair: &VethPair, pod: BorrowedFd<'_>) -> Request {
    let mut peer = link_message(0);
    peer.attributes = end_attributes(&pair.pod);
    // The pod's end comes up later: the kernel refuses a peer that is up from the start.
    peer.attributes.push(LinkAttribute::NetNsFd(pod.as_raw_fd()));
    let mut message = link_message(pair.host_index.map_or(0, |index| index.0));
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes = end_attributes(&pair.host);
    message.attributes.push(LinkAttribute::Group(registry::GROUP_NEW));
    message.attributes.push(LinkAttribute::LinkInfo(vec![
        LinkInfo::Kind(InfoKind::Veth),
        LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
    ]));
    Request::new(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
}

/// Made up, which takes a parent that is up.
fn add_vlan(vlan: &VlanLink) -> Request {
    let mut message = link_message(vlan.link.index.0);
    message.header.flags = LinkFlags::Up;
    message.header.change_mask = LinkFlags::Up;
    message.attributes = vec![
        LinkAttribute::IfName(vlan.link.name.clone()),
        LinkAttribute::Link(vlan.parent.index.0),
        LinkAttribute::Address(mac_bytes(vlan.mac)),
        LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Vlan),
            LinkInfo::Data(InfoData::Vlan(vec![InfoVlan::Id(vlan.vlan)])),
        ]),
    ];
    Request::new(RouteNetlinkMessage::NewLink(message), NLM_F_CREATE | NLM_F_EXCL)
}

pub(crate) fn get_link(name: &str) -> Request {
    let mut message = link_message(0);
    message.attributes = vec![
        LinkAttribute::IfName(name.to_owned()),
        LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]),
    ];
    Request::new(RouteNetlinkMessage::GetLink(message), 0)
}

pub(crate) fn dump_links() -> Request {
    let mut message = link_message(0);
    message.attributes = vec![LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats])];
    Request::new(RouteNetlinkMessage::GetLink(message), NLM_F_DUMP)
}

pub(crate) fn dump_addresses(family: Family) -> Request {
    let mut message = AddressMessage::default();
    message.header.family = wire_family(family);
    Request::new(RouteNetlinkMessage::GetAddress(message), NLM_F_DUMP)
}

pub(crate) fn dump_rules(family: Family) -> Request {
    let mut message = RuleMessage::default();
    message.header.family = wire_family(family);
    Request::new(RouteNetlinkMessage::GetRule(message), NLM_F_DUMP)
}

pub(crate) fn dump_routes(family: Family) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = wire_family(family);
    Request::new(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP)
}

/// The routes of a link.
pub(crate) fn dump_routes_to(family: Family, dev: IfIndex) -> Request {
    let mut message = RouteMessage::default();
    message.header.address_family = wire_family(family);
    message.attributes = vec![RouteAttribute::Oif(dev.0)];
    Request::new(RouteNetlinkMessage::GetRoute(message), NLM_F_DUMP)
}

pub(crate) fn dump_neighbors(family: Family) -> Request {
    let mut message = NeighbourMessage::default();
    message.header.family = wire_family(family);
    Request::new(RouteNetlinkMessage::GetNeighbour(message), NLM_F_DUMP)
}

fn link_message(index: u32) -> LinkMessage {
    let mut message = LinkMessage::default();
    message.header.interface_family = AddressFamily::Unspec;
    message.header.index = index;
    message
}

fn end_attributes(end: &VethEnd) -> Vec<LinkAttribute> {
    vec![
        LinkAttribute::IfName(end.name.clone()),
        LinkAttribute::Address(mac_bytes(end.mac)),
        LinkAttribute::Mtu(end.mtu),
    ]
}

fn set(link: &LinkRef, attribute: LinkAttribute) -> Request {
    set_link(link, vec![attribute], LinkFlags::empty())
}

fn set_link(link: &LinkRef, attributes: Vec<LinkAttribute>, flags: LinkFlags) -> Request {
    let mut message = link_message(link.index.0);
    message.header.flags = flags;
    message.header.change_mask = flags;
    message.attributes = attributes;
    Request::new(RouteNetlinkMessage::SetLink(message), 0)
}

fn delete_link(index: u32, attributes: Vec<LinkAttribute>) -> Request {
    let mut message = link_message(index);
    message.attributes = attributes;
    Request::new(RouteNetlinkMessage::DelLink(message), 0)
}

/// `IFLA_AF_SPEC { AF_INET { IFLA_INET_CONF { number: value } } }`, by hand since the library's
/// own form cannot carry a zero. Works with NET_ADMIN where `/proc/sys` is read-only.
fn ipv4_conf(conf: Ipv4Conf, value: u32) -> LinkAttribute {
    const IFLA_INET_CONF: u16 = 1;
    const NLA_F_NESTED: u16 = 1 << 15;
    const HEADER_AND_U32: u16 = 8;
    let mut entry = Vec::with_capacity(usize::from(HEADER_AND_U32));
    entry.extend(HEADER_AND_U32.to_ne_bytes());
    entry.extend(conf_number(conf).to_ne_bytes());
    entry.extend(value.to_ne_bytes());
    let conf = AfSpecInet::Other(DefaultNla::new(IFLA_INET_CONF | NLA_F_NESTED, entry));
    LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet(vec![conf])])
}

/// `IPV4_DEVCONF_*` of linux/ip.h.
fn conf_number(conf: Ipv4Conf) -> u16 {
    match conf {
        Ipv4Conf::RpFilter => 8,
        Ipv4Conf::PromoteSecondaries => 20,
    }
}

fn address_message(address: &LinkAddr) -> AddressMessage {
    let ip = address.address.addr();
    let mut message = AddressMessage::default();
    message.header.family = family_of(ip);
    message.header.prefix_len = address.address.prefix_len();
    message.header.index = address.dev.0;
    message.header.scope = if address.global { AddressScope::Universe } else { AddressScope::Link };
    let remote = address.peer.unwrap_or(ip);
    message.attributes = vec![AddressAttribute::Local(ip), AddressAttribute::Address(remote)];
    let mut flags = AddressFlags::empty();
    flags.set(AddressFlags::Noprefixroute, address.noprefixroute);
    // EC2 assigns each address once, so duplicate address detection is not needed.
    flags.set(AddressFlags::Nodad, ip.is_ipv6());
    if !flags.is_empty() {
        message.attributes.push(AddressAttribute::Flags(flags));
    }
    message
}

/// Matches a route of any scope, in a deletion.
const NOWHERE: Scope = Scope(255);

fn route_message(route: &Route, scope: Scope) -> RouteMessage {
    let mut message = RouteMessage::default();
    message.header.address_family = family_of(route.dst.addr());
    message.header.destination_prefix_length = route.dst.prefix_len();
    message.header.table = short_table(route.table);
    message.header.protocol = route.protocol.into();
    message.header.scope = RouteScope::from(scope.0);
    message.header.kind = RouteType::Unicast;
    let mut attributes = vec![RouteAttribute::Table(route.table.0)];
    if route.dst.prefix_len() > 0 {
        attributes.push(RouteAttribute::Destination(route.dst.network().into()));
    }
    attributes.extend(route.gateway.map(|gateway| RouteAttribute::Gateway(gateway.into())));
    attributes.extend(route.dev.map(|IfIndex(dev)| RouteAttribute::Oif(dev)));
    attributes.extend(route.src.map(|src| RouteAttribute::PrefSource(src.into())));
    if route.metric != 0 {
        attributes.push(RouteAttribute::Priority(route.metric));
    }
    message.attributes = attributes;
    message
}

fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = wire_family(rule.family);
    message.header.action = RuleAction::ToTable;
    message.header.table = short_table(rule.table);
    message.attributes = vec![
        RuleAttribute::Priority(rule.pref),
        RuleAttribute::Table(rule.table.0),
        RuleAttribute::Protocol(rule.protocol.into()),
    ];
    let Selector { src, dst, mark, iif, protocol, other: _ } = &rule.selector;
    select(&mut message, *src, *dst);
    if let Some(mark) = mark {
        message.attributes.push(RuleAttribute::FwMark(mark.value));
        message.attributes.push(RuleAttribute::FwMask(mark.mask));
    }
    message.attributes.extend(iif.clone().map(RuleAttribute::Iifname));
    let protocol = protocol.map(|number| RuleAttribute::IpProtocol(i32::from(number).into()));
    message.attributes.extend(protocol);
    message
}

/// In a deletion, what the message does not name fits anything.
fn pattern_message(pattern: RulePattern) -> RuleMessage {
    let mut message = RuleMessage::default();
    let (pref, address) = match pattern {
        RulePattern::To { pref, address } => {
            select(&mut message, None, Some(IpNet::from(address)));
            (pref, address)
        }
        RulePattern::From { pref, address } => {
            select(&mut message, Some(IpNet::from(address)), None);
            (pref, address)
        }
    };
    message.header.family = family_of(address);
    message.attributes.push(RuleAttribute::Priority(pref));
    message
}

/// Bits behind the prefix stay: the kernel keeps them, and knows a rule by them.
fn select(message: &mut RuleMessage, src: Option<IpNet>, dst: Option<IpNet>) {
    if let Some(src) = src {
        message.header.src_len = src.prefix_len();
        message.attributes.push(RuleAttribute::Source(src.addr()));
    }
    if let Some(dst) = dst {
        message.header.dst_len = dst.prefix_len();
        message.attributes.push(RuleAttribute::Destination(dst.addr()));
    }
}

/// Lets the kernel resolve a neighbor, as before a packet to it.
pub(crate) fn resolve(dev: IfIndex, address: IpAddr) -> Request {
    let neighbor = Neighbor { dev, address, mac: None, permanent: false };
    let mut message = neighbor_message(&neighbor);
    message.header.state = NeighbourState::None;
    message.header.flags = NeighbourFlags::Use;
    Request::new(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
}

fn neighbor_message(neighbor: &Neighbor) -> NeighbourMessage {
    let mut message = NeighbourMessage::default();
    message.header.family = family_of(neighbor.address);
    message.header.ifindex = neighbor.dev.0;
    message.header.state = match neighbor.permanent {
        true => NeighbourState::Permanent,
        false => NeighbourState::Reachable,
    };
    message.header.kind = RouteType::Unicast;
    message.attributes = vec![NeighbourAttribute::Destination(neighbor.address.into())];
    let mac = neighbor.mac.map(mac_bytes);
    message.attributes.extend(mac.map(NeighbourAttribute::LinkLayerAddress));
    message
}

fn family_of(ip: IpAddr) -> AddressFamily {
    wire_family(Family::of(ip))
}

fn wire_family(family: Family) -> AddressFamily {
    match family {
        Family::V4 => AddressFamily::Inet,
        Family::V6 => AddressFamily::Inet6,
    }
}

/// The header holds tables below 256; the attribute holds them all.
fn short_table(table: TableId) -> u8 {
    u8::try_from(table.0).unwrap_or(0)
}

fn mac_bytes(mac: Mac) -> Vec<u8> {
    mac.0.to_vec()
}
