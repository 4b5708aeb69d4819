//! Steps that several kinds of links share: host ends of pods, links of branches, ENIs.

use super::Plan;
use crate::{
    Action, Family, Ipv4Conf, Ipv6Conf, Link, LinkAddr, LinkKind, LinkRef, Observed, PodDesired,
    Subject, branch::LOOSE, pod::GatewayPort,
};
use config_model::{HostEndMode, registry};

/// Finds the host end by its alias. Adopted pods of amazon-vpc-cni have none and are found by name. The name does not
/// identify other pods, because two pods can have the same one.
pub(super) fn host_end<'a>(pod: &PodDesired, observed: &'a Observed) -> Option<&'a Link> {
    observed.link_of(&pod.key).or_else(|| {
        let unmarked = |link: &&Link| {
            link.kind == LinkKind::Veth && link.alias.is_none() && link.group != registry::GROUP_NEW
        };
        let named = || observed.link_named(pod.veth.as_str()).filter(unmarked);
        pod.adopted.then(named).flatten()
    })
}

/// The link of the host's route to a pod: its host veth, or the gateway port of its bridge. `None` if it is missing or
/// the port is unusable.
pub(super) fn route_link<'a>(pod: &PodDesired, observed: &'a Observed) -> Option<&'a Link> {
    match &pod.host_end {
        HostEndMode::Routed => host_end(pod, observed),
        HostEndMode::Bridged { gateway_port } => {
            let usable = |link: &&Link| GatewayPort::of(link).is_some();
            observed.link_named(gateway_port).filter(usable)
        }
    }
}

/// Makes a host end usable: out of the group of links to delete, up, and with IPv6 if its pod has it.
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

/// Adds an address to a host end unless it is there. An IPv6 address is gone once the link was down.
pub(super) fn ensure_address(
    plan: &mut Plan,
    subject: &Subject,
    wanted: LinkAddr,
    observed: &Observed,
) {
    let is_there = |there: &LinkAddr| {
        (there.dev, there.address, there.peer) == (wanted.dev, wanted.address, wanted.peer)
    };
    if !observed.addresses.iter().any(is_there) {
        plan.push(subject.clone(), Action::AddAddress(wanted));
    }
}

/// Ignores router advertisements of the pod: they must not change the host's routes. The step has a subject of its
/// own, because a file that cannot be written is no reason to leave the pod without routes.
pub(super) fn disable_accept_ra(plan: &mut Plan, link: &Link) {
    set_ipv6(plan, &Subject::Link(link.index), link, Ipv6Conf::AcceptRa, 0);
}

/// Accepts a packet whose source is reachable by any link. Replies to a packet that came in by the primary ENI leave
/// by it, although the pod's own table names another link.
pub(super) fn set_loose_rp_filter(plan: &mut Plan, subject: &Subject, link: &Link) {
    // A link without IPv4 settings has no IPv4, and so no filter.
    if link.ipv4.get(&Ipv4Conf::RpFilter).is_some_and(|value| *value != LOOSE) {
        let action = Action::SetIpv4(LinkRef::from(link), Ipv4Conf::RpFilter, LOOSE);
        plan.push(subject.clone(), action);
    }
}

/// Sets an IPv6 setting unless it has the value. A link without IPv6 settings has no IPv6.
pub(super) fn set_ipv6(
    plan: &mut Plan,
    subject: &Subject,
    link: &Link,
    conf: Ipv6Conf,
    value: u32,
) {
    if link.ipv6.get(&conf).is_some_and(|there| *there != value) {
        plan.push(subject.clone(), Action::SetIpv6(LinkRef::from(link), conf, value));
    }
}
