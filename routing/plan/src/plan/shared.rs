//! The shared rules of layout `compact`. One rule leads to all pods. Each ENI has one rule for each of its prefixes,
//! and one for its netfilter mark.
//!
//! During a change of the layout, a rule is removed only after an observation shows its replacement for every
//! affected pod. A packet matches the old rules, the new ones, or both, and all of them route alike.

use super::{
    Plan, ensure,
    links::{host_end, route_link},
};
use crate::{
    Action, EniDesired, Family, NodeDesired, Observed, PodDesired, Rule, Selector, Subject,
    kernel::pod_of,
};
use config_model::{Mark, RuleLayout, TableId, registry};
use ipnet::IpNet;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
};

pub(super) fn add(plan: &mut Plan, desired: &NodeDesired, observed: &Observed) {
    for (subject, rule) in shared_rules(desired) {
        ensure(plan, &subject, rule, observed);
    }
}

pub(super) fn remove(plan: &mut Plan, desired: &NodeDesired, observed: &Observed) {
    let shared = shared_rules(desired);
    let is_stale = |rule: &&Rule| {
        rule.protocol == registry::ROUTE_PROTOCOL
            && is_shared(rule)
            && !shared.iter().any(|(_, shared)| shared.is_twin_of(rule))
    };
    for rule in observed.rules.iter().filter(is_stale) {
        if !desired.pods.iter().any(|pod| needs(pod, rule, desired, observed)) {
            plan.push(Subject::Leftover(rule.clone()), Action::DeleteRule(rule.clone()));
        }
    }
}

/// The shared rules with their subjects.
fn shared_rules(desired: &NodeDesired) -> Vec<(Subject, Rule)> {
    if desired.layout == RuleLayout::PerPod {
        return Vec::new();
    }
    let mut rules = vec![(Subject::Node, Rule::to_pods(desired.family))];
    for eni in &desired.enis {
        let prefixes = eni.blocks.iter().filter(|block| !is_single(block));
        let prefixes = prefixes.map(|net| Rule::from_prefix(*net, eni.table));
        let marked = mark_of(eni).map(|mark| Rule::from_marked(mark, eni.table));
        let of_eni = prefixes.chain(marked);
        rules.extend(of_eni.map(|rule| (Subject::Eni(eni.eni.clone()), rule)));
    }
    rules
}

/// The mark of the ENI's single addresses; `None` if it has none.
pub(super) fn mark_of(eni: &EniDesired) -> Option<Mark> {
    eni.blocks.iter().find_map(single_v4).and_then(|_| Mark::of_table(eni.table))
}

/// The addresses whose packets netfilter should mark: the single addresses of ENIs, and those of pods that depend on
/// an observed mark.
pub(super) fn marks(desired: &NodeDesired, observed: &Observed) -> BTreeMap<Ipv4Addr, Mark> {
    let mut marks = BTreeMap::new();
    for pod in &desired.pods {
        if let IpAddr::V4(address) = pod.address
            && let Some(mark) = observed.marked.get(&pod.address)
            && !has_own_from(pod, observed)
        {
            marks.insert(address, *mark);
        }
    }
    if desired.layout == RuleLayout::Compact {
        for eni in &desired.enis {
            let Some(mark) = mark_of(eni) else { continue };
            marks.extend(eni.blocks.iter().filter_map(single_v4).map(|address| (address, mark)));
        }
    }
    marks
}

/// True if the shared rule to the table of pods' routes was observed.
pub(super) fn leads_to_pods(family: Family, observed: &Observed) -> bool {
    let shared = Rule::to_pods(family);
    observed.rules.iter().any(|rule| rule.is_twin_of(&shared))
}

