//! The kernel's objects as values, and an observation of them.

use config_model::{Mac, Mark, PodKey, RuleLayout, TableId, registry};
use ipnet::{IpNet, Ipv4Net};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

/// The kernel's number of a link in one network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IfIndex(pub u32);

impl fmt::Display for IfIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// An address family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// The family of an address.
    pub fn of(address: IpAddr) -> Self {
        if address.is_ipv4() { Self::V4 } else { Self::V6 }
    }

    pub fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }

    /// The range with every address of the family.
    pub fn any(self) -> IpNet {
        match self {
            Self::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
            Self::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
        }
    }
}

/// An IPv4 setting of a link that rtnetlink can read and write (`IFLA_INET_CONF`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ipv4Conf {
    /// `rp_filter`: 2 accepts a packet if any link reaches its source.
    RpFilter,
    /// `promote_secondaries`: 1 keeps the other addresses of a subnet if the first one is removed.
    PromoteSecondaries,
}

impl fmt::Display for Ipv4Conf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::RpFilter => "rp_filter",
            Self::PromoteSecondaries => "promote_secondaries",
        })
    }
}

/// An IPv6 setting of a link. rtnetlink can read it; only a file below `/proc/sys` can change it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ipv6Conf {
    /// `accept_ra`: 0 ignores router advertisements, 1 accepts them unless the node forwards, 2 always accepts them.
    AcceptRa,
    /// `disable_ipv6`: 1 disables IPv6 on the link.
    DisableIpv6,
}

impl Ipv6Conf {
    /// The file of this setting for the link with this name.
    pub fn sysctl(self, link: &str) -> SysctlName {
        // A link's name contains no slash and is neither `.` nor `..`.
        SysctlName(format!("net/ipv6/conf/{}/{self}", link.replace('/', "-")))
    }
}

impl fmt::Display for Ipv6Conf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AcceptRa => "accept_ra",
            Self::DisableIpv6 => "disable_ipv6",
        })
    }
}

/// The type of a link.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKind {
    /// Hardware or loopback, for which the kernel reports no kind.
    Device,
    /// One end of a veth pair.
    Veth,
    /// A VLAN with this id on another link.
    Vlan(u16),
    /// Any other kind, with the kernel's name.
    Other(String),
}

/// The other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// The index in its own namespace.
    pub index: IfIndex,
    /// The kernel's id of that namespace; `None` if it is the observed one.
    pub netns: Option<i32>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Operations identify a link by its index, because names change late.
    pub index: IfIndex,
    /// At the time of the observation.
    pub name: String,
    /// `None` if the link has no Ethernet address.
    pub mac: Option<Mac>,
    /// In bytes.
    pub mtu: u32,
    /// Administrative state.
    pub up: bool,
    /// On our host veths a [`PodKey`].
    pub alias: Option<String>,
    /// The device group.
    pub group: u32,
    pub kind: LinkKind,
    /// The other end of a veth, or the parent of a VLAN.
    pub peer: Option<Peer>,
    /// The bridge or bond that the link is a port of.
    pub master: Option<IfIndex>,
    /// The IPv4 settings that were read.
    pub ipv4: BTreeMap<Ipv4Conf, u32>,
    /// The IPv6 settings that were read; empty for a link without IPv6.
    pub ipv6: BTreeMap<Ipv6Conf, u32>,
}

