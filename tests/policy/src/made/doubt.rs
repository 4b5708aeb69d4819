//! A world of which one part more is not understood.

use super::Made;
use policy_objects::{
    AntreaAction, AntreaAppliedTo, AntreaPolicy, AntreaRule, ClusterAction, ClusterPolicy,
    ClusterRule, GroupSpec, NamespacedPods, NetworkPolicy, Object, Read, Selector, Subject,
    Unknown,
};
use proptest::sample::Index;

/// The world with one rule or subject, or a group that is nobody's subject, not understood any more; `wider`
/// is whether a subject then selects all. `None` where there is no such part.
pub fn doubted(made: &Made, part: Index, wider: bool) -> Option<Made> {
    let mut less = made.clone();
    let subjects = subject_groups(&less.objects);
    let mut parts = Vec::new();
    for object in &mut less.objects {
        match object {
            Object::NetworkPolicy(policy) => network(policy, &mut parts),
            Object::ClusterPolicy(policy) => cluster(policy, &mut parts),
            Object::AntreaPolicy(policy) => antrea(policy, &mut parts),
            Object::Group(group) => {
                let name = (group.meta.namespace.clone(), group.meta.name.clone());
                if !subjects.contains(&name) {
                    parts.push(Part::Group(&mut group.spec));
                }
            }
            Object::Pod(_)
            | Object::Namespace(_)
            | Object::Node(_)
            | Object::Service(_)
            | Object::Tier(_) => {}
        }
    }
    if parts.is_empty() {
        return None;
    }
    let chosen = part.index(parts.len());
    parts.swap_remove(chosen).forget(wider);
    Some(less)
}

/// A part that can be made one that is not understood.
enum Part<'a> {
    Network(&'a mut Read<policy_objects::NetworkRule>),
    Cluster(&'a mut Read<ClusterRule>),
    Antrea(&'a mut Read<AntreaRule>),
    Group(&'a mut Read<GroupSpec>),
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
            Self::NetworkSubject(subject) => doubt(subject, wider.then(Selector::default)),
            Self::ClusterSubject(subject) => doubt(subject, wider.then(NamespacedPods::default)),
            Self::AntreaSubject(subject) => {
                let all = Some(Selector::default());
                let all = AntreaAppliedTo::Pods { namespaces: None, pods: all };
                doubt(subject, wider.then_some(all));
            }
        }
    }
}

fn forget<T>(part: &mut Read<T>, action: impl Fn(&T) -> Option<&'static str>) {
    if let Read::Known(known) = part {
        let action = action(known).map(str::to_owned);
        *part = Read::Unknown(Unknown { why: "doubted".to_owned(), name: None, action });
    }
}

fn doubt<T>(subject: &mut Subject<T>, wider: Option<T>) {
    subject.doubt = Some("doubted".to_owned());
    if let Some(wider) = wider {
        subject.selects = wider;
    }
}

/// The groups that something is applied to, and their children: who is in one that is not understood cannot
/// be known, so what is applied to it is applied to nobody.
fn subject_groups(objects: &[Object]) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for object in objects {
        let Object::AntreaPolicy(policy) = object else { continue };
        let entries = policy.ingress.iter().chain(&policy.egress);
        let own = entries.flat_map(|entry| &entry.applied_to);
        for subject in policy.applied_to.iter().chain(own) {
            if let AntreaAppliedTo::Group(name) = &subject.selects {
                found.push((policy.meta.namespace.clone(), name.clone()));
            }
        }
    }
    let children = objects.iter().flat_map(|object| {
        let Object::Group(group) = object else { return Vec::new() };
        let Read::Known(GroupSpec::Children(children)) = &group.spec else { return Vec::new() };
        if !found.contains(&(group.meta.namespace.clone(), group.meta.name.clone())) {
            return Vec::new();
        }
        children.iter().map(|child| (group.meta.namespace.clone(), child.clone())).collect()
    });
    let children = children.collect::<Vec<_>>();
    found.extend(children);
    found
}