/// True if the observed shared rule of the pod's block is the one in effect for packets from it.
pub(super) fn covers(pod: &PodDesired, desired: &NodeDesired, observed: &Observed) -> bool {
    let compact = desired.layout == RuleLayout::Compact;
    let mut enis = desired.enis.iter().filter(|eni| compact && eni.table == pod.table);
    let Some(eni) = enis.next() else { return false };
    let Some(block) = eni.blocks.iter().find(|block| block.contains(&pod.address)) else {
        return false;
    };
    let shared = if is_single(block) {
        mark_of(eni).map(|mark| Rule::from_marked(mark, eni.table))
    } else {
        Some(Rule::from_prefix(*block, eni.table))
    };
    let mut fitting = observed.rules.iter().filter(|rule| takes(rule, pod, observed));
    shared.is_some_and(|shared| fitting.next().is_some_and(|rule| rule.is_twin_of(&shared)))
}

/// True if the pod would be disconnected without this rule.
fn needs(pod: &PodDesired, rule: &Rule, desired: &NodeDesired, observed: &Observed) -> bool {
    if rule.family != Family::of(pod.address) || host_end(pod, observed).is_none() {
        return false;
    }
    match rule.pref {
        registry::PREF_TO_POD => !has_own_to(pod, observed),
        _ => {
            rule.table == pod.table
                && takes(rule, pod, observed)
                && !has_own_from(pod, observed)
                && !covers(pod, desired, observed)
        }
    }
}

/// True if the pod's own rule was observed and leads to it by table main.
pub(super) fn has_own_to(pod: &PodDesired, observed: &Observed) -> bool {
    let dev = route_link(pod, observed).map(|link| link.index);
    let mut routes = observed.routes.iter().filter(|route| {
        route.table == TableId::MAIN && route.plain && route.host_address() == Some(pod.address)
    });
    own_table(registry::PREF_TO_POD, pod, observed) == Some(TableId::MAIN)
        && routes.next().is_some_and(|route| route.dev == dev)
}

/// True if the pod's own rule from it was observed and is in effect.
fn has_own_from(pod: &PodDesired, observed: &Observed) -> bool {
    own_table(registry::PREF_FROM_POD, pod, observed) == Some(pod.table)
}

/// The table of the first rule of this priority for this pod alone.
fn own_table(pref: u32, pod: &PodDesired, observed: &Observed) -> Option<TableId> {
    let own = |rule: &&Rule| rule.pref == pref && pod_of(rule) == Some(pod.address);
    observed.rules.iter().find(own).map(|rule| rule.table)
}

/// True if the rule has the form of a shared rule, whatever its protocol.
fn is_shared(rule: &Rule) -> bool {
    let Selector { src, dst, mark, iif, protocol, other } = &rule.selector;
    if dst.is_some() || iif.is_some() || protocol.is_some() || *other {
        return false;
    }
    match (rule.pref, src, mark) {
        (registry::PREF_TO_POD, None, None) => rule.table == TableId::PODS,
        (registry::PREF_FROM_POD, Some(net), None) => !is_single(net),
        (registry::PREF_FROM_POD, None, Some(mark)) => mark.mask == registry::SOURCE_MARKS,
        _ => false,
    }
}

/// True if the rule is a shared one and matches the pod's packets with their observed mark.
fn takes(rule: &Rule, pod: &PodDesired, observed: &Observed) -> bool {
    let marked = observed.marked.get(&pod.address);
    rule.pref == registry::PREF_FROM_POD
        && is_shared(rule)
        && rule.family == Family::of(pod.address)
        && rule.selector.src.is_none_or(|net| net.contains(&pod.address))
        && (rule.selector.mark.is_none() || rule.selector.mark.as_ref() == marked)
}

fn is_single(net: &IpNet) -> bool {
    net.prefix_len() == net.max_prefix_len()
}

fn single_v4(net: &IpNet) -> Option<Ipv4Addr> {
    match net {
        IpNet::V4(v4) if is_single(net) => Some(v4.addr()),
        IpNet::V4(_) | IpNet::V6(_) => None,
    }
}
