//! CHECK: differences between a pod and the result of its ADD.

use super::{HostEnd, PodNet};
use crate::{
    Family, IfIndex, Link, LinkAddr, LinkKind, Neighbor, Observed, Route, Rule, Selector,
    egress::{self, Egress},
    kernel::{Short, pod_of},
};
use config_model::{Mark, RuleLayout, registry};
use ipnet::IpNet;
use std::{fmt, net::IpAddr};

/// A difference: the object, the expected value and the observed one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mismatch(String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Compares the pod's namespace and the host's with the result of ADD. The pod's is observed with neighbors, and the
/// host's too if the pod is bridged.
pub fn check(net: &PodNet, pod: &Observed, host: &Observed) -> Vec<Mismatch> {
    let mut found = Findings(Vec::new());
    let host_end = host_end(net, host, &mut found);
    carrier(net, host, &mut found);
    pod_end(net, pod, host_end, &mut found);
    other_family(net, pod, host, host_end, &mut found);
    found.0
}

struct Findings(Vec<Mismatch>);

impl Findings {
    fn add(&mut self, text: String) {
        self.0.push(Mismatch(text));
    }

    fn link(&mut self, link: &Link, place: &str, net: &PodNet) {
        if !link.up {
            self.add(format!("link {} {place} is down, not up", link.name));
        }
        if link.mtu != net.mtu {
            let (name, mtu) = (&link.name, link.mtu);
            self.add(format!("link {name} {place} has MTU {mtu}, not {}", net.mtu));
        }
    }

    /// The kernel uses the first route of a key.
    fn route(&mut self, wanted: &Route, link: &str, place: &str, observed: &Observed) {
        let key = |route: &&Route| {
            (route.table, route.dst, route.metric) == (wanted.table, wanted.dst, wanted.metric)
        };
        match observed.routes.iter().find(key) {
            None => self.add(format!("no route {} {place}", Named(wanted, link))),
            Some(there) if there.leads_as(wanted) => {}
            Some(there) => {
                let name = there.dev.and_then(|dev| observed.links.get(&dev));
                let there = Named(there, name.map_or("nothing", |link| link.name.as_str()));
                self.add(format!("route {there} {place} should be {}", Named(wanted, link)));
            }
        }
    }

    fn neighbor(&mut self, desired: &Neighbor, link: &str, place: &str, observed: &Observed) {
        let same = |n: &&Neighbor| (n.dev, n.address) == (desired.dev, desired.address);
        let (address, mac) = (desired.address, mac_text(desired));
        match observed.neighbors.iter().find(same) {
            None => self.add(format!("no neighbor {address} at {mac} on {link} {place}")),
            Some(there) if there == desired => {}
            Some(there) => {
                let at = mac_text(there);
                let kind = if there.permanent { "permanent" } else { "not permanent" };
                self.add(format!(
                    "neighbor {address} {place} is at {at}, {kind}; it should be at {mac}, permanent"
                ));
            }
        }
    }
}

fn mac_text(neighbor: &Neighbor) -> String {
    neighbor.mac.map_or_else(|| "nowhere".to_owned(), |mac| mac.to_string())
}

fn host_end<'a>(net: &PodNet, host: &'a Observed, found: &mut Findings) -> Option<&'a Link> {
    const PLACE: &str = "on the host";
    let link = host.link_of(&net.key);
    match (link, host.link_named(net.veth.as_str())) {
        (Some(link), _) => {
            found.link(link, PLACE, net);
            let route = net.host_route(link.index);
            let leads = match &net.host_end {
                HostEnd::Routed => &link.name,
                HostEnd::Bridged(port) => &port.name,
            };
            found.route(&route, leads, PLACE, host);
            if let Some(neighbor) = net.host_neighbor() {
                found.neighbor(&neighbor, leads, PLACE, host);
            }
            if link.group == registry::GROUP_REAP {
                found.add(format!("link {} on the host was given up by a DEL", link.name));
            }
            if let Some(wanted) = net.host_address(link.index)
                && !host
                    .addresses
                    .iter()
                    .any(|a| (a.dev, a.address) == (wanted.dev, wanted.address))
            {
                found.add(format!(
                    "no address {} on link {} on the host",
                    wanted.address, link.name
                ));
            }
        }
        (None, Some(other)) => {
            let alias = other.alias.as_deref().unwrap_or("");
            let (name, wanted) = (net.veth.as_str(), net.key.alias());
            found.add(format!("link {name} on the host has alias {alias:?}, not {wanted:?}"));
        }
        (None, None) => found.add(format!("no link {} on the host", net.veth)),
    }
    rules(net, host, found);
    link
}

