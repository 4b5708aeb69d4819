//! The router's IPv6: one gateway address on every port, a route per address and prefix.
//!
//! A prefix of 2^48 addresses cannot have a neighbor for each. So every route uses one artificial next hop per
//! port, which permanently has the ENI's Ethernet address.

use super::{LinkMac, ObservedLinks, Plan};
use crate::{BALANCER_ADDRESSES_V6, EniSpec, FabricError, Vpc, sysctl::write_sysctl, tool};
use config_model::{EniId, Mac, registry};
use ipnet::Ipv6Net;
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::Ipv6Addr,
};

/// By which a port's routes go.
const NEXT_HOP: Ipv6Addr = Ipv6Addr::new(0xfe80, 0x0ec2, 0, 0, 0, 0, 0, 2);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mapping {
    /// The port of each block.
    pub(crate) routes: BTreeMap<Ipv6Net, String>,
    /// The MAC behind each port.
    pub(crate) next_hops: BTreeMap<String, Mac>,
}

/// The router's IPv6 settings, and lines for `ip -batch`; nothing where the VPC has no IPv6.
pub(super) fn set_up(vpc: &Vpc) -> Result<String, FabricError> {
    let mut script = String::new();
    if vpc.cidrs_v6.is_empty() {
        return Ok(script);
    }
    for (key, value) in SYSCTLS {
        write_sysctl(key, value)?;
    }
    for cidr in &vpc.cidrs_v6 {
        let _ = writeln!(script, "route add blackhole {cidr}");
    }
    // A packet that no load balancer forwards.
    let _ = writeln!(script, "route add blackhole {BALANCER_ADDRESSES_V6}");
    Ok(script)
}

/// The gateway's address on a port, as a line for `ip -batch`.
pub(super) fn gateway(port: &str, vpc: &Vpc) -> String {
    if vpc.cidrs_v6.is_empty() {
        return String::new();
    }
    format!("address add {}/64 dev {port} nodad\n", registry::VPC_GATEWAY_V6)
}

/// IPv6 configuration of a link by a node's system, as lines for `ip -batch`: its address and the routes that the
/// VPC's router announces.
pub(super) fn configuration(eni: &EniSpec, link: &str, metric: &str) -> String {
    let Some(address) = eni.ipv6.first() else { return String::new() };
    format!(
        "address add {address}/128 dev {link} nodad\n\
         route add default via {} dev {link} proto ra{metric}\n",
        registry::VPC_GATEWAY_V6
    )
}

#[derive(Deserialize)]
struct RouteJson {
    dst: String,
    dev: Option<String>,
    gateway: Option<String>,
}

/// Runs inside the VPC namespace.
pub(super) fn observe() -> Result<Mapping, FabricError> {
    let routes: Vec<RouteJson> =
        tool::ip_json(&["-6", "route", "show", "table", "main"], "list the IPv6 routes")?;
    let neighbors: Vec<LinkMac> =
        tool::ip_json(&["-6", "neighbor", "show", "nud", "permanent"], "list the IPv6 neighbors")?;
    let next_hop = NEXT_HOP.to_string();
    let routes = routes.into_iter().filter(|route| route.gateway.as_ref() == Some(&next_hop));
    let routes = routes.filter_map(|route| Some((block(&route.dst)?, route.dev?)));
    let neighbors = neighbors.into_iter().filter(|neighbor| neighbor.dst == next_hop);
    let next_hops = neighbors.filter_map(|n| Some((n.dev, n.lladdr?.parse().ok()?)));
    Ok(Mapping { routes: routes.collect(), next_hops: next_hops.collect() })
}

fn block(text: &str) -> Option<Ipv6Net> {
    text.parse().ok().or_else(|| text.parse::<Ipv6Addr>().ok().map(Ipv6Net::from))
}

/// Adds what of IPv6 is to be mapped.
pub(super) fn plan(
    ports: &BTreeMap<String, (&EniId, &EniSpec)>,
    seen: &ObservedLinks,
    kept: &dyn Fn(&str) -> bool,
    plan: &mut Plan,
) {
    let mut changed = BTreeSet::new();
    let mut wanted = BTreeSet::new();
    for (port, (_, eni)) in ports {
        let blocks = eni.blocks_v6();
        if blocks.is_empty() {
            continue;
        }
        let is_fresh = !kept(port);
        if is_fresh || seen.v6.next_hops.get(port) != Some(&eni.mac) {
            let mac = eni.mac;
            let _ = writeln!(
                plan.mapping,
                "neighbor replace {NEXT_HOP} lladdr {mac} dev {port} nud permanent"
            );
        }
        for block in blocks {
            if is_fresh || seen.v6.routes.get(&block) != Some(port) {
                let _ = writeln!(plan.mapping, "route replace {block} via {NEXT_HOP} dev {port}");
                changed.insert(block);
            }
            wanted.insert(block);
        }
    }
    for (block, port) in seen.v6.routes.iter().filter(|(block, _)| !wanted.contains(*block)) {
        if kept(port) {
            let _ = writeln!(plan.mapping, "route del {block} via {NEXT_HOP} dev {port}");
        }
        changed.insert(*block);
    }
    plan.remapped += changed.len();
}

const SYSCTLS: &[(&str, &str)] = &[
    ("net/ipv6/conf/all/disable_ipv6", "0"),
    ("net/ipv6/conf/default/disable_ipv6", "0"),
    ("net/ipv6/conf/default/accept_dad", "0"),
    ("net/ipv6/conf/default/accept_ra", "0"),
    ("net/ipv6/conf/all/forwarding", "1"),
    ("net/ipv6/icmp/ratelimit", "0"),
];
