//! The VPC's packet filter for IPv6: source check, security groups, counters by reason.
//!
//! A separate table. Each change renders all of it again, except the named counters. Traffic to the internet keeps
//! its source address, because IPv6 addresses are public.

use super::{Direction, FINGERPRINT, fnv, port_name};
use crate::{
    DesiredFabric, EniSpec, GroupRule, Peer, Protocol, Vpc,
    counters::{DropReason, RulesetV6},
    table::{SOURCES, SPOOFED, TABLE_V6},
};
use config_model::{EniId, SecurityGroupId};
use ipnet::Ipv6Net;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::{Display, Write as _},
};

/// The transaction that makes the ruleset what is wanted; `None` when it is, or when the VPC has no
/// IPv6.
pub(crate) fn transaction(
    wanted: &DesiredFabric,
    enis: &BTreeMap<&EniId, &EniSpec>,
    vpc: &Vpc,
    seen: &RulesetV6,
) -> Option<String> {
    if vpc.cidrs_v6.is_empty() {
        return None;
    }
    let body = body(wanted, enis, vpc);
    let fingerprint = format!("{FINGERPRINT}{:016x}", fnv(&body));
    if seen.chains.contains(&fingerprint) {
        return None;
    }
    let mut out = format!("add table ip6 {TABLE_V6}\n");
    for reason in DropReason::ALL {
        let _ = writeln!(out, "add counter ip6 {TABLE_V6} {}", reason.counter_name());
    }
    // Emptied first: what is still referred to cannot be deleted.
    for chain in &seen.chains {
        let _ = writeln!(out, "flush chain ip6 {TABLE_V6} {chain}");
    }
    for map in seen.sets.iter().filter_map(|(name, kind)| (*kind == "map").then_some(name)) {
        let _ = writeln!(out, "flush map ip6 {TABLE_V6} {map}");
    }
    for chain in &seen.chains {
        let _ = writeln!(out, "delete chain ip6 {TABLE_V6} {chain}");
    }
    for (set, kind) in &seen.sets {
        let _ = writeln!(out, "delete {kind} ip6 {TABLE_V6} {set}");
    }
    out.push_str(&body);
    let _ = writeln!(out, "add chain ip6 {TABLE_V6} {fingerprint}");
    Some(out)
}

fn body(wanted: &DesiredFabric, enis: &BTreeMap<&EniId, &EniSpec>, vpc: &Vpc) -> String {
    let mut out = String::new();
    for (kind, name, spec) in SETS {
        let _ = writeln!(out, "add {kind} ip6 {TABLE_V6} {name} {{ {spec} }}");
    }
    for (name, hook) in CHAINS {
        let _ = writeln!(out, "add chain ip6 {TABLE_V6} {name} {{ {hook} }}");
    }
    for (chain, rule) in static_rules() {
        let _ = writeln!(out, "add rule ip6 {TABLE_V6} {chain} {rule}");
    }
    let ports = |keep: &dyn Fn(&EniSpec) -> bool| -> Vec<String> {
        let kept = enis.values().filter(|eni| keep(eni));
        kept.map(|eni| format!("\"{}\"", port_name(eni.mac))).collect()
    };
    elements(&mut out, "ports", &ports(&|_| true));
    elements(&mut out, "unchecked", &ports(&|eni| !eni.source_dest_check));
    elements(&mut out, "cidrs", &vpc.cidrs_v6);
    let blocks =
        || enis.values().flat_map(|eni| eni.blocks_v6().into_iter().map(move |b| (eni, b)));
    let sources: Vec<String> =
        blocks().map(|(eni, block)| format!("\"{}\" . {block}", port_name(eni.mac))).collect();
    elements(&mut out, SOURCES, &sources);
    elements(&mut out, "mapped", &blocks().map(|(_, block)| block).collect::<Vec<_>>());
    groups(&mut out, wanted, enis);
    out
}

fn elements(out: &mut String, set: &str, elements: &[impl Display]) {
    if !elements.is_empty() {
        let list: Vec<String> = elements.iter().map(ToString::to_string).collect();
        let _ = writeln!(out, "add element ip6 {TABLE_V6} {set} {{ {} }}", list.join(", "));
    }
}

