//! The VPC's router and mapping service: a port per ENI, a route and a neighbor per address.
//!
//! Observe, plan, apply: [`plan`] is a pure function of the desired state and the output of `ip`.

use crate::{
    BALANCER_ADDRESSES, DesiredFabric, EniSpec, FabricError, NicProfile, Vpc, sysctl::write_sysctl,
    tool,
};
use config_model::{EniId, Mac, registry};
use serde::Deserialize;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::Ipv4Addr,
    path::Path,
};

mod v6;

/// The router's port towards the internet gateway.
pub(crate) const INTERNET_PORT: &str = "igw";

/// The first interface index in the VPC namespace.
///
/// The kernel treats a link whose index equals its peer's as a physical link. It can then delay the link's carrier
/// event for a second, in which packets are lost. A node's indexes stay below this number.
pub(crate) const INTERNET_INDEX: u32 = 1_000_000;

/// Where instance metadata answers, at the far end of every ENI.
pub(crate) const IMDS: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// The device group of the ENIs' ports.
const PORT_GROUP: &str = "7";

/// The router's own settings and addresses; runs inside the VPC namespace, before any port exists.
pub(crate) fn set_up(vpc: &Vpc) -> Result<(), FabricError> {
    for (key, value) in SYSCTLS {
        write_sysctl(key, value)?;
    }
    let mut script = String::from("link set lo up\n");
    script.push_str(&v6::set_up(vpc)?);
    for address in own_addresses(vpc) {
        let _ = writeln!(script, "address add {address}/32 dev lo");
    }
    for cidr in &vpc.cidrs {
        // Without it, the route to the internet and proxy ARP would answer for unused addresses.
        let _ = writeln!(script, "route add blackhole {cidr}");
    }
    // A packet that no load balancer forwards.
    let _ = writeln!(script, "route add blackhole {BALANCER_ADDRESSES}");
    tool::ip_batch(&script, "set up the VPC's router")
}

/// Additions for a VPC that has grown. Runs inside the VPC namespace and does not change existing objects.
pub(crate) fn grow(vpc: &Vpc) -> Result<(), FabricError> {
    let mut script = String::new();
    for address in own_addresses(vpc) {
        let _ = writeln!(script, "address replace {address}/32 dev lo");
    }
    for cidr in &vpc.cidrs {
        let _ = writeln!(script, "route replace blackhole {cidr}");
    }
    tool::ip_batch(&script, "let the VPC's router grow")
}

/// The addresses that the router answers itself: gateways, metadata, EC2's endpoint, the API server.
pub(crate) fn own_addresses(vpc: &Vpc) -> BTreeSet<Ipv4Addr> {
    let gateways = vpc.subnets.values().map(super::Subnet::gateway);
    gateways.chain([IMDS, vpc.ec2_endpoint]).chain(vpc.api_server).collect()
}

