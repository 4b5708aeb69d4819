//! Links, addresses, routes and rules, one kind of object at a time.

use super::{BOOT, Case, OURS, TestKernel, subnet_address, try_one};
use crate::node::{address, family, key, mac, table};
use config_model::{RuleLayout, TableId, registry};
use routing_plan::{
    Action, Errno, Family, Ipv4Conf, Ipv6Conf, LinkAddr, LinkRef, Op, Route, Rule, RulePattern,
    Selector, Subject, pod,
};

pub(super) const CASES: &[Case] = &[
    ("a link keeps its settings", a_link_keeps_its_settings),
    ("a link that goes down loses its routes, and IPv6 its addresses", down_loses_routes),
    ("a route needs its link, up, and a gateway on it", a_route_needs_its_link),
    ("a route can be replaced in place but not added twice", route_keys),
    ("a route is deleted exactly, and a missing route is no error", route_deletion),
    ("rules can have twins of other protocols, and each is deleted separately", rule_twins),
    ("a purge removes every table and every twin", purge),
    ("a deletion by group removes links and their routes, but not rules", group),
    ("a refused step stops its own subject and no other", refusal),
    ("the host side of a pod is built, recognized as complete, and removed", pod_host_side),
];

/// Cases of IPv4 only, because IPv6 behaves differently.
pub(super) const V4_CASES: &[Case] = &[
    ("an address adds its subnet's route unless noprefixroute is set", subnet_routes),
    (
        "the removal of a subnet's first address removes the others unless they are promoted",
        promotion,
    ),
    ("without its last address a link loses all routes", last_address),
];

fn a_link_keeps_its_settings(kernel: &mut dyn TestKernel) {
    let index = kernel.add_eni("eth1", mac(1));
    let link = LinkRef { index, name: "eth1".to_owned() };
    let alias = key("a").alias();
    for action in [
        Action::SetUp(link.clone()),
        Action::SetMtu(link.clone(), 9001),
        Action::SetAlias(link.clone(), alias.clone()),
        Action::SetGroup(link.clone(), 7),
        Action::SetIpv4(link.clone(), Ipv4Conf::RpFilter, 2),
        Action::SetIpv4(link.clone(), Ipv4Conf::PromoteSecondaries, 1),
        Action::SetIpv6(link.clone(), Ipv6Conf::AcceptRa, 2),
    ] {
        assert_eq!(try_one(kernel, action.clone()).refused, [], "{action}");
    }
    let there = kernel.observe().links[&index].clone();
    assert_eq!((there.up, there.mtu, there.group, there.mac), (true, 9001, 7, Some(mac(1))));
    assert_eq!((there.alias, there.name.as_str()), (Some(alias), "eth1"));
    assert_eq!(there.ipv4[&Ipv4Conf::RpFilter], 2);
    assert_eq!(there.ipv6[&Ipv6Conf::AcceptRa], 2);
    assert_eq!(there.ipv4[&Ipv4Conf::PromoteSecondaries], 1);
    try_one(kernel, Action::SetIpv4(link.clone(), Ipv4Conf::RpFilter, 0));
    assert_eq!(kernel.observe().links[&index].ipv4[&Ipv4Conf::RpFilter], 0);
    let other = key("b").alias();
    assert_eq!(try_one(kernel, Action::Claim(link.clone(), other.clone())).refused, []);
    let there = kernel.observe().links[&index].clone();
    assert_eq!((there.alias, there.group), (Some(other), 0));
    let bad = try_one(kernel, Action::SetMtu(link, 20));
    assert_eq!(bad.refused[0].errno, Errno::EINVAL);
}

fn down_loses_routes(kernel: &mut dyn TestKernel) {
    let dev = up_with_address(kernel);
    try_one(kernel, Action::AddRoute(Route::on_link(table(1), address(1, 1), dev.index)));
    assert!(kernel.observe().routes.iter().any(|route| route.table == table(1)));
    kernel.set_down(dev.index);
    let observed = kernel.observe();
    assert!(!observed.links[&dev.index].up);
    assert!(!observed.routes.iter().any(|route| route.dev == Some(dev.index)));
    let kept = observed.addresses.iter().any(|a| a.dev == dev.index);
    assert_eq!(kept, family() == Family::V4);
}

