//! A confirmed pod: the host's route to it and its rules.

use super::{Note, Plan, ensure, node::set_ipv6, place, remove_rules};
use crate::{
    Action, Family, Ipv6Conf, Link, LinkKind, LinkRef, Observed, PodDesired, Route, Subject,
    kernel::pod_of, pod::rules_of,
};
use config_model::{TableId, registry};

pub(super) fn plan(plan: &mut Plan, pod: &PodDesired, observed: &Observed) {
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
    place(plan, &subject, Route::on_link(TableId::MAIN, pod.address, link.index), observed);
    let rules = rules_of(pod.address, pod.table);
    for rule in &rules {
        ensure(plan, &subject, rule.clone(), observed);
    }
    // A rule that sends the pod's traffic to another table; one for part of it is not ours.
    remove_rules(plan, &subject, observed, |other| {
        let whole = other.selector.src.is_none() || other.selector.dst.is_none();
        whole
            && pod_of(other) == Some(pod.address)
            && !rules.iter().any(|rule| rule.is_twin_of(other))
    });
    be_deaf(plan, link);
}

/// A host end lives, is up, and speaks the family of its pod.
pub(super) fn keep_up(plan: &mut Plan, subject: &Subject, link: &Link, family: Family) {
    if link.group == registry::GROUP_REAP {
        plan.push(subject.clone(), Action::SetGroup(LinkRef::from(link), 0));
    }
    if !link.up {
        plan.push(subject.clone(), Action::SetUp(LinkRef::from(link)));
    }
    if family == Family::V6 {
        set_ipv6(plan, subject, link, Ipv6Conf::DisableIpv6, 0);
    }
}

/// A pod is no router: its word must not change the host's routes. Apart from the rest, since a
/// file that cannot be written is no reason to leave the pod without routes.
pub(super) fn be_deaf(plan: &mut Plan, link: &Link) {
    set_ipv6(plan, &Subject::Link(link.index), link, Ipv6Conf::AcceptRa, 0);
}

/// By its alias; a pod that was made before Ferrule has none, so there by its name.
fn host_end<'a>(pod: &PodDesired, observed: &'a Observed) -> Option<&'a Link> {
    observed.link_of(&pod.key).or_else(|| {
        let unmarked = |link: &&Link| link.kind == LinkKind::Veth && link.alias.is_none();
        observed.link_named(pod.veth.as_str()).filter(unmarked)
    })
}
