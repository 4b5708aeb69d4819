//! The primary ENI and the rule for marked traffic.

use super::{Plan, ensure, link_of_eni, remove_rules};
use crate::{Action, Ipv4Conf, LinkRef, NodeDesired, Observed, Rule, Selector, Subject};
use config_model::{TableId, registry};

/// Replies to what came in by the primary ENI leave by it, so a source need only be reachable by
/// some link, not by the one that a pod's own table names.
const LOOSE: u32 = 2;

pub(super) fn plan(plan: &mut Plan, desired: &NodeDesired, observed: &Observed) {
    let subject = Subject::Node;
    if let Some(link) = link_of_eni(plan, &subject, desired.primary.mac, observed) {
        if link.mtu != desired.primary.mtu {
            let action = Action::SetMtu(LinkRef::from(link), desired.primary.mtu);
            plan.push(subject.clone(), action);
        }
        // A link without IPv4 settings has no IPv4 at all, and so nothing to filter.
        if link.ipv4.get(&Ipv4Conf::RpFilter).is_some_and(|value| *value != LOOSE) {
            let action = Action::SetIpv4(LinkRef::from(link), Ipv4Conf::RpFilter, LOOSE);
            plan.push(subject.clone(), action);
        }
    }
    let marked = desired
        .connmark
        .map(|mark| Rule::ours(registry::PREF_MARKED, Selector::marked(mark), TableId::MAIN));
    if let Some(rule) = &marked {
        ensure(plan, &subject, rule.clone(), observed);
    }
    remove_rules(plan, &subject, observed, |rule| {
        rule.pref == registry::PREF_MARKED
            && rule.protocol == registry::ROUTE_PROTOCOL
            && marked.as_ref().is_none_or(|wanted| !rule.is_twin_of(wanted))
    });
}
