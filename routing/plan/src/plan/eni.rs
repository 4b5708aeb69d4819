//! A secondary ENI: its link, address, table and rule.

use super::{
    Plan, ensure, link_of_eni,
    links::{set_ipv6, set_loose_rp_filter},
    place, remove_rules, shared,
};
use crate::{
    Action, EniDesired, Family, Ipv4Conf, Ipv6Conf, Link, LinkAddr, LinkRef, NodeDesired, Observed,
    Route, Rule, Selector, Subject,
};
use config_model::{RuleLayout, TableId, registry};
use ipnet::IpNet;
use std::net::IpAddr;

pub(super) fn plan(plan: &mut Plan, eni: &EniDesired, desired: &NodeDesired, observed: &Observed) {
    let subject = Subject::Eni(eni.eni.clone());
    let Some(link) = link_of_eni(plan, &subject, eni.mac, observed) else { return };
    let family = Family::of(eni.subnet.addr());
    let wanted = eni.address.and_then(|address| desired_address(address, eni.subnet, link));
    let there = |wanted: LinkAddr| {
        observed.addresses.iter().find(|a| (a.dev, a.address) == (link.index, wanted.address))
    };
    let present = wanted.and_then(there);
    if link.mtu != eni.mtu {
        plan.push(subject.clone(), Action::SetMtu(LinkRef::from(link), eni.mtu));
    }
    if !link.up {
        plan.push(subject.clone(), Action::SetUp(LinkRef::from(link)));
    }
    if family == Family::V6 {
        set_ipv6(plan, &subject, link, Ipv6Conf::DisableIpv6, 0);
    }
    if desired.layout == RuleLayout::Compact && shared::mark_of(eni).is_some() {
        // The reverse path filter does not know the mark that a pod's own packet has.
        set_loose_rp_filter(plan, &subject, link);
    }
    if let (Some(wanted), None) = (wanted, present) {
        plan.push(subject.clone(), Action::AddAddress(wanted));
    }
    remove_other_addresses(plan, &subject, link, family, wanted, observed);

    place(plan, &subject, Route::on_link(eni.table, eni.gateway(), link.index), observed);
    place(plan, &subject, Route::default_via(eni.table, eni.gateway(), link.index), observed);

    if let Some(rule) = rule_of(eni) {
        ensure(plan, &subject, rule.clone(), observed);
        remove_rules(plan, &subject, observed, |other| {
            (other.pref, &other.selector) == (rule.pref, &rule.selector)
                && other.table != rule.table
        });
    }

    let in_main = observed.routes.iter().filter(|route| is_drift(route, eni, link));
    for route in in_main {
        plan.push(subject.clone(), Action::DeleteRoute(route.clone()));
    }
    let returns = |address: &LinkAddr| !address.noprefixroute && (!link.up || address.secondary);
    if let Some(address) = present.filter(|address| returns(address)) {
        // Bringing the link up, or promoting the address, recreates this route.
        plan.push(subject, Action::DeleteRoute(connected_route(address)));
    }
}

/// The rule from the ENI's own address to its table. A trunk has none.
pub(super) fn rule_of(eni: &EniDesired) -> Option<Rule> {
    let address = eni.address.filter(|_| !eni.trunk)?;
    Some(Rule::ours(registry::PREF_FROM_ENI, Selector::from(address), eni.table))
}

/// Without the connected route of the kernel: table main belongs to the primary ENI.
fn desired_address(address: IpAddr, subnet: IpNet, link: &Link) -> Option<LinkAddr> {
    let address = IpNet::new(address, subnet.prefix_len()).ok()?;
    let dev = link.index;
    let peer = None;
    Some(LinkAddr { dev, address, peer, global: true, secondary: false, noprefixroute: true })
}

/// Removes the ENI's other addresses: they are for pods, and the host would treat them as local.
fn remove_other_addresses(
    plan: &mut Plan,
    subject: &Subject,
    link: &Link,
    family: Family,
    wanted: Option<LinkAddr>,
    observed: &Observed,
) {
    let other = |address: &&LinkAddr| {
        address.dev == link.index
            && address.global
            && Family::of(address.address.addr()) == family
            && wanted.is_none_or(|wanted| address.address != wanted.address)
    };
    let mut others = observed.addresses.iter().filter(other).peekable();
    let keeps = family == Family::V6
        || link.ipv4.get(&Ipv4Conf::PromoteSecondaries).is_some_and(|value| *value != 0);
    if others.peek().is_some() && !keeps {
        // Otherwise the kernel removes the other addresses of a subnet with its first one, including ours.
        let action = Action::SetIpv4(LinkRef::from(link), Ipv4Conf::PromoteSecondaries, 1);
        plan.push(subject.clone(), action);
    }
    for address in others {
        plan.push(subject.clone(), Action::DeleteAddress(*address));
    }
}

/// True for a route of a secondary ENI in table main that the kernel or a DHCP client made. It would send the primary
/// ENI's traffic by the wrong ENI. Other routes of an administrator stay.
fn is_drift(route: &Route, eni: &EniDesired, link: &Link) -> bool {
    let automatic = matches!(route.protocol, KERNEL | RA | DHCP | registry::ROUTE_PROTOCOL);
    let dst = route.dst;
    route.plain
        && route.table == TableId::MAIN
        && route.dev == Some(link.index)
        && Family::of(dst.addr()) == Family::of(eni.subnet.addr())
        && !is_link_local(dst)
        && (automatic || dst.prefix_len() == 0 || dst == eni.subnet.trunc())
}

/// Every IPv6 link has a link-local route of its own; they do not conflict.
fn is_link_local(dst: IpNet) -> bool {
    match dst {
        IpNet::V4(_) => false,
        IpNet::V6(net) => net.addr().is_unicast_link_local(),
    }
}

fn connected_route(address: &LinkAddr) -> Route {
    let (ip, dst) = (address.address.addr(), address.address.trunc());
    let made = Route { dst, protocol: KERNEL, ..Route::on_link(TableId::MAIN, ip, address.dev) };
    match Family::of(ip) {
        Family::V4 => Route { src: Some(ip), ..made },
        Family::V6 => Route { metric: V6_CONNECTED, ..made },
    }
}

/// `RTPROT_KERNEL`.
const KERNEL: u8 = 2;
/// `RTPROT_RA`.
const RA: u8 = 9;
/// The metric of the kernel's route to an IPv6 subnet (`IP6_RT_PRIO_ADDRCONF`).
const V6_CONNECTED: u32 = 256;
/// `RTPROT_DHCP`.
const DHCP: u8 = 16;
