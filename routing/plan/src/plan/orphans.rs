//! Rules and routes that belong to nobody any more.
//!
//! Only what is provably ours goes: it carries our protocol number, or it has the form of a pod's
//! rule or host route *and* its address is one of our ENIs'. Addresses of pods, and of ADDs and
//! DELs in flight, are left alone whatever they carry.

use super::Plan;
use crate::{Action, Link, LinkKind, NodeDesired, Observed, Route, Rule, Subject, kernel::pod_of};
use config_model::registry;
use std::{collections::BTreeSet, net::Ipv4Addr};

pub(super) fn plan(plan: &mut Plan, desired: &NodeDesired, observed: &Observed) {
    let pods = desired.pods.iter().map(|pod| pod.address);
    let held: BTreeSet<Ipv4Addr> = pods.chain(desired.spared.iter().copied()).collect();
    for rule in &observed.rules {
        let marked_ours = rule.protocol == registry::ROUTE_PROTOCOL;
        match pod_of(rule) {
            Some(address) if held.contains(&address) => {}
            Some(address) if marked_ours || desired.managed.contains(&address) => {
                plan.push(Subject::Address(address), Action::DeleteRule(rule.clone()));
            }
            Some(_) => {}
            None if marked_ours && is_of_former_eni(rule, desired) => {
                plan.push(Subject::Leftover(rule.clone()), Action::DeleteRule(rule.clone()));
            }
            None => {}
        }
    }
    for route in &observed.routes {
        let Some(address) = route.host_address() else { continue };
        if !held.contains(&address) && is_ours(route, address, desired, observed) {
            plan.push(Subject::Address(address), Action::DeleteRoute(route.clone()));
        }
    }
}

fn is_of_former_eni(rule: &Rule, desired: &NodeDesired) -> bool {
    let current = desired.enis.iter().map(|eni| crate::Selector::from(eni.address));
    rule.pref == registry::PREF_FROM_ENI && !current.into_iter().any(|s| s == rule.selector)
}

fn is_ours(route: &Route, address: Ipv4Addr, desired: &NodeDesired, observed: &Observed) -> bool {
    let pod_veth = |link: &Link| {
        link.kind == LinkKind::Veth
            && (link.key().is_some() || link.name.starts_with(&desired.veth_prefix))
    };
    let by_pod_veth = || {
        let link = route.dev.and_then(|dev| observed.links.get(&dev));
        desired.managed.contains(&address) && link.is_some_and(pod_veth)
    };
    observed.is_host_route(route) && (route.protocol == registry::ROUTE_PROTOCOL || by_pod_veth())
}
