//! Kernel objects as values, and one observation of them.

use config_model::{Mac, Mark, PodKey, RuleLayout, TableId, registry};
use ipnet::{IpNet, Ipv4Net};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
};

/// The number by which the kernel knows a link in one network namespace.
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

    /// The one that it is not.
    pub fn other(self) -> Self {
        match self {
            Self::V4 => Self::V6,
            Self::V6 => Self::V4,
        }
    }

    /// Everything of the family.
    pub fn any(self) -> IpNet {
        match self {
            Self::V4 => IpNet::V4(ipnet::Ipv4Net::default()),
            Self::V6 => IpNet::V6(ipnet::Ipv6Net::default()),
        }
    }
}

/// An IPv4 setting of one link that rtnetlink can read and write (`IFLA_INET_CONF`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ipv4Conf {
    /// `rp_filter`: 2 accepts a packet if its source is reachable by any link.
    RpFilter,
    /// `promote_secondaries`: 1 keeps the other addresses of a subnet when its first one goes.
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

/// An IPv6 setting of one link: rtnetlink tells it, but only a file below `/proc/sys` sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Ipv6Conf {
    /// `accept_ra`: 0 takes no router's word, 1 does where the node does not forward, 2 does anyway.
    AcceptRa,
    /// `disable_ipv6`: 1 keeps IPv6 off the link.
    DisableIpv6,
}

impl Ipv6Conf {
    /// The file of this setting for the link of this name.
    pub fn sysctl(self, link: &str) -> SysctlName {
        // A link's name holds no slash, and is neither `.` nor `..`.
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

/// What sort of device a link is.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LinkKind {
    /// Hardware or loopback: the kernel names no kind.
    Device,
    /// One end of a veth pair.
    Veth,
    /// A VLAN of this number on another link.
    Vlan(u16),
    /// Any other kind, by the kernel's name.
    Other(String),
}

/// The other end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Peer {
    /// Its number in its own namespace.
    pub index: IfIndex,
    /// The kernel's id of that namespace; `None` if it is the observed one.
    pub netns: Option<i32>,
}

/// A network link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Its number: what operations go by, since names change late.
    pub index: IfIndex,
    /// Its name at the time of the observation.
    pub name: String,
    /// Its Ethernet address, if it has one.
    pub mac: Option<Mac>,
    /// Largest packet in bytes.
    pub mtu: u32,
    /// Whether it is administratively up.
    pub up: bool,
    /// Its alias: on our host veths a [`PodKey`].
    pub alias: Option<String>,
    /// Its device group.
    pub group: u32,
    /// What sort of device it is.
    pub kind: LinkKind,
    /// The other end, for a veth.
    pub peer: Option<Peer>,
    /// The bridge or bond that it is part of.
    pub master: Option<IfIndex>,
    /// Its IPv4 settings, as far as they were read.
    pub ipv4: BTreeMap<Ipv4Conf, u32>,
    /// Its IPv6 settings, as far as they were read; none if it has no IPv6.
    pub ipv6: BTreeMap<Ipv6Conf, u32>,
}

impl Link {
    /// The pod interface that the alias names; `None` if the link is not ours.
    pub fn key(&self) -> Option<PodKey> {
        self.alias.as_deref().and_then(PodKey::from_alias)
    }
}

/// An address on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LinkAddr {
    /// The link.
    pub dev: IfIndex,
    /// The address and the length of its subnet's prefix.
    pub address: IpNet,
    /// The address at the other end, where that is not the subnet's own; the length is then its.
    pub peer: Option<IpAddr>,
    /// Whether it is of global scope (not link-local, not the host's own).
    pub global: bool,
    /// Whether it stands behind another address of the same subnet, and goes with it.
    pub secondary: bool,
    /// Whether the kernel makes no route for its subnet.
    pub noprefixroute: bool,
}

/// What a rule looks at.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Selector {
    /// Source.
    pub src: Option<IpNet>,
    /// Destination.
    pub dst: Option<IpNet>,
    /// Firewall mark.
    pub mark: Option<Mark>,
    /// Incoming interface, by name.
    pub iif: Option<String>,
    /// Protocol within IP.
    pub protocol: Option<u8>,
    /// Whether the rule has any more conditions, or does anything but a plain lookup. Such a rule
    /// is never ours.
    pub other: bool,
}

impl Selector {
    /// Everything from `address`.
    pub fn from(address: impl Into<IpAddr>) -> Self {
        Self { src: Some(IpNet::from(address.into())), ..Self::default() }
    }

    /// Everything to `address`.
    pub fn to(address: impl Into<IpAddr>) -> Self {
        Self { dst: Some(IpNet::from(address.into())), ..Self::default() }
    }

    /// Everything to any address of `net`.
    pub fn within(net: impl Into<IpNet>) -> Self {
        Self { dst: Some(net.into().trunc()), ..Self::default() }
    }

    /// Everything that comes in by the link of this name.
    pub fn incoming(link: impl Into<String>) -> Self {
        Self { iif: Some(link.into()), ..Self::default() }
    }

