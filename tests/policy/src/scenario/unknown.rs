//! Worlds with one more part that is not understood.

use super::Scenario;
use policy_objects::{
    AntreaAction, AntreaAppliedTo, AntreaPolicy, AntreaRule, ClusterAction, ClusterPolicy,
    ClusterRule, GroupSpec, NamespacedPods, NetworkPolicy, Object, Read, Selector, Subject,
    Unknown,
};
use proptest::sample::Index;
use std::net::IpAddr;

/// Replaces one rule, subject, group or part of a Service by one that is not understood. With `wider` a
/// subject selects all pods. `None` if the world has no such part.
pub fn with_unknown_part(scenario: &Scenario, part: Index, wider: bool) -> Option<Scenario> {
    let mut less = scenario.clone();
    let mut parts = Vec::new();
    for object in &mut less.objects {
        match object {
            Object::NetworkPolicy(policy) => network(policy, &mut parts),
            Object::ClusterPolicy(policy) => cluster(policy, &mut parts),
            Object::AntreaPolicy(policy) => antrea(policy, &mut parts),
            Object::Group(group) => parts.push(Part::Group(&mut group.spec)),
            Object::Service(service) => {
                parts.push(Part::Selector(&mut service.selector));
                parts.push(Part::Addresses(&mut service.cluster_ips));
            }
            Object::Pod(_) | Object::Namespace(_) | Object::Node(_) | Object::Tier(_) => {}
        }
    }
    if parts.is_empty() {
        return None;
    }
    let chosen = part.index(parts.len());
    parts.swap_remove(chosen).forget(wider);
    Some(less)
}

/// A part that can be replaced by one that is not understood.
enum Part<'a> {
    Network(&'a mut Read<policy_objects::NetworkRule>),
    Cluster(&'a mut Read<ClusterRule>),
    Antrea(&'a mut Read<AntreaRule>),
    Group(&'a mut Read<GroupSpec>),
    Selector(&'a mut Read<Option<Selector>>),
    Addresses(&'a mut Read<Vec<IpAddr>>),
    NetworkSubject(&'a mut Subject<Selector>),
    ClusterSubject(&'a mut Subject<NamespacedPods>),
    AntreaSubject(&'a mut Subject<AntreaAppliedTo>),
}

fn network<'a>(policy: &'a mut NetworkPolicy, parts: &mut Vec<Part<'a>>) {
    parts.push(Part::NetworkSubject(&mut policy.subject));
    parts.extend(policy.ingress.iter_mut().chain(&mut policy.egress).map(Part::Network));
}

fn cluster<'a>(policy: &'a mut ClusterPolicy, parts: &mut Vec<Part<'a>>) {
    parts.push(Part::ClusterSubject(&mut policy.subject));
    parts.extend(policy.ingress.iter_mut().chain(&mut policy.egress).map(Part::Cluster));
}

fn antrea<'a>(policy: &'a mut AntreaPolicy, parts: &mut Vec<Part<'a>>) {
    parts.extend(policy.applied_to.iter_mut().map(Part::AntreaSubject));
    for entry in policy.ingress.iter_mut().chain(&mut policy.egress) {
        parts.extend(entry.applied_to.iter_mut().map(Part::AntreaSubject));
        parts.push(Part::Antrea(&mut entry.rule));
    }
}

impl Part<'_> {
    fn forget(self, wider: bool) {
        match self {
            Self::Network(rule) => forget(rule, |_| None),
            Self::Cluster(rule) => forget(rule, |rule| {
                Some(match rule.action {
                    ClusterAction::Accept => "Accept",
                    ClusterAction::Deny => "Deny",
                    ClusterAction::Pass => "Pass",
                })
            }),
            Self::Antrea(rule) => forget(rule, |rule| {
                Some(match rule.action {
                    AntreaAction::Allow => "Allow",
                    AntreaAction::Drop => "Drop",
                    AntreaAction::Reject => "Reject",
                    AntreaAction::Pass => "Pass",
                })
            }),
            Self::Group(spec) => forget(spec, |_| None),
            Self::Selector(selector) => forget(selector, |_| None),
            Self::Addresses(addresses) => forget(addresses, |_| None),
            Self::NetworkSubject(subject) => doubt(subject, wider.then(Selector::default)),
            Self::ClusterSubject(subject) => doubt(subject, wider.then(NamespacedPods::default)),
            Self::AntreaSubject(subject) => {
                let all = Some(Selector::default());
                let all = if matches!(subject.selects, AntreaAppliedTo::Service(_)) {
                    AntreaAppliedTo::Service(None)
                } else {
                    AntreaAppliedTo::Pods { namespaces: None, pods: all }
                };
                doubt(subject, wider.then_some(all));
            }
        }
    }
}

fn forget<T>(part: &mut Read<T>, action: impl Fn(&T) -> Option<&'static str>) {
    if let Read::Known(known) = part {
        let action = action(known).map(str::to_owned);
        *part = Read::Unknown(Unknown { why: "with_unknown_part".to_owned(), name: None, action });
    }
}

fn doubt<T>(subject: &mut Subject<T>, wider: Option<T>) {
    subject.doubt = Some("with_unknown_part".to_owned());
    if let Some(wider) = wider {
        subject.selects = wider;
    }
}