impl Link {
    /// The pod interface that the alias names; `None` if the link is not ours.
    pub fn key(&self) -> Option<PodKey> {
        self.alias.as_deref().and_then(PodKey::from_alias)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkAddr {
    pub dev: IfIndex,
    /// With the prefix length of its subnet.
    pub address: IpNet,
    /// The address of the other end of a point-to-point address. The prefix length then belongs to it.
    pub peer: Option<IpAddr>,
    /// True for global scope (not link-local or host).
    pub global: bool,
    /// True if the kernel removes the address with the first one of the same subnet.
    pub secondary: bool,
    /// True if the kernel adds no route for the subnet.
    pub noprefixroute: bool,
}

/// The conditions of a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    pub src: Option<IpNet>,
    pub dst: Option<IpNet>,
    pub mark: Option<Mark>,
    /// Name of the incoming interface.
    pub iif: Option<String>,
    /// Protocol number within IP.
    pub protocol: Option<u8>,
    /// True if the rule has further conditions or an action other than a lookup. Such a rule is never ours.
    pub other: bool,
}

impl Selector {
    /// Packets from `address`.
    pub fn from(address: impl Into<IpAddr>) -> Self {
        Self { src: Some(IpNet::from(address.into())), ..Self::default() }
    }

    /// Packets to `address`.
    pub fn to(address: impl Into<IpAddr>) -> Self {
        Self { dst: Some(IpNet::from(address.into())), ..Self::default() }
    }

    /// Packets to any address of `net`.
    pub fn within(net: impl Into<IpNet>) -> Self {
        Self { dst: Some(net.into().trunc()), ..Self::default() }
    }

    /// Packets that arrive by the link with this name.
    pub fn incoming(link: impl Into<String>) -> Self {
        Self { iif: Some(link.into()), ..Self::default() }
    }

    /// Packets with `mark`.
    pub fn marked(mark: Mark) -> Self {
        Self { mark: Some(mark), ..Self::default() }
    }
}

/// A policy routing rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    pub family: Family,
    /// The kernel evaluates lower priorities first.
    pub pref: u32,
    pub selector: Selector,
    /// The table of the lookup.
    pub table: TableId,
    /// The creator. Not a part of the rule's identity: the kernel accepts two rules that differ in it alone.
    pub protocol: u8,
}

impl Rule {
    /// A rule of ours. The family is that of the selector's addresses, or IPv4 if it has none.
    pub fn ours(pref: u32, selector: Selector, table: TableId) -> Self {
        let net = selector.src.or(selector.dst);
        let family = net.map_or(Family::V4, |net| Family::of(net.addr()));
        Self { family, pref, selector, table, protocol: registry::ROUTE_PROTOCOL }
    }

    /// Our rule for marked packets of this family, to table main.
    pub fn marked(family: Family, mark: Mark) -> Self {
        let selector = Selector::marked(mark);
        Self { family, ..Self::ours(registry::PREF_MARKED, selector, TableId::MAIN) }
    }

    /// The rule that all pods of this family share: packets to them use the table of the routes to pods.
    pub fn to_pods(family: Family) -> Self {
        let all = Selector::default();
        Self { family, ..Self::ours(registry::PREF_TO_POD, all, TableId::PODS) }
    }

    /// The rule that the pods of a prefix share: packets from them use their ENI's table.
    pub fn from_prefix(prefix: IpNet, table: TableId) -> Self {
        let from = Selector { src: Some(prefix.trunc()), ..Selector::default() };
        Self::ours(registry::PREF_FROM_POD, from, table)
    }

    /// The rule that the single addresses of an ENI share: netfilter has marked packets from them.
    pub fn from_marked(mark: Mark, table: TableId) -> Self {
        Self::ours(registry::PREF_FROM_POD, Selector::marked(mark), table)
    }

    /// Our rule for an external Service's range, to table main.
    pub fn external(range: Ipv4Net) -> Self {
        Self::ours(registry::PREF_EXTERNAL, Selector::within(range), TableId::MAIN)
    }

    /// Our rule with this priority for the kernel's table `local`.
    pub fn local(family: Family, pref: u32) -> Self {
        Self { family, ..Self::ours(pref, Selector::default(), TableId::LOCAL) }
    }

    /// Our rule for ICMPv6 from the VPC's IPv6 router. These packets are for the node itself, also if the rule of
    /// table `local` has a late priority.
    pub fn of_router() -> Self {
        let from_router =
            Selector { protocol: Some(ICMPV6), ..Selector::from(registry::VPC_GATEWAY_V6) };
        Self::ours(registry::PREF_LOCAL, from_router, TableId::LOCAL)
    }