fn a_route_needs_its_link(kernel: &mut dyn TestKernel) {
    let index = kernel.add_eni("eth1", mac(1));
    let gateway = Route::on_link(table(1), address(1, 1), index);
    let default = Route::default_via(table(1), address(1, 1), index);
    let gone = Route { dev: Some(routing_plan::IfIndex(9999)), ..gateway.clone() };
    let errno = |applied: routing_plan::Applied| applied.refused[0].errno;
    assert_eq!(errno(try_one(kernel, Action::ReplaceRoute(gone))), Errno::ENODEV);
    let down = try_one(kernel, Action::ReplaceRoute(gateway.clone()));
    assert_eq!(errno(down), Errno::ENETDOWN);
    up(kernel, index, "eth1");
    let early = try_one(kernel, Action::ReplaceRoute(default.clone()));
    let unreachable = match family() {
        Family::V4 => Errno::ENETUNREACH,
        Family::V6 => Errno::EHOSTUNREACH,
    };
    assert_eq!(errno(early), unreachable);
    for route in [gateway, default] {
        assert_eq!(try_one(kernel, Action::ReplaceRoute(route.clone())).changed, 1);
        assert!(kernel.observe().routes.contains(&route), "{route} came back otherwise");
    }
}

fn subnet_routes(kernel: &mut dyn TestKernel) {
    let link = up_with_address(kernel);
    let connected = |kernel: &mut dyn TestKernel| {
        let subnet = crate::node::eni(1).subnet;
        kernel.observe().routes.iter().any(|route| route.dst == subnet)
    };
    assert!(connected(kernel));
    kernel.set_down(link.index);
    assert!(!connected(kernel));
    up(kernel, link.index, "eth1");
    assert!(connected(kernel), "it comes back with the link");
    let plain = subnet_address(1, link.index);
    let declined = LinkAddr { noprefixroute: true, ..plain };
    try_one(kernel, Action::DeleteAddress(plain));
    assert_eq!(try_one(kernel, Action::AddAddress(declined)).changed, 1);
    assert!(!connected(kernel));
    assert!(kernel.observe().addresses.contains(&declined));
    assert_eq!(try_one(kernel, Action::AddAddress(declined)).already, 1);
}

fn promotion(kernel: &mut dyn TestKernel) {
    let link = up_with_address(kernel);
    let first = subnet_address(1, link.index);
    let second = LinkAddr { address: "10.0.1.77/24".parse().expect("a prefix"), ..first };
    let there = |kernel: &mut dyn TestKernel, wanted: LinkAddr| {
        kernel.observe().addresses.iter().any(|a| a.address == wanted.address)
    };
    for (promote, survives) in [(0, false), (1, true)] {
        try_one(kernel, Action::SetIpv4(link.clone(), Ipv4Conf::PromoteSecondaries, promote));
        try_one(kernel, Action::AddAddress(first));
        try_one(kernel, Action::AddAddress(second));
        let observed = kernel.observe();
        let as_seen = observed.addresses.iter().find(|a| a.address == second.address);
        assert!(as_seen.is_some_and(|a| a.secondary));
        assert_eq!(try_one(kernel, Action::DeleteAddress(first)).changed, 1);
        assert!(!there(kernel, first));
        assert_eq!(there(kernel, second), survives, "promote_secondaries {promote}");
    }
    assert_eq!(try_one(kernel, Action::DeleteAddress(first)).already, 1);
}

fn last_address(kernel: &mut dyn TestKernel) {
    let link = up_with_address(kernel);
    try_one(kernel, Action::AddRoute(Route::on_link(table(1), address(1, 1), link.index)));
    try_one(kernel, Action::DeleteAddress(subnet_address(1, link.index)));
    assert!(!kernel.observe().routes.iter().any(|route| route.dev == Some(link.index)));
}