    /// Everything with `mark`.
    pub fn marked(mark: Mark) -> Self {
        Self { mark: Some(mark), ..Self::default() }
    }
}

/// A policy routing rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rule {
    /// Its family.
    pub family: Family,
    /// Its priority; lower ones are asked first.
    pub pref: u32,
    /// What it looks at.
    pub selector: Selector,
    /// The table it sends to.
    pub table: TableId,
    /// Who made it. Not part of its identity: the kernel accepts twins that differ in this alone.
    pub protocol: u8,
}

impl Rule {
    /// A rule of ours, of the family of its selector's addresses; IPv4 if it has none.
    pub fn ours(pref: u32, selector: Selector, table: TableId) -> Self {
        let net = selector.src.or(selector.dst);
        let family = net.map_or(Family::V4, |net| Family::of(net.addr()));
        Self { family, pref, selector, table, protocol: registry::ROUTE_PROTOCOL }
    }

    /// Our rule for marked traffic of this family: it goes to table main.
    pub fn marked(family: Family, mark: Mark) -> Self {
        let selector = Selector::marked(mark);
        Self { family, ..Self::ours(registry::PREF_MARKED, selector, TableId::MAIN) }
    }

    /// The rule that pods of this family share: what is to one of them goes by the table of the
    /// routes to them.
    pub fn to_pods(family: Family) -> Self {
        let all = Selector::default();
        Self { family, ..Self::ours(registry::PREF_TO_POD, all, TableId::PODS) }
    }

    /// The rule that the pods of a prefix share: what they send goes by their ENI's table.
    pub fn from_prefix(prefix: IpNet, table: TableId) -> Self {
        let from = Selector { src: Some(prefix.trunc()), ..Selector::default() };
        Self::ours(registry::PREF_FROM_POD, from, table)
    }

    /// The rule that the single addresses of an ENI share: netfilter has marked what they send.
    pub fn from_marked(mark: Mark, table: TableId) -> Self {
        Self::ours(registry::PREF_FROM_POD, Selector::marked(mark), table)
    }

    /// Our rule for an external Service's range: it goes to table main.
    pub fn external(range: Ipv4Net) -> Self {
        Self::ours(registry::PREF_EXTERNAL, Selector::within(range), TableId::MAIN)
    }

    /// Our rule that asks the kernel's own table at this priority.
    pub fn local(family: Family, pref: u32) -> Self {
        Self { family, ..Self::ours(pref, Selector::default(), TableId::LOCAL) }
    }

    /// Our rule for what the VPC's IPv6 router says of itself: nobody's but the node's to hear, even
    /// where table `local` is asked late.
    pub fn of_router() -> Self {
        let said = Selector { protocol: Some(ICMPV6), ..Selector::from(registry::VPC_GATEWAY_V6) };
        Self::ours(registry::PREF_LOCAL, said, TableId::LOCAL)
    }

    /// The link of a branch pod whose traffic the rule catches, if it has the form of such a rule.
    pub(crate) fn branch_link(&self) -> Option<&str> {
        let iif = self.selector.iif.as_deref()?;
        let plain = self.selector == Selector::incoming(iif);
        (self.pref == registry::PREF_BRANCH && plain).then_some(iif)
    }

    /// Whether both are the same rule, whoever made them.
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

/// How far away a route's destination is (`rtm_scope`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Scope(pub u8);

impl Scope {
    /// Anywhere: behind a gateway.
    pub const UNIVERSE: Self = Self(0);
    /// On the link itself.
    pub const LINK: Self = Self(253);
}

/// A route.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Route {
    /// The table it is in.
    pub table: TableId,
    /// What it leads to.
    pub dst: IpNet,
    /// The next hop, if the destination is not on the link.
    pub gateway: Option<IpAddr>,
    /// The link; `None` if there is none or more than one.
    pub dev: Option<IfIndex>,
    /// How far away the destination is.
    pub scope: Scope,
    /// The source address it proposes.
    pub src: Option<IpAddr>,
    /// Its metric; lower ones win.
    pub metric: u32,
    /// Who made it.
    pub protocol: u8,
    /// Whether it is a unicast route over one next hop for every type of service. No other is ours.
    pub plain: bool,
}