    /// The name of the link of a branch pod that the rule matches; `None` if the rule has another form.
    pub(crate) fn branch_link(&self) -> Option<&str> {
        let iif = self.selector.iif.as_deref()?;
        let plain = self.selector == Selector::incoming(iif);
        (self.pref == registry::PREF_BRANCH && plain).then_some(iif)
    }

    /// True if both are the same rule, whatever their protocols.
    pub fn is_twin_of(&self, other: &Self) -> bool {
        (self.family, self.pref, &self.selector, self.table)
            == (other.family, other.pref, &other.selector, other.table)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pref {}", self.pref)?;
        let Selector { src, dst, mark, iif, protocol, other } = &self.selector;
        if let Some(src) = src {
            write!(f, " from {}", Short(*src))?;
        }
        if let Some(dst) = dst {
            write!(f, " to {}", Short(*dst))?;
        }
        if let Some(mark) = mark {
            write!(f, " fwmark {mark}")?;
        }
        if let Some(iif) = iif {
            write!(f, " iif {iif}")?;
        }
        if let Some(protocol) = protocol {
            write!(f, " ipproto {protocol}")?;
        }
        if *other {
            f.write_str(" (more)")?;
        }
        write!(f, " lookup {}", self.table)
    }
}

/// Distance of a route's destination (`rtm_scope`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope(pub u8);

impl Scope {
    /// Any distance: behind a gateway.
    pub const UNIVERSE: Self = Self(0);
    /// On the link.
    pub const LINK: Self = Self(253);
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    pub table: TableId,
    pub dst: IpNet,
    /// The next hop; `None` if the destination is on the link.
    pub gateway: Option<IpAddr>,
    /// `None` if the route has no link or several.
    pub dev: Option<IfIndex>,
    pub scope: Scope,
    /// The preferred source address.
    pub src: Option<IpAddr>,
    /// The kernel prefers lower metrics.
    pub metric: u32,
    /// The creator.
    pub protocol: u8,
    /// True for a unicast route with one next hop for every type of service. Other routes are never ours.
    pub plain: bool,
}

impl Route {
    /// A route of ours to `dst` on the link.
    pub fn on_link(table: TableId, dst: impl Into<IpAddr>, dev: IfIndex) -> Self {
        let dst = dst.into();
        // The kernel gives IPv6 routes no scope and always a metric, by default this one.
        let (scope, metric) = match Family::of(dst) {
            Family::V4 => (Scope::LINK, 0),
            Family::V6 => (Scope::UNIVERSE, V6_METRIC),
        };
        Self {
            table,
            dst: IpNet::from(dst),
            gateway: None,
            dev: Some(dev),
            scope,
            src: None,
            metric,
            protocol: registry::ROUTE_PROTOCOL,
            plain: true,
        }
    }

    /// Our default route.
    pub fn default_via(table: TableId, gateway: impl Into<IpAddr>, dev: IfIndex) -> Self {
        let gateway = gateway.into();
        Self {
            dst: Family::of(gateway).any(),
            gateway: Some(gateway),
            scope: Scope::UNIVERSE,
            ..Self::on_link(table, gateway, dev)
        }
    }

    /// True if both route the same packets the same way, whatever their protocols.
    pub fn leads_as(&self, other: &Self) -> bool {
        (self.table, self.dst, self.gateway, self.dev, self.metric, self.plain)
            == (other.table, other.dst, other.gateway, other.dev, other.metric, other.plain)
    }