fn route_keys(kernel: &mut dyn TestKernel) {
    let (a, b) = (kernel.add_pod_veth("enia", None), kernel.add_pod_veth("enib", None));
    let by_a = Route::on_link(TableId::MAIN, address(1, 20), a);
    let by_b = Route { dev: Some(b), ..by_a.clone() };
    assert_eq!(try_one(kernel, Action::AddRoute(by_a.clone())).changed, 1);
    let conflict = try_one(kernel, Action::AddRoute(by_b.clone()));
    assert_eq!(conflict.refused[0].errno, Errno::EEXIST);
    assert_eq!(try_one(kernel, Action::ReplaceRoute(by_b.clone())).changed, 1);
    let to_pod = |kernel: &mut dyn TestKernel| -> Vec<Route> {
        let routes = kernel.observe().routes.into_iter();
        routes.filter(|route| route.dst == by_a.dst).collect()
    };
    assert_eq!(to_pod(kernel), vec![by_b.clone()]);
    let by_boot = Route { protocol: BOOT, ..by_b };
    assert_eq!(try_one(kernel, Action::ReplaceRoute(by_boot.clone())).changed, 1);
    assert_eq!(to_pod(kernel), [by_boot], "another maker's takes the place as well");
}

fn route_deletion(kernel: &mut dyn TestKernel) {
    let (a, b) = (kernel.add_pod_veth("enia", None), kernel.add_pod_veth("enib", None));
    let by_a = Route::on_link(TableId::MAIN, address(1, 20), a);
    try_one(kernel, Action::AddRoute(by_a.clone()));
    for miss in [
        Route { dev: Some(b), ..by_a.clone() },
        Route { protocol: BOOT, ..by_a.clone() },
        Route { table: table(3), ..by_a.clone() },
    ] {
        assert_eq!(try_one(kernel, Action::DeleteRoute(miss)).already, 1);
        assert!(kernel.observe().routes.contains(&by_a));
    }
    let any_maker = Route { protocol: 0, ..by_a.clone() };
    assert_eq!(try_one(kernel, Action::DeleteRoute(any_maker)).changed, 1);
    assert!(!kernel.observe().routes.contains(&by_a));
}

fn rule_twins(kernel: &mut dyn TestKernel) {
    let ours = Rule::ours(registry::PREF_FROM_POD, Selector::from(address(1, 20)), TableId(10_101));
    let twin = Rule { protocol: BOOT, ..ours.clone() };
    let marked = Rule::marked(family(), registry::CONNMARK);
    for rule in [&ours, &twin, &marked] {
        assert_eq!(try_one(kernel, Action::AddRule(rule.clone())).changed, 1);
        assert_eq!(try_one(kernel, Action::AddRule(rule.clone())).already, 1);
    }
    let rules = kernel.observe().rules;
    assert!(rules.contains(&ours) && rules.contains(&twin) && rules.contains(&marked), "{rules:?}");
    assert!(rules.is_sorted_by_key(|rule| (rule.family, rule.pref)));
    // Ferrule's rule was added first. Only the protocol distinguishes the twins.
    assert_eq!(try_one(kernel, Action::DeleteRule(twin.clone())).changed, 1);
    let rules = kernel.observe().rules;
    assert!(rules.contains(&ours) && !rules.contains(&twin));
    assert_eq!(try_one(kernel, Action::DeleteRule(twin)).already, 1);
    assert!(kernel.observe().rules.contains(&ours));
}

fn purge(kernel: &mut dyn TestKernel) {
    let pod = address(1, 20);
    let other = Rule::ours(registry::PREF_FROM_POD, Selector::from(address(1, 21)), table(1));
    let to_pod = Rule::ours(registry::PREF_TO_POD, Selector::to(pod), TableId::MAIN);
    try_one(kernel, Action::AddRule(other.clone()));
    try_one(kernel, Action::AddRule(to_pod.clone()));
    for table in [table(1), table(2), TableId(10_101)] {
        for protocol in [OURS, BOOT] {
            let from = Rule::ours(registry::PREF_FROM_POD, Selector::from(pod), table);
            try_one(kernel, Action::AddRule(Rule { protocol, ..from }));
        }
    }
    let pattern = RulePattern::From { pref: registry::PREF_FROM_POD, address: pod };
    assert_eq!(try_one(kernel, Action::PurgeRules(pattern)).changed, 1);
    let rules = kernel.observe().rules;
    assert!(!rules.iter().any(|rule| rule.selector == Selector::from(pod)), "{rules:?}");
    assert!(rules.contains(&other) && rules.contains(&to_pod));
    assert_eq!(try_one(kernel, Action::PurgeRules(pattern)).already, 1);
}