/// The port of an ENI, named by its MAC: unique within a VPC, and fits a link's name.
pub(crate) fn port_name(mac: Mac) -> String {
    mac.0.iter().fold(String::from("p"), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

/// Alias of a port: its ENI and the place of its other end.
fn port_alias(id: &EniId, eni: &EniSpec) -> String {
    format!("{id} {}", eni.node)
}

/// The links of the VPC namespace, as `ip` showed them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ObservedLinks {
    /// Ports by name, with their alias; empty when the port was not finished.
    pub(crate) ports: BTreeMap<String, String>,
    /// The port of each routed address.
    pub(crate) routes: BTreeMap<Ipv4Addr, String>,
    /// Port and MAC of each permanent neighbor.
    pub(crate) neighbors: BTreeMap<Ipv4Addr, (String, Mac)>,
    /// The mapping of IPv6 addresses and prefixes.
    pub(crate) v6: v6::Mapping,
    /// The highest interface index of a port.
    pub(crate) top_index: u32,
}

#[derive(Deserialize)]
struct LinkJson {
    ifindex: u32,
    ifname: String,
    ifalias: Option<String>,
    #[serde(default)]
    flags: Vec<String>,
}

#[derive(Deserialize)]
struct RouteJson {
    dst: String,
    dev: Option<String>,
}

#[derive(Deserialize)]
struct LinkMac {
    dst: String,
    dev: String,
    lladdr: Option<String>,
}

/// Runs inside the VPC namespace.
pub(crate) fn observe() -> Result<ObservedLinks, FabricError> {
    let links: Vec<LinkJson> =
        tool::ip_json(&["link", "show", "group", PORT_GROUP], "list the ports")?;
    let routes: Vec<RouteJson> =
        tool::ip_json(&["route", "show", "table", "main"], "list the routes")?;
    let neighbors: Vec<LinkMac> =
        tool::ip_json(&["neighbor", "show", "nud", "permanent"], "list the neighbors")?;
    let top_index = links.iter().map(|link| link.ifindex).max().unwrap_or(INTERNET_INDEX);
    let ports = links.into_iter().map(|link| {
        let is_up = link.flags.iter().any(|flag| flag == "UP");
        (link.ifname, link.ifalias.filter(|_| is_up).unwrap_or_default())
    });
    let routes = routes.into_iter().filter_map(|route| {
        Some((route.dst.parse().ok()?, route.dev.filter(|dev| dev != INTERNET_PORT)?))
    });
    let v6 = v6::observe()?;
    let neighbors = neighbors.into_iter().filter_map(|neighbor| {
        let mac = neighbor.lladdr?.parse().ok()?;
        Some((neighbor.dst.parse().ok()?, (neighbor.dev, mac)))
    });
    Ok(ObservedLinks {
        ports: ports.collect(),
        routes: routes.collect(),
        neighbors: neighbors.collect(),
        v6,
        top_index,
    })
}

/// The difference between the desired and the observed state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Ports to delete.
    pub(crate) remove: Vec<String>,
    /// ENIs whose port is to be made.
    pub(crate) attach: Vec<EniId>,
    /// The ENIs of those ports, so far as the ports were finished.
    pub(crate) unplugged: Vec<EniId>,
    /// Routes and neighbors, as lines for `ip -batch`; applied after the ports exist.
    pub(crate) mapping: String,
    /// Number of addresses in `mapping`.
    pub(crate) remapped: usize,
}

/// Plans; `enis` are those of running nodes alone.
pub(crate) fn plan(enis: &BTreeMap<&EniId, &EniSpec>, seen: &ObservedLinks) -> Plan {
    let ports: BTreeMap<String, (&EniId, &EniSpec)> =
        enis.iter().map(|(id, eni)| (port_name(eni.mac), (*id, *eni))).collect();
    let stands = |name: &str, alias: &str| {
        ports.get(name).is_some_and(|(id, eni)| port_alias(id, eni) == alias)
    };
    let mut plan = Plan::default();
    for (name, alias) in &seen.ports {
        if !stands(name, alias) {
            plan.remove.push(name.clone());
            let id = alias.split(' ').next().filter(|id| !id.is_empty());
            plan.unplugged.extend(id.map(EniId::new));
        }
    }
    let kept = |name: &str| seen.ports.get(name).is_some_and(|alias| stands(name, alias));
    for (name, (id, _)) in &ports {
        if !kept(name) {
            plan.attach.push((*id).clone());
        }
    }
    plan_mapping(&ports, seen, &kept, &mut plan);
    v6::plan(&ports, seen, &kept, &mut plan);
    plan
}

fn plan_mapping(
    ports: &BTreeMap<String, (&EniId, &EniSpec)>,
    seen: &ObservedLinks,
    kept: &dyn Fn(&str) -> bool,
    plan: &mut Plan,
) {
    let wanted: BTreeMap<Ipv4Addr, (&String, Mac)> = ports
        .iter()
        .flat_map(|(port, (_, eni))| {
            eni.addresses().into_iter().map(move |address| (address, (port, eni.mac)))
        })
        .collect();
    let mut changed = BTreeSet::new();
    for (address, (port, mac)) in &wanted {
        // The kernel removes the routes and neighbors of a deleted port.
        let is_fresh = !kept(port);
        if is_fresh || seen.routes.get(address) != Some(*port) {
            let _ = writeln!(plan.mapping, "route replace {address}/32 dev {port}");
            changed.insert(*address);
        }
        if is_fresh || seen.neighbors.get(address) != Some(&((*port).clone(), *mac)) {
            let _ = writeln!(
                plan.mapping,
                "neighbor replace {address} lladdr {mac} dev {port} nud permanent"
            );
            changed.insert(*address);
        }
    }
    for (address, port) in seen.routes.iter().filter(|(address, _)| !wanted.contains_key(address)) {
        if kept(port) {
            let _ = writeln!(plan.mapping, "route del {address}/32 dev {port}");
        }
        changed.insert(*address);
    }
    for (address, (port, _)) in &seen.neighbors {
        let moved = wanted.get(address).is_none_or(|(now, _)| *now != port);
        if moved && kept(port) {
            let _ = writeln!(plan.mapping, "neighbor del {address} dev {port}");
            changed.insert(*address);
        }
    }
    plan.remapped = changed.len();
}

