//! Host veths of deleted pods, and links of their branch ENIs.
//!
//! Deleting a link costs a grace period of the kernel, and so does deleting a group of links. So the plugin or this
//! plan first puts links in a group, and one message deletes all of them.

use super::{Note, Plan};
use crate::{Action, IfIndex, Link, LinkKind, LinkRef, NodeDesired, Observed, Op, Subject};
use config_model::{PodKey, registry};
use std::collections::BTreeSet;

pub(super) fn plan(plan: &mut Plan, desired: &NodeDesired, observed: &Observed) {
    let known: BTreeSet<&PodKey> = desired.keys().collect();
    let in_group = |link: &&Link| link.group == registry::GROUP_REAP;
    let is_orphan = |link: &&Link| {
        matches!(link.kind, LinkKind::Veth | LinkKind::Vlan(_))
            && link.key().is_some_and(|key| !known.contains(&key))
    };
    // A branch's link that is recreated, or used by the pod's next sandbox.
    let settled: BTreeSet<IfIndex> = plan.ops.iter().filter_map(settles).collect();
    let is_orphan = |link: &&Link| is_orphan(link) && !settled.contains(&link.index);
    let orphans: Vec<&Link> = observed.links.values().filter(is_orphan).collect();
    let doomed: BTreeSet<IfIndex> = orphans.iter().map(|link| link.index).collect();
    let others: Vec<&Link> = observed
        .links
        .values()
        .filter(|link| in_group(link) && !doomed.contains(&link.index))
        .collect();
    for link in others.iter().filter(|link| link.key().is_none()) {
        plan.notes.push(Note::ForeignInReapGroup { link: link.index });
    }
    if orphans.is_empty() {
        return;
    }
    if !others.is_empty() {
        // The group also contains a foreign link or one of a running pod.
        for link in orphans {
            let action = Action::DeleteLink(LinkRef::from(link));
            plan.push(Subject::Link(link.index), action);
        }
        return;
    }
    for link in orphans.iter().filter(|link| !in_group(link)) {
        let action = Action::SetGroup(LinkRef::from(*link), registry::GROUP_REAP);
        plan.push(Subject::Link(link.index), action);
    }
    plan.push(Subject::Reap, Action::DeleteGroup(registry::GROUP_REAP));
}

fn settles(op: &Op) -> Option<IfIndex> {
    if let Action::DeleteLink(link) | Action::SetAlias(link, _) | Action::Claim(link, _) =
        &op.action
    {
        Some(link.index)
    } else {
        None
    }
}
