//! A secondary ENI: its link, its one address, its table, its rule.

use super::{Plan, ensure, link_of_eni, place, remove_rules};
use crate::{
    Action, EniDesired, Ipv4Conf, Link, LinkAddr, LinkRef, Observed, Route, Rule, Scope, Selector,
    Subject,
};
use config_model::{TableId, registry};
use ipnet::{IpNet, Ipv4Net};

pub(super) fn plan(plan: &mut Plan, eni: &EniDesired, observed: &Observed) {
    let subject = Subject::Eni(eni.eni.clone());
    let Some(link) = link_of_eni(plan, &subject, eni.mac, observed) else { return };
    let wanted = wanted_address(eni, link);
    let present =
        observed.addresses.iter().find(|a| (a.dev, a.address) == (link.index, wanted.address));
    if link.mtu != eni.mtu {
        plan.push(subject.clone(), Action::SetMtu(LinkRef::from(link), eni.mtu));
    }
    if !link.up {
        plan.push(subject.clone(), Action::SetUp(LinkRef::from(link)));
    }
    if present.is_none() {
        plan.push(subject.clone(), Action::AddAddress(wanted));
    }
    remove_other_addresses(plan, &subject, link, &wanted, observed);

    place(plan, &subject, Route::on_link(eni.table, eni.gateway(), link.index), observed);
    place(plan, &subject, Route::default_via(eni.table, eni.gateway(), link.index), observed);

    let rule = Rule::ours(registry::PREF_FROM_ENI, Selector::from(eni.address), eni.table);
    ensure(plan, &subject, rule.clone(), observed);
    remove_rules(plan, &subject, observed, |other| {
        (other.pref, &other.selector) == (rule.pref, &rule.selector) && other.table != rule.table
    });

    let in_main = observed.routes.iter().filter(|route| is_drift(route, eni, link));
    for route in in_main {
        plan.push(subject.clone(), Action::DeleteRoute(route.clone()));
    }
    if present.is_some_and(|address| !address.noprefixroute && (!link.up || address.secondary)) {
        // The link coming up, or the address coming first, brings this one back.
        plan.push(subject, Action::DeleteRoute(connected_route(eni, link)));
    }
}

/// Without the kernel's route to the subnet: main is the primary ENI's.
fn wanted_address(eni: &EniDesired, link: &Link) -> LinkAddr {
    let address = Ipv4Net::new_assert(eni.address, eni.subnet.prefix_len());
    LinkAddr {
        dev: link.index,
        address: IpNet::V4(address),
        global: true,
        secondary: false,
        noprefixroute: true,
    }
}

/// The ENI's other addresses are pods'; the host must not take them for its own.
fn remove_other_addresses(
    plan: &mut Plan,
    subject: &Subject,
    link: &Link,
    wanted: &LinkAddr,
    observed: &Observed,
) {
    let other = |address: &&LinkAddr| {
        address.dev == link.index
            && address.global
            && matches!(address.address, IpNet::V4(_))
            && address.address != wanted.address
    };
    let mut others = observed.addresses.iter().filter(other).peekable();
    let keeps = link.ipv4.get(&Ipv4Conf::PromoteSecondaries).is_some_and(|value| *value != 0);
    if others.peek().is_some() && !keeps {
        // Else the first address of a subnet takes the others along, ours among them.
        let action = Action::SetIpv4(LinkRef::from(link), Ipv4Conf::PromoteSecondaries, 1);
        plan.push(subject.clone(), action);
    }
    for address in others {
        plan.push(subject.clone(), Action::DeleteAddress(*address));
    }
}

/// Routes of a secondary ENI in table main that the kernel or a DHCP client made: they would send
/// the primary ENI's traffic by the wrong ENI. What else an administrator put there stays.
fn is_drift(route: &Route, eni: &EniDesired, link: &Link) -> bool {
    let automatic = matches!(route.protocol, KERNEL | DHCP | registry::ROUTE_PROTOCOL);
    let dst = route.dst;
    route.plain
        && route.table == TableId::MAIN
        && route.dev == Some(link.index)
        && (automatic || dst.prefix_len() == 0 || dst == IpNet::V4(eni.subnet.trunc()))
}

fn connected_route(eni: &EniDesired, link: &Link) -> Route {
    Route {
        table: TableId::MAIN,
        dst: IpNet::V4(eni.subnet.trunc()),
        gateway: None,
        dev: Some(link.index),
        scope: Scope::LINK,
        src: Some(eni.address.into()),
        metric: 0,
        protocol: KERNEL,
        plain: true,
    }
}

/// `RTPROT_KERNEL`.
const KERNEL: u8 = 2;
/// `RTPROT_DHCP`.
const DHCP: u8 = 16;
