//! The VPC's packet filter, one nftables table: source check, security groups, internet gateway, counters.
//!
//! Each transaction replaces everything except the sets that carry counters, which change by their difference. The
//! name of an empty chain in the ruleset is a fingerprint of the rendered text. An unchanged desired state
//! therefore causes no transaction.

use crate::{
    DesiredFabric, EniSpec, FabricError, GroupRule, Peer, Protocol, Vpc,
    counters::{DropReason, Ruleset},
    router::{INTERNET_PORT, own_addresses, port_name},
    table::{HOMELESS, SOURCES, SPOOFED, TABLE},
    tool,
};
use config_model::{EniId, SecurityGroupId};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Display, Write as _},
    net::Ipv4Addr,
};

pub(crate) mod v6;

/// The transaction that makes the ruleset what is wanted; `None` when it is.
pub(crate) fn transaction(
    wanted: &DesiredFabric,
    enis: &BTreeMap<&EniId, &EniSpec>,
    vpc: &Vpc,
    seen: &Ruleset,
) -> Option<String> {
    let body = body(wanted, enis, vpc);
    let fingerprint = format!("{FINGERPRINT}{:016x}", fnv(&body));
    let sources: BTreeSet<(String, Ipv4Addr)> = enis
        .values()
        .flat_map(|eni| {
            let port = port_name(eni.mac);
            eni.addresses().into_iter().map(move |address| (port.clone(), address))
        })
        .collect();
    let ports: BTreeSet<String> = enis.values().map(|eni| port_name(eni.mac)).collect();
    let same_sources = seen.set(SOURCES).is_some_and(|set| set.keys().eq(sources.iter()));
    if same_sources && seen.chains.contains(&fingerprint) {
        return None;
    }
    let mut out = frame();
    for stale in seen.chains.iter().filter(|chain| is_rendered(chain)) {
        let _ = writeln!(out, "flush chain ip {TABLE} {stale}");
    }
    for stale in seen.chains.iter().filter(|chain| is_rendered(chain)) {
        let _ = writeln!(out, "delete chain ip {TABLE} {stale}");
    }
    for stale in seen.sets.keys().filter(|set| is_rendered(set)) {
        let _ = writeln!(out, "delete set ip {TABLE} {stale}");
    }
    out.push_str(&body);
    let _ = writeln!(out, "add chain ip {TABLE} {fingerprint}");
    let gone = |set: &str, keep: &dyn Fn(&(String, Ipv4Addr)) -> bool| {
        let elements = seen.set(set).into_iter().flat_map(|set| set.keys());
        elements.filter(|key| !keep(key)).map(element).collect::<Vec<_>>()
    };
    elements(&mut out, "delete", SOURCES, &gone(SOURCES, &|key| sources.contains(key)));
    for set in [SPOOFED, HOMELESS] {
        elements(&mut out, "delete", set, &gone(set, &|(port, _)| ports.contains(port)));
    }
    let fresh =
        sources.iter().filter(|key| seen.set(SOURCES).is_none_or(|set| !set.contains_key(*key)));
    elements(&mut out, "add", SOURCES, &fresh.map(element).collect::<Vec<_>>());
    Some(out)
}

/// Applies a transaction; runs inside the VPC namespace.
pub(crate) fn commit(transaction: &str) -> Result<(), FabricError> {
    tool::nft(transaction, "apply the VPC's ruleset")
}

fn element((port, address): &(String, Ipv4Addr)) -> String {
    format!("\"{port}\" . {address}")
}

fn elements(out: &mut String, verb: &str, set: &str, elements: &[impl Display]) {
    if elements.is_empty() {
        return;
    }
    let list: Vec<String> = elements.iter().map(ToString::to_string).collect();
    let _ = writeln!(out, "{verb} element ip {TABLE} {set} {{ {} }}", list.join(", "));
}

/// Tables, counters, sets and maps; adding what exists changes nothing.
fn frame() -> String {
    let mut out = format!("add table ip {TABLE}\n");
    for reason in DropReason::ALL {
        let _ = writeln!(out, "add counter ip {TABLE} {}", reason.counter_name());
    }
    let mut set = |verb: &str, name: &str, spec: &str| {
        let _ = writeln!(out, "add {verb} ip {TABLE} {name} {{ {spec} }}");
    };
    set("set", SOURCES, "type ifname . ipv4_addr; counter;");
    for name in [SPOOFED, HOMELESS] {
        set("set", name, "type ifname . ipv4_addr; flags dynamic; size 65535; counter;");
    }
    for (kind, name, spec) in REPLACED {
        set(kind, name, spec);
    }
    for (name, hook) in CHAINS {
        let hook = if hook.is_empty() { String::new() } else { format!(" {{ {hook} }}") };
        let _ = writeln!(out, "add chain ip {TABLE} {name}{hook}");
    }
    for (name, _) in CHAINS {
        let _ = writeln!(out, "flush chain ip {TABLE} {name}");
    }
    for (kind, name, _) in REPLACED {
        let _ = writeln!(out, "flush {kind} ip {TABLE} {name}");
    }
    out
}

