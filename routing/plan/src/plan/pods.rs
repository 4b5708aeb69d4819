//! A confirmed pod: the host's route to it, its neighbor entry if it is bridged, and its rules.
//!
//! The host veth of a bridged pod belongs to the bridge's owner: no operation adds it to a bridge or removes it.

use super::{
    Note, Plan, ensure,
    links::{disable_accept_ra, ensure_address, host_end, keep_up, route_link, set_ipv6},
    place, remove_rules, shared,
};
use crate::{
    Action, Family, Ipv6Conf, Link, NodeDesired, Observed, PodDesired, Route, Rule, Subject,
    egress::{self, Egress},
    kernel::pod_of,
    pod::{self, GatewayPort},
    rules::{from_rule, to_rule},
};
use config_model::{HostEndMode, RuleLayout, TableId, registry};
use std::{collections::BTreeMap, net::IpAddr};

pub(super) fn plan(plan: &mut Plan, pod: &PodDesired, desired: &NodeDesired, observed: &Observed) {
    let Some(link) = host_end(pod, observed) else {
        plan.notes.push(Note::VethMissing {
            key: pod.key.clone(),
            veth: pod.veth.as_str().to_owned(),
            address: pod.address,
        });
        return;
    };
    let subject = Subject::Address(pod.address);
    keep_up(plan, &subject, link, Family::of(pod.address));
    let leads = route_link(pod, observed);
    match &pod.host_end {
        HostEndMode::Routed => {
            let gateway = pod::gateway(Family::of(pod.address), pod.key.number());
            if let Some(wanted) = pod::host_address(gateway, link.index) {
                ensure_address(plan, &subject, wanted, observed);
            }
        }
        HostEndMode::Bridged { .. } => ensure_neighbor(plan, pod, link, leads, observed),
    }
    if let Some(leads) = leads {
        place(plan, &subject, host_route(desired.layout, pod, leads), observed);
    }
    let own = own_rules(pod, desired, observed);
    for rule in &own {
        ensure(plan, &subject, rule.clone(), observed);
    }
    // A rule to another table, or of the other layout. A rule for a part of the pod's traffic is not ours.
    let keeps = |rule: &Rule| {
        own.iter().any(|own| own.is_twin_of(rule)) || must_stay(desired, rule, observed)
    };
    remove_rules(plan, &subject, observed, |other| {
        let whole = other.selector.src.is_none() || other.selector.dst.is_none();
        whole && pod_of(other) == Some(pod.address) && !keeps(other)
    });
    if let Some(leads) = leads {
        remove_other_routes(plan, pod, leads, desired, observed);
    }
    if pod.host_end == HostEndMode::Routed {
        lead_other_family(plan, pod, link, desired, observed);
    }
    disable_accept_ra(plan, link);
}

/// Prepares each gateway port of confirmed pods. Its owner creates it and sets it up; without it the pods' routes wait.
pub(super) fn gateway_ports(plan: &mut Plan, desired: &NodeDesired, observed: &Observed) {
    let mut ports: BTreeMap<&str, usize> = BTreeMap::new();
    for pod in desired.pods.iter().filter(|pod| pod.confirmed) {
        if let Some(port) = pod.host_end.gateway_port() {
            *ports.entry(port).or_default() += 1;
        }
    }
    for (port, pods) in ports {
        let usable = |link: &&Link| GatewayPort::of(link).is_some();
        let Some(link) = observed.link_named(port).filter(usable) else {
            plan.notes.push(Note::GatewayPortMissing { port: port.to_owned(), pods });
            continue;
        };
        if desired.family == Family::V6 {
            set_ipv6(plan, &Subject::Link(link.index), link, Ipv6Conf::DisableIpv6, 0);
        }
        disable_accept_ra(plan, link);
    }
}

/// The host's neighbor entry for a bridged pod. The Ethernet address of a pod of amazon-vpc-cni does not follow from
/// the key, so such a pod has no entry of ours.
fn ensure_neighbor(
    plan: &mut Plan,
    pod: &PodDesired,
    host_end: &Link,
    port: Option<&Link>,
    observed: &Observed,
) {
    let Some(port) = port.and_then(GatewayPort::of) else { return };
    let neighbor = port.neighbor(pod.address, &pod.key);
    if host_end.key().as_ref() == Some(&pod.key) && !observed.neighbors.contains(&neighbor) {
        plan.push(Subject::Address(pod.address), Action::SetNeighbor(neighbor));
    }
}

/// The host's side of the pod's second address. For an IPv6 pod the observed lease names the address.
fn lead_other_family(
    plan: &mut Plan,
    pod: &PodDesired,
    link: &Link,
    desired: &NodeDesired,
    observed: &Observed,
) {
    let address = match Family::of(pod.address) {
        Family::V4 => pod.egress_v6().filter(|_| desired.egress),
        Family::V6 => egress::lease(link.index, &observed.addresses).map(IpAddr::V4),
    };
    let Some(egress) = address.map(|address| Egress { address }) else { return };
    let subject = Subject::Address(pod.address);
    if Family::of(egress.address) == Family::V6 {
        set_ipv6(plan, &subject, link, Ipv6Conf::DisableIpv6, 0);
    }
    ensure_address(plan, &subject, egress.host_address(link.index), observed);
    place(plan, &subject, egress.host_route(link.index), observed);
}

/// The pod's own rules. The rule from it is not needed if an observed shared rule has the same effect. Layout `compact`
/// needs no rule to it.
fn own_rules(pod: &PodDesired, desired: &NodeDesired, observed: &Observed) -> Vec<Rule> {
    let from = from_rule(pod.address, pod.table);
    match desired.layout {
        RuleLayout::PerPod => [to_rule(pod.address)].into_iter().chain(from).collect(),
        RuleLayout::Compact => {
            from.filter(|_| !shared::covers(pod, desired, observed)).into_iter().collect()
        }
    }
}

/// True if the pod's own rule to it is in effect because the shared one was not observed.
fn must_stay(desired: &NodeDesired, rule: &Rule, observed: &Observed) -> bool {
    desired.layout == RuleLayout::Compact
        && rule.pref == registry::PREF_TO_POD
        && rule.table == TableId::MAIN
        && !shared::leads_to_pods(rule.family, observed)
}

fn host_route(layout: RuleLayout, pod: &PodDesired, link: &Link) -> Route {
    Route::on_link(layout.pod_routes(), pod.address, link.index)
}

/// Removes the route of the other layout once the observed rules do not depend on it.
fn remove_other_routes(
    plan: &mut Plan,
    pod: &PodDesired,
    link: &Link,
    desired: &NodeDesired,
    observed: &Observed,
) {
    let free = match desired.layout {
        RuleLayout::PerPod => shared::has_own_to(pod, observed),
        RuleLayout::Compact => shared::leads_to_pods(Family::of(pod.address), observed),
    };
    if !free {
        return;
    }
    let other = host_route(desired.layout.other(), pod, link);
    let of_other = observed.routes.iter().filter(|route| {
        let ours = route.protocol == registry::ROUTE_PROTOCOL || route.dev == other.dev;
        (route.table, route.dst) == (other.table, other.dst) && route.plain && ours
    });
    // The route in effect comes last.
    let mut of_other: Vec<&Route> = of_other.collect();
    of_other.sort_by_key(|route| route.metric);
    for route in of_other.into_iter().rev() {
        plan.push(Subject::Address(pod.address), Action::DeleteRoute(route.clone()));
    }
}