fn static_rules() -> Vec<(&'static str, String)> {
    let drop = |reason: DropReason| format!("counter name {} drop", reason.counter_name());
    vec![
        ("check_source", format!("iifname . ip6 saddr @{SOURCES} accept")),
        // Neighbors are found by link-local addresses, which no router forwards.
        ("check_source", "ip6 saddr { ::, fe80::/10 } accept".into()),
        ("check_source", "iifname @unchecked accept".into()),
        (
            "check_source",
            format!(
                "iifname @ports update @{SPOOFED} {{ iifname . ip6 saddr }} {}",
                drop(DropReason::SourceCheck)
            ),
        ),
        (
            "check_destination",
            format!("ip6 daddr @cidrs ip6 daddr != @mapped {}", drop(DropReason::NoSuchAddress)),
        ),
        ("route", "ct state established,related accept".into()),
        ("route", "iifname vmap @egress".into()),
        ("route", "oifname vmap @ingress".into()),
    ]
}

/// A chain per distinct set of groups and direction, as for IPv4.
fn groups(out: &mut String, wanted: &DesiredFabric, enis: &BTreeMap<&EniId, &EniSpec>) {
    let mut sets: BTreeMap<&SecurityGroupId, usize> = BTreeMap::new();
    for (group, n) in wanted.groups.keys().zip(0..) {
        let members: BTreeSet<Ipv6Net> = enis
            .values()
            .filter(|eni| eni.groups.contains(group))
            .flat_map(|eni| eni.blocks_v6())
            .collect();
        let _ =
            writeln!(out, "add set ip6 {TABLE_V6} group_{n} {{ type ipv6_addr; flags interval; }}");
        elements(out, &format!("group_{n}"), &Vec::from_iter(members));
        sets.insert(group, n);
    }
    let combinations: BTreeSet<&BTreeSet<SecurityGroupId>> =
        enis.values().map(|eni| &eni.groups).collect();
    for direction in [Direction::Out, Direction::In] {
        for (n, combination) in combinations.iter().enumerate() {
            let chain = direction.chain(n);
            let _ = writeln!(out, "add chain ip6 {TABLE_V6} {chain}");
            let groups = combination.iter().filter_map(|id| wanted.groups.get(id));
            let rules: BTreeSet<String> = groups
                .flat_map(|group| direction.rules(group))
                .filter_map(|rule| matching(rule, direction, &sets))
                .collect();
            for rule in rules {
                let _ = writeln!(out, "add rule ip6 {TABLE_V6} {chain} {rule} return");
            }
            let reason = direction.reason().counter_name();
            let _ = writeln!(out, "add rule ip6 {TABLE_V6} {chain} counter name {reason} drop");
        }
        let jumps = enis.values().filter_map(|eni| {
            let n = combinations.iter().position(|groups| **groups == eni.groups)?;
            Some(format!("\"{}\" : jump {}", port_name(eni.mac), direction.chain(n)))
        });
        elements(out, direction.map(), &jumps.collect::<Vec<_>>());
    }
}

/// `None` for a rule of IPv4 alone.
fn matching(
    rule: &GroupRule,
    direction: Direction,
    sets: &BTreeMap<&SecurityGroupId, usize>,
) -> Option<String> {
    let field = direction.peer_field();
    let peer = match &rule.peer {
        Peer::Cidr(_) => return None,
        Peer::Cidr6(cidr) if cidr.prefix_len() == 0 => None,
        Peer::Cidr6(cidr) => Some(format!("ip6 {field} {}", cidr.trunc())),
        Peer::Group(group) => Some(format!("ip6 {field} @group_{}", sets.get(group)?)),
    };
    let protocol = match rule.protocol {
        Protocol::All => None,
        Protocol::Tcp { from, to } => Some(format!("tcp dport {from}-{to}")),
        Protocol::Udp { from, to } => Some(format!("udp dport {from}-{to}")),
        Protocol::Icmp { .. } => return None,
        Protocol::Number(number) => Some(format!("meta l4proto {number}")),
    };
    Some([peer, protocol].into_iter().flatten().collect::<Vec<_>>().join(" "))
}

const SETS: &[(&str, &str, &str)] = &[
    ("set", SOURCES, "type ifname . ipv6_addr; flags interval; counter;"),
    ("set", SPOOFED, "type ifname . ipv6_addr; flags dynamic; size 65535; counter;"),
    ("set", "ports", "type ifname;"),
    ("set", "unchecked", "type ifname;"),
    ("set", "cidrs", "type ipv6_addr; flags interval;"),
    ("set", "mapped", "type ipv6_addr; flags interval;"),
    ("map", "egress", "type ifname : verdict;"),
    ("map", "ingress", "type ifname : verdict;"),
];

const CHAINS: &[(&str, &str)] = &[
    ("check_source", "type filter hook prerouting priority raw; policy accept;"),
    ("check_destination", "type filter hook prerouting priority mangle; policy accept;"),
    ("route", "type filter hook forward priority filter; policy accept;"),
];