/// The part that each transaction renders again.
fn body(wanted: &DesiredFabric, enis: &BTreeMap<&EniId, &EniSpec>, vpc: &Vpc) -> String {
    let mut out = String::new();
    for (chain, rule) in static_rules() {
        let _ = writeln!(out, "add rule ip {TABLE} {chain} {rule}");
    }
    let ports = |keep: &dyn Fn(&EniSpec) -> bool| -> Vec<String> {
        let kept = enis.values().filter(|eni| keep(eni));
        kept.map(|eni| format!("\"{}\"", port_name(eni.mac))).collect()
    };
    elements(&mut out, "add", "ports", &ports(&|_| true));
    elements(&mut out, "add", "unchecked", &ports(&|eni| !eni.source_dest_check));
    elements(&mut out, "add", "cidrs", &vpc.cidrs);
    let mut mapped = own_addresses(vpc);
    mapped.extend(enis.values().flat_map(|eni| eni.addresses()));
    elements(&mut out, "add", "mapped", &Vec::from_iter(&mapped));
    let pairs = |pair: &dyn Fn(&EniSpec) -> String| -> Vec<String> {
        enis.values().map(|eni| pair(eni)).collect()
    };
    let private: Vec<Ipv4Addr> = enis.values().map(|eni| eni.primary).collect();
    elements(&mut out, "add", "at_home", &private);
    let to_public = pairs(&|eni| format!("{} : {}", eni.primary, eni.public_address()));
    elements(&mut out, "add", "public", &to_public);
    let to_private = pairs(&|eni| format!("{} : {}", eni.public_address(), eni.primary));
    elements(&mut out, "add", "private", &to_private);
    groups(&mut out, wanted, enis);
    out
}

fn static_rules() -> Vec<(&'static str, String)> {
    let drop = |reason: DropReason| format!("counter name {} drop", reason.counter_name());
    let note = |set| format!("update @{set} {{ iifname . ip saddr }}");
    vec![
        ("check_source", format!("iifname . ip saddr @{SOURCES} accept")),
        ("check_source", "iifname @unchecked accept".into()),
        (
            "check_source",
            format!("iifname @ports {} {}", note(SPOOFED), drop(DropReason::SourceCheck)),
        ),
        (
            "check_destination",
            format!("ip daddr @cidrs ip daddr != @mapped {}", drop(DropReason::NoSuchAddress)),
        ),
        ("from_internet", format!("iifname \"{INTERNET_PORT}\" dnat to ip daddr map @private")),
        ("to_internet", format!("oifname \"{INTERNET_PORT}\" snat to ip saddr map @public")),
        ("own", "ct state established,related accept".into()),
        ("own", format!("iifname \"{INTERNET_PORT}\" {}", drop(DropReason::FromInternet))),
        ("route", "ct state established,related accept".into()),
        ("route", "iifname vmap @egress".into()),
        (
            "route",
            format!(
                "oifname \"{INTERNET_PORT}\" ip saddr != @at_home {} {}",
                note(HOMELESS),
                drop(DropReason::NoPublicAddress)
            ),
        ),
        ("route", format!("iifname \"{INTERNET_PORT}\" ct status dnat goto inward")),
        ("route", format!("iifname \"{INTERNET_PORT}\" {}", drop(DropReason::FromInternet))),
        ("route", "goto inward".into()),
        ("inward", "oifname vmap @ingress".into()),
    ]
}

/// A chain per distinct set of groups and direction; it returns what a rule allows and drops the rest.
fn groups(out: &mut String, wanted: &DesiredFabric, enis: &BTreeMap<&EniId, &EniSpec>) {
    let referenced = wanted.groups.values().flat_map(|g| g.ingress.iter().chain(&g.egress));
    let peers: BTreeSet<&SecurityGroupId> = referenced
        .filter_map(|rule| match &rule.peer {
            Peer::Group(group) => Some(group),
            Peer::Cidr(_) | Peer::Cidr6(_) => None,
        })
        .collect();
    let sets: GroupSets = peers.into_iter().zip(0..).collect();
    for (group, n) in &sets {
        let members: BTreeSet<Ipv4Addr> = enis
            .values()
            .filter(|eni| eni.groups.contains(*group))
            .flat_map(|eni| eni.addresses())
            .collect();
        let set = format!("{GROUP}{n}");
        let _ = writeln!(out, "add set ip {TABLE} {set} {{ type ipv4_addr; }}");
        elements(out, "add", &set, &Vec::from_iter(members));
    }
    let combinations: BTreeSet<&BTreeSet<SecurityGroupId>> =
        enis.values().map(|eni| &eni.groups).collect();
    for (direction, n) in [Direction::Out, Direction::In]
        .into_iter()
        .flat_map(|d| (0..combinations.len()).map(move |n| (d, n)))
    {
        let _ = writeln!(out, "add chain ip {TABLE} {}", direction.chain(n));
    }
    for (n, combination) in combinations.iter().enumerate() {
        for direction in [Direction::Out, Direction::In] {
            let chain = direction.chain(n);
            let groups = combination.iter().filter_map(|id| wanted.groups.get(id));
            let rules: BTreeSet<String> = groups
                .flat_map(|group| direction.rules(group))
                .filter(|rule| !matches!(rule.peer, Peer::Cidr6(_)))
                .map(|rule| matching(rule, direction, &sets))
                .collect();
            for rule in rules {
                let _ = writeln!(out, "add rule ip {TABLE} {chain} {rule} return");
            }
            let reason = direction.reason().counter_name();
            let _ = writeln!(out, "add rule ip {TABLE} {chain} counter name {reason} drop");
        }
    }
    for direction in [Direction::Out, Direction::In] {
        let jumps = enis.values().filter_map(|eni| {
            let n = combinations.iter().position(|groups| **groups == eni.groups)?;
            Some(format!("\"{}\" : jump {}", port_name(eni.mac), direction.chain(n)))
        });
        elements(out, "add", direction.map(), &jumps.collect::<Vec<_>>());
    }
}