/// Checks the VLAN link of the pod's branch ENI and its routes.
fn carrier(net: &PodNet, host: &Observed, found: &mut Findings) {
    const PLACE: &str = "on the host";
    let Some(branch) = &net.branch else { return };
    let name = branch.link_name();
    let of_key = |link: &&Link| {
        link.kind == LinkKind::Vlan(branch.vlan) && link.key().as_ref() == Some(&net.key)
    };
    let Some(link) = host.links.values().find(of_key) else {
        return found.add(format!("no link {name} of VLAN {} {PLACE}", branch.vlan));
    };
    if !link.up {
        found.add(format!("link {name} {PLACE} is down, not up"));
    }
    if link.mac != Some(branch.mac) {
        found.add(format!("link {name} {PLACE} has not the branch's MAC {}", branch.mac));
    }
    for route in branch.routes(link.index) {
        found.route(&route, &link.name, PLACE, host);
    }
}

/// Checks that each rule of the pod exists once and that no other rule of it leads elsewhere. Of two rules with one
/// priority the kernel uses the older. Rules of older amazon-vpc-cni versions for one CIDR lead to the same table.
fn rules(net: &PodNet, host: &Observed, found: &mut Findings) {
    let wanted = net.rules();
    for rule in &wanted {
        match host.rules.iter().filter(|other| other.is_twin_of(rule)).count() {
            0 if is_covered(net, rule, host) => {}
            0 => found.add(format!("no rule {rule}")),
            1 => {}
            twins => found.add(format!("{twins} rules {rule}, not one")),
        }
    }
    let leads_elsewhere = |rule: &&Rule| {
        let same_table = wanted.iter().any(|own| (own.pref, own.table) == (rule.pref, rule.table));
        pod_of(rule) == Some(net.address) && !same_table
    };
    for rule in host.rules.iter().filter(leads_elsewhere) {
        found.add(format!("rule {rule} should not be there"));
    }
}

/// True if a shared rule has the same effect as the pod's own one. The marks of netfilter are not observed here: the
/// daemon removes the own rule only after it has seen them.
fn is_covered(net: &PodNet, own: &Rule, host: &Observed) -> bool {
    let does = |rule: &Rule| {
        let Selector { src, dst, mark, iif, protocol, other } = &rule.selector;
        let takes = match (src, mark) {
            (Some(block), None) => block.contains(&net.address),
            (None, Some(_)) => *mark == Mark::of_table(net.table),
            (None, None) | (Some(_), Some(_)) => false,
        };
        (rule.family, rule.pref, rule.table) == (own.family, registry::PREF_FROM_POD, own.table)
            && dst.is_none()
            && iif.is_none()
            && protocol.is_none()
            && !other
            && takes
    };
    net.layout == RuleLayout::Compact
        && own.pref == registry::PREF_FROM_POD
        && host.rules.iter().any(does)
}

fn pod_end(net: &PodNet, pod: &Observed, host_end: Option<&Link>, found: &mut Findings) {
    const PLACE: &str = "in the pod";
    let ifname = &net.key.ifname;
    let Some(link) = pod.link_named(ifname) else {
        return found.add(format!("no link {ifname} in the pod"));
    };
    found.link(link, PLACE, net);
    if let Some(host_end) = host_end
        && link.peer.map(|peer| peer.index) != Some(host_end.index)
    {
        found.add(format!("link {ifname} in the pod is not the other end of {}", host_end.name));
    }
    addresses(net, pod, link.index, found);
    found.route(&net.gateway_route(link.index), ifname, PLACE, pod);
    found.route(&net.default_route(link.index), ifname, PLACE, pod);
    if let Some(rule) = net.rule_in_pod()
        && !pod.rules.iter().any(|other| other.is_twin_of(&rule))
    {
        found.add(format!("no rule {rule} {PLACE}"));
    }
    let Some(mac) = host_end.and_then(|link| link.mac) else { return };
    found.neighbor(&net.gateway_neighbor(link.index, mac), ifname, PLACE, pod);
}

