//! Rules, routes and neighbor entries that belong to no pod or ENI.
//!
//! Only objects that are provably ours are removed. They have our protocol number, or the form of a pod's rule or
//! host route and an address of our ENIs. Objects with an address of a pod, or of an ADD or DEL in progress, are
//! never touched.

use super::{Plan, eni};
use crate::{
    Action, IfIndex, Link, LinkKind, NodeDesired, Observed, PodDesired, Route, Rule, Subject,
    egress, kernel::pod_of,
};
use config_model::{HostEndMode, PodKey, registry};
use ipnet::IpNet;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
};

pub(super) fn plan(plan: &mut Plan, desired: &NodeDesired, observed: &Observed) {
    let pods = desired.pods.iter().map(|pod| pod.address);
    let branches = desired.branches.iter().map(|pod| pod.address);
    let held = pods.chain(branches).chain(desired.spared.iter().copied());
    let egress = desired.pods.iter().filter(|_| desired.egress);
    let held = held.chain(egress.filter_map(PodDesired::egress_v6));
    let held: BTreeSet<IpAddr> = held.collect();
    let leases = Leases::of(desired, observed);
    let links = branch_links(desired, observed);
    let managed = Blocks::of(&desired.managed);
    for rule in &observed.rules {
        let marked_ours = rule.protocol == registry::ROUTE_PROTOCOL;
        match pod_of(rule) {
            Some(address) if held.contains(&address) => {}
            Some(address) if marked_ours || managed.contain(address) => {
                plan.push(Subject::Address(address), Action::DeleteRule(rule.clone()));
            }
            Some(_) => {}
            None if marked_ours
                && (is_of_former_eni(rule, desired) || is_of_former_branch(rule, &links)) =>
            {
                plan.push(Subject::Leftover(rule.clone()), Action::DeleteRule(rule.clone()));
            }
            None => {}
        }
    }
    for route in &observed.routes {
        let Some(address) = route.host_address() else { continue };
        if leases.hold(route, address) {
            continue;
        }
        if !held.contains(&address) && is_ours(route, address, &managed, desired, observed) {
            plan.push(Subject::Address(address), Action::DeleteRoute(route.clone()));
        }
    }
    neighbors(plan, &held, &managed, desired, observed);
}

/// Removes permanent entries on gateway ports for addresses of our ENIs that no bridged pod has.
fn neighbors(
    plan: &mut Plan,
    held: &BTreeSet<IpAddr>,
    managed: &Blocks<'_>,
    desired: &NodeDesired,
    observed: &Observed,
) {
    let default = HostEndMode::bridged(&desired.veth_prefix);
    let modes = desired.pods.iter().map(|pod| &pod.host_end).chain([&default]);
    let names: BTreeSet<&str> = modes.filter_map(HostEndMode::gateway_port).collect();
    let ports = names.into_iter().filter_map(|name| observed.link_named(name));
    let ports: BTreeSet<IfIndex> = ports.map(|link| link.index).collect();
    let is_routed = |pod: &&PodDesired| pod.confirmed && pod.host_end == HostEndMode::Routed;
    let routed: BTreeSet<IpAddr> =
        desired.pods.iter().filter(is_routed).map(|pod| pod.address).collect();
    let is_orphan = |address: &IpAddr| !held.contains(address) || routed.contains(address);
    for neighbor in observed.neighbors.iter().filter(|n| n.permanent && ports.contains(&n.dev)) {
        if is_orphan(&neighbor.address) && managed.contain(neighbor.address) {
            let action = Action::DeleteNeighbor(*neighbor);
            plan.push(Subject::Address(neighbor.address), action);
        }
    }
}

/// The names of all links of pods with branches, which rules may match.
fn branch_links(desired: &NodeDesired, observed: &Observed) -> BTreeSet<String> {
    let known: BTreeSet<_> = desired.branches.iter().map(|pod| &pod.key).collect();
    let named = desired
        .branches
        .iter()
        .flat_map(|pod| [pod.strict_veth.as_str().to_owned(), pod.branch.link_name()]);
    let of_key = |link: &&Link| link.key().is_some_and(|key| known.contains(&key));
    named.chain(observed.links.values().filter(of_key).map(|link| link.name.clone())).collect()
}

fn is_of_former_branch(rule: &Rule, links: &BTreeSet<String>) -> bool {
    rule.branch_link().is_some_and(|name| !links.contains(name))
}

fn is_of_former_eni(rule: &Rule, desired: &NodeDesired) -> bool {
    let mut current = desired.enis.iter().filter_map(eni::rule_of);
    rule.pref == registry::PREF_FROM_ENI && !current.any(|own| own.selector == rule.selector)
}

fn is_ours(
    route: &Route,
    address: IpAddr,
    managed: &Blocks<'_>,
    desired: &NodeDesired,
    observed: &Observed,
) -> bool {
    let pod_veth = |link: &Link| {
        link.kind == LinkKind::Veth
            && (link.key().is_some() || link.name.starts_with(&desired.veth_prefix))
    };
    let by_pod_veth = || {
        let link = route.dev.and_then(|dev| observed.links.get(&dev));
        managed.contain(address) && link.is_some_and(pod_veth)
    };
    observed.is_host_route(route) && (route.protocol == registry::ROUTE_PROTOCOL || by_pod_veth())
}

/// The second IPv4 addresses of IPv6 pods, by host end.
struct Leases {
    /// Of confirmed pods.
    of_pods: BTreeMap<IfIndex, Option<Ipv4Addr>>,
    /// Host ends of ADDs in progress, which may be taking a lease now.
    in_flight: BTreeSet<IfIndex>,
}

impl Leases {
    fn of(desired: &NodeDesired, observed: &Observed) -> Self {
        let confirmed: BTreeMap<&PodKey, bool> =
            desired.pods.iter().map(|pod| (&pod.key, pod.confirmed)).collect();
        let (mut of_pods, mut in_flight) = (BTreeMap::new(), BTreeSet::new());
        for link in observed.links.values() {
            match link.key().and_then(|key| confirmed.get(&key)) {
                Some(true) => {
                    of_pods.insert(link.index, egress::lease(link.index, &observed.addresses));
                }
                Some(false) => {
                    in_flight.insert(link.index);
                }
                None => {}
            }
        }
        Self { of_pods, in_flight }
    }

    fn hold(&self, route: &Route, address: IpAddr) -> bool {
        let Some(dev) = route.dev.filter(|_| egress::is_host_route(route)) else { return false };
        let leased = self.of_pods.get(&dev).copied().flatten();
        address.is_ipv4()
            && (self.in_flight.contains(&dev) || leased.map(IpAddr::V4) == Some(address))
    }
}

/// Blocks with the set of their prefix lengths, so that a lookup does not scan all blocks.
struct Blocks<'a> {
    nets: &'a BTreeSet<IpNet>,
    lengths: BTreeSet<u8>,
}

impl<'a> Blocks<'a> {
    fn of(nets: &'a BTreeSet<IpNet>) -> Self {
        Self { nets, lengths: nets.iter().map(IpNet::prefix_len).collect() }
    }

    fn contain(&self, address: IpAddr) -> bool {
        self.lengths.iter().any(|length| {
            IpNet::new(address, *length).is_ok_and(|net| self.nets.contains(&net.trunc()))
        })
    }
}