/// Deletes ports, and with each the link in its node; runs inside the VPC namespace.
pub(crate) fn remove_ports(names: &[String]) -> Result<(), FabricError> {
    if names.is_empty() {
        return Ok(());
    }
    // By group: the kernel waits once for all of them.
    let mut script = String::new();
    for name in names {
        let _ = writeln!(script, "link set dev {name} group {DOOMED_GROUP}");
    }
    let _ = writeln!(script, "link delete group {DOOMED_GROUP}");
    tool::ip_batch(&script, "delete the ports of detached ENIs")
}

/// Makes the port of an ENI with its other end in the node; runs inside the VPC namespace.
pub(crate) fn add_port(
    id: &EniId,
    eni: &EniSpec,
    index: u32,
    link: &str,
    node_pin: &Path,
    vpc: &Vpc,
) -> Result<(), FabricError> {
    let (port, mac, mtu) = (port_name(eni.mac), eni.mac, registry::ENI_MTU);
    let script = format!(
        "link add {port} index {index} mtu {mtu} group {PORT_GROUP} type veth peer name {link} mtu {mtu} \
         address {mac} netns {}\n\
         link set dev {port} alias \"{}\" up\n",
        node_pin.display(),
        port_alias(id, eni),
    );
    let script = script + &v6::gateway(&port, vpc);
    tool::ip_batch(&script, &format!("attach {id} as {link}"))?;
    // Only the machine's first namespace has a default for it.
    write_sysctl(&format!("net/ipv4/neigh/{port}/proxy_delay"), "0")
}

/// First and final name of a node's link.
pub(crate) fn link_names(eni: &EniSpec, profile: NicProfile) -> (String, String) {
    let ordinal = 16 * eni.card.0 + eni.device.0;
    let eth = format!("eth{ordinal}");
    let ens = format!("ens{}", 5 + ordinal);
    match profile {
        NicProfile::EthN | NicProfile::NetworkManager => (eth.clone(), eth),
        NicProfile::EnsLateRename if eni.is_primary() => (ens.clone(), ens),
        NicProfile::EnsLateRename => (eth, ens),
    }
}

/// Configuration of a new link by the node's system, as lines for `ip -batch` in the node.
pub(crate) fn configuration(eni: &EniSpec, profile: NicProfile, vpc: &Vpc) -> Option<String> {
    let subnet = vpc.subnets.get(&eni.subnet)?;
    let metric = match (profile, eni.is_primary()) {
        (NicProfile::EthN | NicProfile::EnsLateRename, false) => return None,
        (NicProfile::EthN, true) => String::new(),
        (NicProfile::EnsLateRename, true) => " metric 512".to_owned(),
        (NicProfile::NetworkManager, _) => format!(" metric {}", 100 + eni.device.0),
    };
    let (link, _) = link_names(eni, profile);
    let (primary, length) = (eni.primary, subnet.cidr.prefix_len());
    let broadcast = subnet.cidr.broadcast();
    Some(format!(
        "address add {primary}/{length} broadcast {broadcast} dev {link}\n\
         link set {link} up\n\
         route add default via {} dev {link} proto dhcp src {primary}{metric}\n{}",
        subnet.gateway(),
        v6::configuration(eni, &link, &metric),
    ))
}

/// The ENIs that have a port: attached to a node that runs.
pub(crate) fn plugged(
    wanted: &DesiredFabric,
    runs: impl Fn(&str) -> bool,
) -> BTreeMap<&EniId, &EniSpec> {
    wanted.enis.iter().filter(|(_, eni)| runs(&eni.node)).collect()
}

const DOOMED_GROUP: &str = "8";

const SYSCTLS: &[(&str, &str)] = &[
    ("net/ipv4/ip_forward", "1"),
    ("net/ipv4/conf/all/rp_filter", "0"),
    ("net/ipv4/conf/default/rp_filter", "0"),
    ("net/ipv4/conf/all/send_redirects", "0"),
    ("net/ipv4/conf/default/send_redirects", "0"),
    // Answers for every neighbor of a subnet at once: the ENI's segment ends at its port.
    ("net/ipv4/conf/default/proxy_arp", "1"),
    // Every refused packet gets its error, also the hundredth in a second.
    ("net/ipv4/icmp_ratelimit", "0"),
    ("net/ipv6/conf/all/disable_ipv6", "1"),
    ("net/ipv6/conf/default/disable_ipv6", "1"),
];

#[cfg(test)]
mod tests;
