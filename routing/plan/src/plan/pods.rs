//! A confirmed pod: the host's route to it and its rules.

use super::{
    Note, Plan, ensure,
    links::{disable_accept_ra, ensure_address, host_end, keep_up, set_ipv6},
    place, remove_rules, shared,
};
use crate::{
    Action, Family, Ipv6Conf, Link, NodeDesired, Observed, PodDesired, Route, Rule, Subject,
    egress::{self, Egress},
    kernel::pod_of,
    pod,
    rules::{from_rule, to_rule},
};
use config_model::{RuleLayout, TableId, registry};
use std::net::IpAddr;

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
    let gateway = pod::gateway(Family::of(pod.address), pod.key.number());
    if let Some(wanted) = pod::host_address(gateway, link.index) {
        ensure_address(plan, &subject, wanted, observed);
    }
    place(plan, &subject, host_route(desired.layout, pod, link), observed);
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
    remove_other_routes(plan, pod, link, desired, observed);
    lead_other_family(plan, pod, link, desired, observed);
    disable_accept_ra(plan, link);
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
