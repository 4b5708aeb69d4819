//! A confirmed pod with a branch ENI: the VLAN link, the branch's table, the pod's route and rules.
//!
//! The name of the host end shows the mode, so a pod keeps its mode if the setting changes.

use super::{
    Note, Plan, ensure,
    links::{disable_accept_ra, keep_up, set_ipv6},
    place, remove_rules,
};
use crate::{
    Action, BranchDesired, Enforcing, Family, Ipv4Conf, Ipv6Conf, Link, LinkRef, NodeDesired,
    Observed, Route, Rule, Subject,
    branch::{Branch, Carrier, LOOSE, Obstacle, carry, loose_rp_filter},
    kernel::pod_of,
};
use config_model::{PodKey, registry};
use std::collections::BTreeSet;

pub(super) fn plan(
    plan: &mut Plan,
    pod: &BranchDesired,
    desired: &NodeDesired,
    observed: &Observed,
) {
    let Some((link, enforcing)) = host_end(pod, observed) else {
        plan.notes.push(Note::VethMissing {
            key: pod.key.clone(),
            veth: pod.standard_veth.as_str().to_owned(),
            address: pod.address,
        });
        return;
    };
    let subject = Subject::Address(pod.address);
    keep_up(plan, &subject, link, Family::of(pod.address));
    let tight = |link: &Link| link.ipv4.get(&Ipv4Conf::RpFilter).is_some_and(|it| *it != LOOSE);
    if enforcing == Enforcing::Strict && tight(link) {
        plan.push(subject.clone(), loose_rp_filter(&LinkRef::from(link)));
    }
    let branch = Branch { enforcing, ..pod.branch };
    let Some(carrier) = carrier(plan, &subject, pod, &branch, desired, observed) else { return };

    for route in branch.routes(carrier.index) {
        place(plan, &subject, route, observed);
    }
    let to_pod = Route::on_link(branch.host_table(), pod.address, link.index);
    place(plan, &subject, to_pod, observed);
    let rules = branch.rules(pod.address, &link.name, &carrier.name);
    for rule in &rules {
        ensure(plan, &subject, rule.clone(), observed);
    }
    remove_rules(plan, &subject, observed, |other| {
        let whole = other.selector.src.is_none() || other.selector.dst.is_none();
        let of_pod = whole && pod_of(other) == Some(pod.address);
        let of_links = other.family == Family::of(pod.address)
            && other.branch_link().is_some_and(|name| name == link.name || name == carrier.name);
        (of_pod || of_links) && !rules.iter().any(|rule| rule.is_twin_of(other))
    });
    disable_accept_ra(plan, link);
}

/// The host end, and the mode that its name shows.
pub(super) fn host_end<'a>(
    pod: &BranchDesired,
    observed: &'a Observed,
) -> Option<(&'a Link, Enforcing)> {
    let strict = |link: &Link| match link.name.starts_with(registry::STRICT_VETH_PREFIX) {
        true => Enforcing::Strict,
        false => Enforcing::Standard,
    };
    observed.link_of(&pod.key).map(|link| (link, strict(link)))
}

fn carrier(
    plan: &mut Plan,
    subject: &Subject,
    pod: &BranchDesired,
    branch: &Branch,
    desired: &NodeDesired,
    observed: &Observed,
) -> Option<LinkRef> {
    // Without the trunk's address its link cannot be identified.
    let trunk = desired.trunk?;
    let known: BTreeSet<&PodKey> = desired.keys().collect();
    let subject = subject.clone();
    let Carrier { link, actions, there } =
        match carry(branch, &pod.key, trunk, observed, |other, _| known.contains(other)) {
            Ok(carrier) => carrier,
            Err(obstacle) => {
                plan.notes.push(match obstacle {
                    Obstacle::TrunkMissing { mac } => Note::LinkMissing { subject, mac },
                    Obstacle::TrunkAmbiguous { mac, links } => {
                        Note::LinkAmbiguous { subject, mac, links }
                    }
                    Obstacle::Held { vlan, by } => {
                        Note::VlanHeld { key: pod.key.clone(), vlan, by }
                    }
                });
                return None;
            }
        };
    for action in actions {
        plan.push(subject.clone(), action);
    }
    match observed.links.get(&link.index).filter(|_| there) {
        Some(present) => {
            if Family::of(pod.address) == Family::V6 {
                set_ipv6(plan, &subject, present, Ipv6Conf::DisableIpv6, 0);
            }
            disable_accept_ra(plan, present);
        }
        None => {
            let ignore = Action::SetIpv6(link.clone(), Ipv6Conf::AcceptRa, 0);
            plan.push(Subject::Link(link.index), ignore);
        }
    }
    Some(link)
}

/// Moves the rule of table `local` behind those of strict pods. Otherwise their traffic to the node would bypass
/// their branch. If the node has no strict pod any longer, our change is undone.
pub(super) fn order_local(plan: &mut Plan, desired: &NodeDesired, observed: &Observed) {
    let is_strict = |pod: &BranchDesired| {
        pod.confirmed && host_end(pod, observed).is_some_and(|(_, how)| how == Enforcing::Strict)
    };
    let strict = desired.strict || desired.branches.iter().any(is_strict);
    let family = desired.family;
    let early = Rule::local(family, registry::PREF_LOCAL);
    let late = Rule::local(family, registry::PREF_LOCAL_LATE);
    let router = (family == Family::V6).then(Rule::of_router);
    let ours = |rule: &Rule| rule.protocol == registry::ROUTE_PROTOCOL;
    let subject = Subject::Node;
    if strict {
        ensure(plan, &subject, late, observed);
        if let Some(router) = router {
            ensure(plan, &subject, router, observed);
        }
        remove_rules(plan, &subject, observed, |rule| rule.is_twin_of(&early));
    } else if observed.rules.iter().any(|rule| rule.is_twin_of(&late) && ours(rule)) {
        ensure(plan, &subject, early, observed);
        remove_rules(plan, &subject, observed, |rule| {
            let undone = [Some(&late), router.as_ref()].into_iter().flatten();
            ours(rule) && undone.into_iter().any(|done| rule.is_twin_of(done))
        });
    }
}