#[derive(Clone, Copy)]
enum Direction {
    In,
    Out,
}

impl Direction {
    fn chain(self, n: usize) -> String {
        match self {
            Self::In => format!("{INGRESS}{n}"),
            Self::Out => format!("{EGRESS}{n}"),
        }
    }

    fn map(self) -> &'static str {
        match self {
            Self::In => "ingress",
            Self::Out => "egress",
        }
    }

    fn reason(self) -> DropReason {
        match self {
            Self::In => DropReason::GroupIngress,
            Self::Out => DropReason::GroupEgress,
        }
    }

    fn rules(self, group: &crate::GroupSpec) -> &[GroupRule] {
        match self {
            Self::In => &group.ingress,
            Self::Out => &group.egress,
        }
    }

    fn peer_field(self) -> &'static str {
        match self {
            Self::In => "saddr",
            Self::Out => "daddr",
        }
    }
}

fn matching(rule: &GroupRule, direction: Direction, sets: &GroupSets) -> String {
    let field = direction.peer_field();
    let peer = match &rule.peer {
        Peer::Cidr6(_) => None,
        Peer::Cidr(cidr) if cidr.prefix_len() == 0 => None,
        Peer::Cidr(cidr) => Some(format!("ip {field} {}", cidr.trunc())),
        Peer::Group(group) => sets.get(group).map(|n| format!("ip {field} @{GROUP}{n}")),
    };
    let protocol = match rule.protocol {
        Protocol::All => None,
        Protocol::Tcp { from, to } => Some(format!("tcp dport {from}-{to}")),
        Protocol::Udp { from, to } => Some(format!("udp dport {from}-{to}")),
        Protocol::Icmp { kind: None, code: _ } => Some("meta l4proto icmp".to_owned()),
        Protocol::Icmp { kind: Some(kind), code: None } => Some(format!("icmp type {kind}")),
        Protocol::Icmp { kind: Some(kind), code: Some(code) } => {
            Some(format!("icmp type {kind} icmp code {code}"))
        }
        Protocol::Number(number) => Some(format!("meta l4proto {number}")),
    };
    [peer, protocol].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// The number of the set that holds a group's addresses.
type GroupSets<'a> = BTreeMap<&'a SecurityGroupId, usize>;

/// True if a chain or set exists for one rendering only.
fn is_rendered(name: &str) -> bool {
    [EGRESS, INGRESS, GROUP, FINGERPRINT].iter().any(|prefix| name.starts_with(prefix))
}

/// FNV-1a: the fingerprint need only be stable and differ.
fn fnv(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

const EGRESS: &str = "egress_";
const INGRESS: &str = "ingress_";
const GROUP: &str = "group_";
const FINGERPRINT: &str = "rendered_";

/// Sets and maps that each transaction empties and refills.
const REPLACED: &[(&str, &str, &str)] = &[
    ("set", "ports", "type ifname;"),
    ("set", "unchecked", "type ifname;"),
    ("set", "mapped", "type ipv4_addr;"),
    ("set", "at_home", "type ipv4_addr;"),
    ("set", "cidrs", "type ipv4_addr; flags interval;"),
    ("map", "public", "type ipv4_addr : ipv4_addr;"),
    ("map", "private", "type ipv4_addr : ipv4_addr;"),
    ("map", "egress", "type ifname : verdict;"),
    ("map", "ingress", "type ifname : verdict;"),
];

/// The chains and their hooks. The source is checked before anything else looks at a packet.
const CHAINS: &[(&str, &str)] = &[
    ("check_source", "type filter hook prerouting priority raw; policy accept;"),
    ("check_destination", "type filter hook prerouting priority mangle; policy accept;"),
    ("from_internet", "type nat hook prerouting priority dstnat; policy accept;"),
    ("to_internet", "type nat hook postrouting priority srcnat; policy accept;"),
    ("own", "type filter hook input priority filter; policy accept;"),
    ("route", "type filter hook forward priority filter; policy accept;"),
    ("inward", ""),
];
