//! The primary ENI, and the rules for traffic that must use it: marked packets and external Services.

use super::{
    Plan,
    branches::order_local,
    ensure, link_of_eni,
    links::{set_ipv6, set_loose_rp_filter},
    remove_rules,
};
use crate::desired::FORWARDING_V6;
use crate::{Action, Family, Ipv6Conf, LinkRef, NodeDesired, Observed, Rule, Subject};
use config_model::registry;

/// `accept_ra` of the primary link: accept router advertisements although the node forwards. The VPC's router
/// announces the node's default route.
const LISTEN_ANYWAY: u32 = 2;

pub(super) fn plan(plan: &mut Plan, desired: &NodeDesired, observed: &Observed) {
    let subject = Subject::Node;
    if let Some(link) = link_of_eni(plan, &subject, desired.primary.mac, observed) {
        plan.primary_link = Some(link.name.clone());
        if link.mtu != desired.primary.mtu {
            let action = Action::SetMtu(LinkRef::from(link), desired.primary.mtu);
            plan.push(subject.clone(), action);
        }
        if desired.family == Family::V4 || desired.egress {
            set_loose_rp_filter(plan, &subject, link);
        }
        let forwards = desired.sysctls.keys().any(|name| name.as_str() == FORWARDING_V6);
        if desired.family == Family::V6 || forwards {
            set_ipv6(plan, &subject, link, Ipv6Conf::DisableIpv6, 0);
            set_ipv6(plan, &subject, link, Ipv6Conf::AcceptRa, LISTEN_ANYWAY);
        }
    }
    order_local(plan, desired, observed);
    let marked = desired.connmark.map(|mark| Rule::marked(desired.family, mark));
    let external = desired.external.iter().map(|range| Rule::external(*range));
    let wanted: Vec<Rule> = marked.into_iter().chain(external).collect();
    for rule in &wanted {
        ensure(plan, &subject, rule.clone(), observed);
    }
    remove_rules(plan, &subject, observed, |rule| {
        [registry::PREF_MARKED, registry::PREF_EXTERNAL].contains(&rule.pref)
            && rule.protocol == registry::ROUTE_PROTOCOL
            && !wanted.iter().any(|wanted| rule.is_twin_of(wanted))
    });
}