fn group(kernel: &mut dyn TestKernel) {
    let dead = [kernel.add_pod_veth("enia", None), kernel.add_pod_veth("enib", None)];
    let alive = kernel.add_pod_veth("enic", None);
    let rule = Rule::ours(registry::PREF_TO_POD, Selector::to(address(1, 20)), TableId::MAIN);
    let route = Route::on_link(TableId::MAIN, address(1, 20), dead[0]);
    try_one(kernel, Action::AddRule(rule.clone()));
    try_one(kernel, Action::AddRoute(route.clone()));
    for index in dead {
        let link = kernel.observe().links[&index].clone();
        assert_eq!(kernel.apply(&[pod::retire(&link)]).changed, 1);
    }
    assert_eq!(try_one(kernel, Action::DeleteGroup(registry::GROUP_REAP)).changed, 1);
    let observed = kernel.observe();
    assert!(dead.iter().all(|index| !observed.links.contains_key(index)));
    assert!(observed.links.contains_key(&alive));
    assert!(!observed.routes.contains(&route) && observed.rules.contains(&rule));
    assert_eq!(try_one(kernel, Action::DeleteGroup(registry::GROUP_REAP)).already, 1);
}

fn refusal(kernel: &mut dyn TestKernel) {
    let index = kernel.add_pod_veth("enia", None);
    let stuck = Subject::Address(address(1, 20));
    let free = Subject::Address(address(1, 21));
    let rule = |host| {
        let rule = Rule::ours(registry::PREF_TO_POD, Selector::to(address(1, host)), TableId::MAIN);
        Action::AddRule(rule)
    };
    let impossible = Route::default_via(table(1), address(9, 9), index);
    let applied = kernel.apply(&[
        Op::new(stuck.clone(), Action::ReplaceRoute(impossible)),
        Op::new(stuck.clone(), rule(20)),
        Op::new(free, rule(21)),
        Op::new(stuck, rule(22)),
    ]);
    assert_eq!((applied.changed, applied.skipped, applied.refused.len()), (1, 2, 1));
    let rules = kernel.observe().rules;
    let ours: Vec<&Rule> = rules.iter().filter(|rule| rule.protocol == OURS).collect();
    assert_eq!(ours.len(), 1);
    assert_eq!(ours[0].selector, Selector::to(address(1, 21)));
}

fn pod_host_side(kernel: &mut dyn TestKernel) {
    let wanted = crate::node::pod(1, 1);
    let index = kernel.add_pod_veth(wanted.veth.as_str(), None);
    let net = pod::PodNet {
        key: wanted.key.clone(),
        veth: wanted.veth,
        address: wanted.address,
        table: wanted.table,
        layout: RuleLayout::PerPod,
        number: 0,
        host_end: pod::HostEnd::Routed,
        mtu: 1500,
        branch: None,
    };
    let applied = kernel.apply(&net.host_batch(index));
    // For IPv6 also the gateway's address.
    let steps = if family() == Family::V4 { 4 } else { 5 };
    assert_eq!((applied.changed, applied.refused), (steps, Vec::new()));
    let observed = kernel.observe();
    assert_eq!(observed.link_of(&wanted.key).map(|link| link.index), Some(index));
    assert!(observed.routes.contains(&net.host_route(index)));
    assert!(net.rules().iter().all(|rule| observed.rules.contains(rule)));
    assert!(routing_plan::addresses_in_use(&observed).contains(&wanted.address));
    let removed = kernel.apply(&pod::removal(wanted.address, Some(index)));
    assert_eq!((removed.changed, removed.refused), (3, Vec::new()));
    assert_eq!(routing_plan::addresses_in_use(&kernel.observe()).len(), 0);
    let again = kernel.apply(&pod::removal(wanted.address, Some(index)));
    // The route is looked up in the table of either layout.
    assert_eq!((again.already, again.refused), (4, Vec::new()));
}

fn up_with_address(kernel: &mut dyn TestKernel) -> LinkRef {
    let index = kernel.add_eni("eth1", mac(1));
    up(kernel, index, "eth1");
    let applied = try_one(kernel, Action::AddAddress(subnet_address(1, index)));
    assert_eq!(applied.changed, 1);
    LinkRef { index, name: "eth1".to_owned() }
}

fn up(kernel: &mut dyn TestKernel, index: routing_plan::IfIndex, name: &str) {
    let applied = try_one(kernel, Action::SetUp(LinkRef { index, name: name.to_owned() }));
    assert_eq!(applied.changed, 1);
}