    /// The address; `None` unless the route leads to a single one.
    pub fn host_address(&self) -> Option<IpAddr> {
        single(self.dst)
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.dst.prefix_len() == 0 {
            f.write_str("default")?;
        } else {
            write!(f, "{}", Short(self.dst))?;
        }
        if let Some(gateway) = self.gateway {
            write!(f, " via {gateway}")?;
        }
        if let Some(dev) = self.dev {
            write!(f, " dev #{dev}")?;
        }
        if self.metric != 0 {
            write!(f, " metric {}", self.metric)?;
        }
        write!(f, " table {}", self.table)
    }
}

/// A neighbor entry, permanent or learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbor {
    pub dev: IfIndex,
    pub address: IpAddr,
    /// The Ethernet address; `None` if the kernel does not know it.
    pub mac: Option<Mac>,
    /// True if the entry never expires.
    pub permanent: bool,
}

/// The name of a file below `/proc/sys`, such as `net/ipv4/ip_forward`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SysctlName(String);

impl SysctlName {
    /// `None` if the name leaves `net/`, and with it the network namespace.
    pub fn new(name: impl Into<String>) -> Option<Self> {
        let name = name.into();
        let whole = name.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
        (whole && name.starts_with("net/")).then_some(Self(name))
    }

    /// The path below `/proc/sys`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SysctlName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One full observation of a network namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    pub links: BTreeMap<IfIndex, Link>,
    pub addresses: Vec<LinkAddr>,
    /// In the order of evaluation, per family.
    pub rules: Vec<Rule>,
    /// All routes except those of table `local`.
    pub routes: Vec<Route>,
    /// Empty unless the observation includes neighbors.
    pub neighbors: Vec<Neighbor>,
    /// The watched sysctls.
    pub sysctls: BTreeMap<SysctlName, String>,
    /// The marks that netfilter sets on packets from these addresses, if they were read.
    pub marked: BTreeMap<IpAddr, Mark>,
}

impl Observed {
    /// Adds the objects of another observation.
    pub fn append(&mut self, other: Self) {
        let Self { links, addresses, rules, routes, neighbors, sysctls, marked } = other;
        self.links.extend(links);
        self.addresses.extend(addresses);
        self.rules.extend(rules);
        self.routes.extend(routes);
        self.neighbors.extend(neighbors);
        self.sysctls.extend(sysctls);
        self.marked.extend(marked);
    }

    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    /// The links of the ENI with this Ethernet address: exactly one on a healthy node.
    ///
    /// A VLAN, bridge or macvlan on an ENI has the same address, so only devices and veths count. The lab's ENIs are
    /// veths.
    pub fn enis_with(&self, mac: Mac) -> Vec<&Link> {
        let fits = |link: &&Link| {
            link.mac == Some(mac)
                && matches!(link.kind, LinkKind::Device | LinkKind::Veth)
                && link.key().is_none()
        };
        self.links.values().filter(fits).collect()
    }

    /// The host end with the key in its alias. The VLAN link of a branch ENI has the same alias and does not count.
    pub fn link_of(&self, key: &PodKey) -> Option<&Link> {
        let alias = key.alias();
        let carries = |link: &&Link| link.alias.as_deref() == Some(alias.as_str());
        self.links.values().find(|link| carries(link) && !matches!(link.kind, LinkKind::Vlan(_)))
    }

    /// The layout of the rules for pods: compact if a shared rule to pods exists.
    pub fn layout(&self) -> RuleLayout {
        let shared = [Family::V4, Family::V6].map(Rule::to_pods);
        let is_shared = |rule: &Rule| shared.iter().any(|shared| shared.is_twin_of(rule));
        match self.rules.iter().any(is_shared) {
            true => RuleLayout::Compact,
            false => RuleLayout::PerPod,
        }
    }

    /// The table for packets from a pod, according to the rule for this address alone.
    pub fn table_of(&self, pod: IpAddr) -> Option<TableId> {
        let leads =
            |rule: &&Rule| rule.pref == registry::PREF_FROM_POD && pod_of(rule) == Some(pod);
        self.rules.iter().find(leads).map(|rule| rule.table)
    }