impl Route {
    /// A route of ours to `dst` on the link itself.
    pub fn on_link(table: TableId, dst: impl Into<IpAddr>, dev: IfIndex) -> Self {
        let dst = dst.into();
        // IPv6 routes have no scope and always a metric: what is not given, the kernel fills in.
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

    /// A default route of ours.
    pub fn default_via(table: TableId, gateway: impl Into<IpAddr>, dev: IfIndex) -> Self {
        let gateway = gateway.into();
        Self {
            dst: Family::of(gateway).any(),
            gateway: Some(gateway),
            scope: Scope::UNIVERSE,
            ..Self::on_link(table, gateway, dev)
        }
    }

    /// Whether both send the same packets the same way, whoever made them.
    pub fn leads_as(&self, other: &Self) -> bool {
        (self.table, self.dst, self.gateway, self.dev, self.metric, self.plain)
            == (other.table, other.dst, other.gateway, other.dev, other.metric, other.plain)
    }

    /// The address, if the route leads to a single one.
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

/// A permanent neighbor, or one that the kernel learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Neighbor {
    /// The link.
    pub dev: IfIndex,
    /// Its address.
    pub address: IpAddr,
    /// Its Ethernet address, if known.
    pub mac: Option<Mac>,
    /// Whether it was put there for good.
    pub permanent: bool,
}

/// The name of a file below `/proc/sys`, such as `net/ipv4/ip_forward`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SysctlName(String);

impl SysctlName {
    /// The name, if it stays below `net/` and so within one network namespace.
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
    /// Every link.
    pub links: BTreeMap<IfIndex, Link>,
    /// Every address.
    pub addresses: Vec<LinkAddr>,
    /// Every rule, each family in the order in which the kernel asks them.
    pub rules: Vec<Rule>,
    /// Every route outside table `local`.
    pub routes: Vec<Route>,
    /// The neighbors, where they were asked for.
    pub neighbors: Vec<Neighbor>,
    /// The watched settings that are files.
    pub sysctls: BTreeMap<SysctlName, String>,
    /// How netfilter marks what comes from these addresses, where it was looked at.
    pub marked: BTreeMap<IpAddr, Mark>,
}

impl Observed {
    /// The link of this name.
    pub fn link_named(&self, name: &str) -> Option<&Link> {
        self.links.values().find(|link| link.name == name)
    }

    /// The links of the ENI with this Ethernet address: one, unless something is wrong.
    ///
    /// A VLAN, bridge or macvlan on an ENI copies its address, so only devices count, and veths,
    /// which are what a laboratory's ENIs are made of.
    pub fn enis_with(&self, mac: Mac) -> Vec<&Link> {
        let fits = |link: &&Link| {
            link.mac == Some(mac)
                && matches!(link.kind, LinkKind::Device | LinkKind::Veth)
                && link.key().is_none()
        };
        self.links.values().filter(fits).collect()
    }

    /// The host end whose alias is this key's. The link of a branch ENI carries its pod's as well.
    pub fn link_of(&self, key: &PodKey) -> Option<&Link> {
        let alias = key.alias();
        let carries = |link: &&Link| link.alias.as_deref() == Some(alias.as_str());
        self.links.values().find(|link| carries(link) && !matches!(link.kind, LinkKind::Vlan(_)))
    }

    /// How the rules for pods seem to be laid out: compactly if there is one that pods share.
    pub fn layout(&self) -> RuleLayout {
        let shared = [Family::V4, Family::V6].map(Rule::to_pods);
        let is_shared = |rule: &Rule| shared.iter().any(|shared| shared.is_twin_of(rule));
        match self.rules.iter().any(is_shared) {
            true => RuleLayout::Compact,
            false => RuleLayout::PerPod,
        }
    }

    /// The table by which a pod's packets leave, if a rule of its address alone says so.
    pub fn table_of(&self, pod: IpAddr) -> Option<TableId> {
        let leads =
            |rule: &&Rule| rule.pref == registry::PREF_FROM_POD && pod_of(rule) == Some(pod);
        self.rules.iter().find(leads).map(|rule| rule.table)
    }

    /// The addresses that the host routes straight to this link, be they pods' in either layout.
    pub fn routed_to(&self, dev: IfIndex) -> BTreeSet<IpAddr> {
        self.pod_routes()
            .filter(|route| route.dev == Some(dev))
            .filter_map(Route::host_address)
            .collect()
    }

    /// Whether the host routes the address straight to a link that is none of these.
    pub fn routed_past(&self, address: IpAddr, own: impl Fn(IfIndex) -> bool) -> bool {
        self.pod_routes()
            .filter(|route| route.host_address() == Some(address))
            .any(|route| route.dev.is_some_and(|dev| !own(dev)))
    }

    /// The routes of the tables in which routes to pods are, in either layout.
    fn pod_routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter().filter(|route| is_for_pods(route.table))
    }

    /// Whether the route leads straight to a host end of some pod's veth pair, or is our own.
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

/// The addresses that some rule or route for a pod still names: none of them may be given away.
pub fn addresses_in_use(observed: &Observed) -> BTreeSet<IpAddr> {
    let ruled = observed.rules.iter().filter_map(pod_of);
    let routes = observed.routes.iter().filter(|route| observed.is_host_route(route));
    ruled.chain(routes.filter_map(Route::host_address)).collect()
}

/// The pod address that a rule of one of the two pod priorities is about.
pub(crate) fn pod_of(rule: &Rule) -> Option<IpAddr> {
    let Selector { src, dst, mark, iif, protocol, other } = &rule.selector;
    if mark.is_some() || iif.is_some() || protocol.is_some() || *other {
        return None;
    }
    match rule.pref {
        registry::PREF_TO_POD if src.is_none() => dst.and_then(single),
        // Older amazon-vpc-cni wrote one such rule for each CIDR of the VPC.
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

/// The metric that the kernel gives an IPv6 route for which none is asked (`IP6_RT_PRIO_USER`).
const V6_METRIC: u32 = 1024;

/// A prefix as `ip` writes it: a single address without its length.
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