/// Checks the pod's second address if any part of it exists. The setting at the time of the ADD decided whether it
/// was built.
fn other_family(
    net: &PodNet,
    pod: &Observed,
    host: &Observed,
    host_end: Option<&Link>,
    found: &mut Findings,
) {
    let (Some(host_end), Some(link)) = (host_end, pod.link_named(&net.key.ifname)) else { return };
    if net.number > 0 || net.branch.is_some() {
        return;
    }
    let other = Family::of(net.address).other();
    let second = |address: &IpAddr| Family::of(*address) == other && egress::is_within(*address);
    let of_pod = pod.addresses.iter().filter(|there| there.dev == link.index);
    let of_pod = of_pod.map(|there| there.address.addr()).find(second);
    let lease = egress::lease(host_end.index, &host.addresses).filter(|_| net.address.is_ipv6());
    let gateway = egress::gateway(other);
    let neighbor = pod
        .neighbors
        .iter()
        .find(|there| (there.dev, there.address) == (link.index, gateway) && there.permanent);
    let routed = pod.routes.iter().any(|there| there.gateway == Some(gateway));
    if lease.is_none() && of_pod.is_none() && neighbor.is_none() && !routed {
        return;
    }
    let ifname = &net.key.ifname;
    let address = match (net.address, lease.map(IpAddr::V4).or(of_pod)) {
        (IpAddr::V4(own), _) => egress::v6_of(own).into(),
        (IpAddr::V6(_), Some(address)) => address,
        (IpAddr::V6(_), None) => {
            let range = egress::range(other);
            return found.add(format!(
                "no address of {range} on {ifname} in the pod, and no lease of one on {} on the host",
                host_end.name
            ));
        }
    };
    let egress = Egress { address };
    let wanted = egress.host_address(host_end.index);
    let is_there = |there: &LinkAddr| {
        (there.dev, there.address, there.peer) == (wanted.dev, wanted.address, wanted.peer)
    };
    if !host.addresses.iter().any(is_there) {
        let peer = wanted.peer.map(|peer| format!(" peer {peer}")).unwrap_or_default();
        let name = &host_end.name;
        found.add(format!("no address {}{peer} on link {name} on the host", wanted.address));
    }
    found.route(&egress.host_route(host_end.index), &host_end.name, "on the host", host);
    if of_pod != Some(address) {
        found.add(format!("no address {address} on {ifname} in the pod"));
    }
    for route in &egress.pod_routes(link.index) {
        found.route(route, ifname, "in the pod", pod);
    }
    if let Some(mac) = host_end.mac
        && neighbor != Some(&egress.gateway_neighbor(link.index, mac))
    {
        found.add(format!("no permanent neighbor {gateway} at {mac} on {ifname} in the pod"));
    }
}

fn addresses(net: &PodNet, pod: &Observed, dev: IfIndex, found: &mut Findings) {
    let wanted = net.pod_address(dev).address;
    let there: Vec<IpNet> =
        pod.addresses.iter().filter(|a| a.dev == dev).map(|a| a.address).collect();
    if !there.contains(&wanted) {
        let there: Vec<String> = there.iter().map(ToString::to_string).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        found.add(format!("no address {wanted} on {} in the pod: {there}", net.key.ifname));
    }
}

/// A route with the name of its link.
struct Named<'a>(&'a Route, &'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(route, link) = self;
        if route.dst.prefix_len() == 0 {
            f.write_str("default")?;
        } else {
            write!(f, "{}", Short(route.dst))?;
        }
        if let Some(gateway) = route.gateway {
            write!(f, " via {gateway}")?;
        }
        write!(f, " dev {link}")
    }
}