    /// The addresses that the host routes directly to links, in either layout.
    pub fn pod_addresses(&self) -> impl Iterator<Item = (IfIndex, IpAddr)> {
        self.pod_routes().filter_map(|route| Some((route.dev?, route.host_address()?)))
    }

    /// The addresses that the host routes directly to this link, in either layout.
    pub fn routed_to(&self, dev: IfIndex) -> BTreeSet<IpAddr> {
        self.pod_routes()
            .filter(|route| route.dev == Some(dev))
            .filter_map(Route::host_address)
            .collect()
    }

    /// True if the host routes the address directly to a link for which `own` is false.
    pub fn routed_past(&self, address: IpAddr, own: impl Fn(IfIndex) -> bool) -> bool {
        self.pod_routes()
            .filter(|route| route.host_address() == Some(address))
            .any(|route| route.dev.is_some_and(|dev| !own(dev)))
    }

    /// The addresses of this bridged pod interface, according to the permanent neighbor entries on `gateway_port`.
    pub fn bridged_addresses(&self, key: &PodKey, gateway_port: IfIndex) -> BTreeSet<IpAddr> {
        let [_, mac] = crate::mac::mac_addresses(key);
        let of_pod = |n: &&Neighbor| n.permanent && n.dev == gateway_port && n.mac == Some(mac);
        self.neighbors.iter().filter(of_pod).map(|neighbor| neighbor.address).collect()
    }

    /// The routes in the tables for routes to pods, of either layout.
    fn pod_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(|route| is_for_pods(route.table))
    }

    /// True if the route leads directly to a veth, or is our own host route.
    pub(crate) fn is_host_route(&self, route: &Route) -> bool {
        let veth = || {
            let link = route.dev.and_then(|dev| self.links.get(&dev));
            link.is_some_and(|link| link.kind == LinkKind::Veth)
        };
        route.plain
            && is_for_pods(route.table)
            && route.gateway.is_none()
            && route.host_address().is_some()
            && (route.protocol == registry::ROUTE_PROTOCOL || veth())
    }
}

/// The addresses that a rule or route for a pod still names. They must not be assigned.
pub fn addresses_in_use(observed: &Observed) -> BTreeSet<IpAddr> {
    let ruled = observed.rules.iter().filter_map(pod_of);
    let routes = observed.routes.iter().filter(|route| observed.is_host_route(route));
    ruled.chain(routes.filter_map(Route::host_address)).collect()
}

/// The pod address of a rule with one of the two pod priorities.
pub(crate) fn pod_of(rule: &Rule) -> Option<IpAddr> {
    let Selector { src, dst, mark, iif, protocol, other } = &rule.selector;
    if mark.is_some() || iif.is_some() || protocol.is_some() || *other {
        return None;
    }
    match rule.pref {
        registry::PREF_TO_POD if src.is_none() => dst.and_then(single),
        // Older versions of amazon-vpc-cni wrote one such rule for each CIDR of the VPC.
        registry::PREF_FROM_POD => src.and_then(single),
        _ => None,
    }
}

fn single(net: IpNet) -> Option<IpAddr> {
    (net.prefix_len() == net.max_prefix_len()).then(|| net.addr())
}

fn is_for_pods(table: TableId) -> bool {
    [RuleLayout::PerPod, RuleLayout::Compact].map(RuleLayout::pod_routes).contains(&table)
}

/// `IPPROTO_ICMPV6`.
const ICMPV6: u8 = 58;

/// The kernel's metric for an IPv6 route that was added without one (`IP6_RT_PRIO_USER`).
const V6_METRIC: u32 = 1024;

/// A prefix as `ip` prints it: a single address without length.
pub(crate) struct Short(pub(crate) IpNet);

impl fmt::Display for Short {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.prefix_len() == self.0.max_prefix_len() {
            write!(f, "{}", self.0.addr())
        } else {
            write!(f, "{}", self.0)
        }
    }
}
