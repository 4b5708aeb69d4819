//! A whole node: built from nothing, disturbed, and repaired in one pass.

use super::{BOOT, Case, DHCP, STATIC, Stage, TestKernel, subnet_address};
use crate::{
    lookup::pod_is_connected,
    node::{address, eni, family, key, mac, node, table, within_subnet},
};
use config_model::{RuleLayout, TableId, registry};
use ipnet::{IpNet, Ipv6Net};
use routing_plan::{
    Action, Errno, Family, IfIndex, Ipv4Conf, Ipv6Conf, LinkAddr, Note, Observed, Route, Rule,
    Selector,
    egress::{self, Egress},
    plan,
};
use std::net::{IpAddr, Ipv4Addr};

pub(super) const CASES: &[Case] = &[
    ("a node is built in one pass, and the next plan is empty", built_in_one_pass),
    ("an ENI without its link is not ready until the link appears", waits_for_links),
    ("deleted rules are restored in one pass", deleted_rules),
    ("a flushed table is restored in one pass", flushed_table),
    ("an ENI that was set down is restored in one pass", eni_down),
    ("a pod's veth that was taken down comes back in one pass", pod_veth_down),
    ("changed rp_filter, accept_ra and MTU are repaired in one pass", settings),
    ("addresses and routes of a DHCP client on a secondary ENI are removed in one pass", dhcp),
    ("an ENI set up by DHCP alone is taken over in one pass", taken_over_from_dhcp),
    ("a twin of a rule causes no repair, and is removed with the pod", twins),
    ("leftovers of a pod are removed in one pass", leftovers),
    ("objects of an ADD or a DEL in flight are not touched", in_flight),
    ("foreign objects are not touched", foreign),
    ("rules change between both layouts without an interruption for pods", layouts),
    (
        "routing for the other family is restored in one pass, and is removed with the pod",
        other_family,
    ),
];

/// Cases of IPv6 only.
pub(super) const V6_CASES: &[Case] = &[
    ("the link-local route of a link stays", link_local_stays),
    ("an ENI without an address of its own has its table and no rule", no_own_address),
    ("a trunk has its address and no rule", trunk),
    ("router advertisements of a pod are ignored", ignores_pod_advertisements),
];

fn other_family(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let (dev, other) = (stage.pod_links[1], stage.pod_links[2]);
    stage.desired.egress = true;
    let address = match stage.desired.pods[1].address {
        IpAddr::V4(own) => egress::v6_of(own).into(),
        IpAddr::V6(_) => Ipv4Addr::new(169, 254, 172, 9).into(),
    };
    let second = Egress { address };
    if second.address.is_ipv4() {
        // An operation of an ADD, which `force` cannot repeat.
        stage.force(second.take(dev).action);
        let refused = stage.kernel.apply(&[second.take(other)]).refused;
        assert_eq!(refused.first().map(|refused| refused.errno), Some(Errno::EEXIST));
        stage.force(Action::AddAddress(second.host_address(dev)));
    }
    stage.pass();
    stage.assert_converged();
    let leads = |stage: &mut Stage<'_>| {
        let observed = stage.kernel.observe();
        let mut routes = observed.routes.iter().filter(|r| r.host_address() == Some(address));
        routes.next().and_then(|route| route.dev)
    };
    assert_eq!(leads(&mut stage), Some(dev));
    stage.kernel.set_down(dev);
    assert_eq!(leads(&mut stage), None);
    stage.pass();
    stage.assert_converged();
    assert_eq!(leads(&mut stage), Some(dev));
    stage.force(Action::DeleteRoute(second.host_route(dev)));
    stage.pass();
    assert_eq!(leads(&mut stage), Some(dev));
    stage.desired.pods.remove(1);
    stage.pass();
    stage.assert_converged();
    assert_eq!(leads(&mut stage), None);
    let peers = |of: &Observed| of.addresses.iter().any(|a| a.peer == Some(address));
    assert!(!peers(&stage.kernel.observe()));
}

fn link_local_stays(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let dev = stage.eni_links[0];
    let own: Ipv6Net = "fe80::99/64".parse().expect("a prefix");
    let own = LinkAddr { address: own.into(), global: false, ..subnet_address(1, dev) };
    stage.force(Action::AddAddress(own));
    let leads =
        |observed: &Observed| observed.routes.iter().any(|route| route.dst == own.address.trunc());
    assert!(leads(&stage.kernel.observe()));
    stage.assert_converged();
}

fn no_own_address(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let former = stage.desired.enis[0].address.take().expect("the ENI had an address");
    stage.pass();
    stage.assert_converged();
    let observed = stage.kernel.observe();
    assert!(!observed.rules.iter().any(|rule| rule.selector == Selector::from(former)));
    assert!(!observed.addresses.iter().any(|a| a.address.addr() == former));
    assert_connected(&mut stage);
}

fn trunk(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    stage.desired.enis[0].trunk = true;
    stage.pass();
    stage.assert_converged();
    let rules = stage.kernel.observe().rules;
    assert!(!rules.iter().any(|rule| rule.selector == Selector::from(address(1, 5))));
}

fn ignores_pod_advertisements(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let veth = stage.link(stage.pod_links[0]);
    stage.force(Action::SetIpv6(veth.clone(), Ipv6Conf::AcceptRa, 1));
    repaired(&mut stage);
    let link = stage.kernel.observe().links[&veth.index].clone();
    assert_eq!(link.ipv6[&Ipv6Conf::AcceptRa], 0);
}

fn built_in_one_pass(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::raw(kernel);
    let before = plan(&stage.desired, &stage.kernel.observe());
    assert!(!before.ready(&eni(1).eni) && !before.node_ready());
    stage.pass();
    stage.assert_converged();
    assert_connected(&mut stage);
    let observed = stage.kernel.observe();
    for n in [1, 2] {
        let dev = stage.eni_links[usize::from(n) - 1];
        assert_eq!(observed.links[&dev].mtu, registry::ENI_MTU);
        let on_link = |a: &&LinkAddr| a.dev == dev && a.global;
        let addresses: Vec<IpNet> =
            observed.addresses.iter().filter(on_link).map(|a| a.address).collect();
        assert_eq!(addresses, [subnet_address(n, dev).address]);
        let in_main = |route: &&Route| route.table == TableId::MAIN && route.dev == Some(dev);
        assert_eq!(observed.routes.iter().filter(in_main).count(), 0);
    }
}

fn layouts(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    for eni in &mut stage.desired.enis {
        eni.blocks = eni.blocks.iter().map(|block| block.supernet().unwrap_or(*block)).collect();
    }
    let fresh = stage.kernel.observe();
    for (layout, pods) in [(RuleLayout::Compact, 3), (RuleLayout::PerPod, 0)] {
        stage.desired.layout = layout;
        for _ in 0..3 {
            stage.pass();
            assert_connected(&mut stage);
        }
        stage.assert_converged();
        let routes = stage.kernel.observe().routes;
        assert_eq!(routes.iter().filter(|route| route.table == TableId::PODS).count(), pods);
    }
    assert_same(&fresh, &stage.kernel.observe());
}

fn waits_for_links(kernel: &mut dyn TestKernel) {
    let desired = node(1, Vec::new());
    kernel.add_eni("eth0", mac(0));
    let observed = kernel.observe();
    let waiting = plan(&desired, &observed);
    assert!(!waiting.ready(&eni(1).eni));
    let text = waiting.notes.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(text, ["eni-1: waiting for link with MAC 02:00:00:00:00:01"]);
    kernel.apply(&waiting.ops);
    // The name of the link does not matter.
    kernel.add_eni("ens6", mac(1));
    let mut stage = Stage { kernel, desired, pod_links: Vec::new(), eni_links: Vec::new() };
    stage.pass();
    stage.assert_converged();
}

fn deleted_rules(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let ours = |rule: &Rule| rule.protocol == registry::ROUTE_PROTOCOL;
    let rules: Vec<Rule> = stage.kernel.observe().rules.into_iter().filter(ours).collect();
    // Marked traffic, external Services, two ENIs, and three pods of which two use a secondary ENI.
    assert_eq!(rules.len(), 1 + 1 + 2 + 3 + 2, "{rules:?}");
    for rule in &rules {
        stage.force(Action::DeleteRule(rule.clone()));
    }
    repaired(&mut stage);
    let back = stage.kernel.observe().rules;
    assert!(rules.iter().all(|rule| back.contains(rule)));
}

fn flushed_table(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let routes = stage.kernel.observe().routes;
    let ours = |route: &&Route| route.protocol == registry::ROUTE_PROTOCOL;
    for route in routes.iter().filter(ours).rev() {
        stage.force(Action::DeleteRoute(route.clone()));
    }
    repaired(&mut stage);
}

fn eni_down(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    stage.kernel.set_down(stage.eni_links[0]);
    repaired(&mut stage);
}

fn pod_veth_down(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    stage.kernel.set_down(stage.pod_links[1]);
    repaired(&mut stage);
}

fn settings(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let observed = stage.kernel.observe();
    let primary = observed.link_named("eth0").map(|link| link.index).expect("eth0 was made");
    let (primary, secondary) = (stage.link(primary), stage.link(stage.eni_links[1]));
    stage.force(match family() {
        Family::V4 => Action::SetIpv4(primary.clone(), Ipv4Conf::RpFilter, 1),
        Family::V6 => Action::SetIpv6(primary.clone(), Ipv6Conf::AcceptRa, 1),
    });
    stage.force(Action::SetMtu(primary.clone(), 1500));
    stage.force(Action::SetMtu(secondary, 1500));
    repaired(&mut stage);
    let link = stage.kernel.observe().links[&primary.index].clone();
    let set = match family() {
        Family::V4 => link.ipv4[&Ipv4Conf::RpFilter],
        Family::V6 => link.ipv6[&Ipv6Conf::AcceptRa],
    };
    assert_eq!((set, link.mtu), (2, registry::ENI_MTU));
}

fn dhcp(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let dev = stage.eni_links[0];
    // A secondary address that DHCP never assigns, and the routes that DHCP adds.
    let extra = within_subnet(1, 66);
    stage.force(Action::AddAddress(LinkAddr { address: extra, ..subnet_address(1, dev) }));
    let gateway = Route::on_link(TableId::MAIN, address(1, 1), dev);
    let default = Route::default_via(TableId::MAIN, address(1, 1), dev);
    for (metric, protocol) in [(512, DHCP), (600, BOOT)] {
        stage.force(Action::AddRoute(Route { metric, protocol: DHCP, ..gateway.clone() }));
        stage.force(Action::AddRoute(Route { metric, protocol, ..default.clone() }));
    }
    repaired(&mut stage);
    let observed = stage.kernel.observe();
    let in_main = |route: &&Route| route.table == TableId::MAIN && route.dev == Some(dev);
    assert_eq!(observed.routes.iter().filter(in_main).count(), 0, "{:?}", observed.routes);
    assert!(!observed.addresses.iter().any(|a| a.address == extra));
}

fn taken_over_from_dhcp(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::raw(kernel);
    // While the subnet has another address, the ENI's address adds no route. It adds one when the other
    // address is removed.
    let extra = subnet_address(1, stage.eni_links[0]);
    let extra = LinkAddr { address: within_subnet(1, 66), ..extra };
    stage.force(Action::AddAddress(extra));
    for (n, dev) in [(1, stage.eni_links[0]), (2, stage.eni_links[1])] {
        let link = stage.link(dev);
        stage.force(Action::SetUp(link));
        stage.force(Action::AddAddress(subnet_address(n, dev)));
        let default = Route::default_via(TableId::MAIN, address(n, 1), dev);
        stage.force(Action::AddRoute(Route {
            metric: 100 + u32::from(n),
            protocol: DHCP,
            ..default
        }));
    }
    let seen = stage.kernel.observe().addresses;
    let own = subnet_address(1, extra.dev).address;
    let secondary = seen.iter().any(|a| a.address == own && a.secondary);
    assert_eq!(secondary, family() == Family::V4);
    // While the link is down, the subnet's route does not exist. The repair itself causes it.
    stage.kernel.set_down(stage.eni_links[1]);
    stage.pass();
    stage.assert_converged();
    assert_connected(&mut stage);
}

fn twins(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let rules = [
        Rule::ours(registry::PREF_TO_POD, Selector::to(address(1, 21)), TableId::MAIN),
        Rule::ours(registry::PREF_FROM_POD, Selector::from(address(1, 21)), table(1)),
    ];
    for rule in &rules {
        stage.force(Action::AddRule(Rule { protocol: BOOT, ..rule.clone() }));
    }
    stage.assert_converged();
    for rule in &rules {
        stage.force(Action::DeleteRule(rule.clone()));
    }
    stage.assert_converged();
    assert_connected(&mut stage);
    for rule in &rules {
        stage.force(Action::AddRule(rule.clone()));
    }
    stage.desired.pods.remove(1);
    stage.pass();
    stage.assert_converged();
    let left = stage.kernel.observe().rules;
    assert!(!left.iter().any(|rule| rules.iter().any(|gone| gone.is_twin_of(rule))), "{left:?}");
}

fn leftovers(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let gone = stage.desired.pods.remove(2);
    let former = stage.desired.enis.remove(1);
    let left = stage.pod_links.remove(2);
    stage.pass();
    stage.assert_converged();
    let observed = stage.kernel.observe();
    assert!(!observed.links.contains_key(&left), "its veth");
    assert!(!routing_plan::addresses_in_use(&observed).contains(&gone.address));
    let names = |rule: &Rule| {
        rule.selector == Selector::from(former.address.expect("the ENI has an address"))
    };
    assert!(!observed.rules.iter().any(names), "the rule of the ENI that left");
    assert_connected(&mut stage);
}

fn in_flight(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    // One pod is reserved and half built. Another has nothing but its address.
    stage.desired.pods[1].confirmed = false;
    let spared = stage.desired.pods.remove(2).address;
    stage.desired.spared.insert(spared);
    let veth = stage.pod_links[2];
    let link = stage.link(veth);
    stage.force(Action::SetAlias(link, "someone".to_owned()));
    let rule = Rule::ours(registry::PREF_TO_POD, Selector::to(address(1, 21)), TableId::MAIN);
    stage.force(Action::DeleteRule(rule));
    let before = stage.kernel.observe();
    stage.assert_converged();
    assert_eq!(stage.kernel.observe(), before);
}

fn foreign(kernel: &mut dyn TestKernel) {
    let mut stage = Stage::converged(kernel);
    let calico = stage.kernel.add_pod_veth("cali0123", Some("foreign pod"));
    let unmanaged = address(99, 9);
    let dev = stage.eni_links[0];
    let rules = [
        // Ferrule's priorities with addresses that are not on its ENIs.
        Rule::ours(registry::PREF_TO_POD, Selector::to(unmanaged), TableId::MAIN),
        Rule::ours(registry::PREF_FROM_POD, Selector::from(unmanaged), TableId(99)),
        // An address of Ferrule with another priority.
        Rule::ours(600, Selector::from(address(1, 70)), TableId(99)),
        Rule { table: TableId(99), ..Rule::marked(family(), OTHER_MARK) },
        // Priority and address of Ferrule, with a selector that is narrower than Ferrule's.
        Rule::ours(
            registry::PREF_TO_POD,
            Selector { iif: Some("lo".to_owned()), ..Selector::to(address(1, 71)) },
            TableId::MAIN,
        ),
    ];
    for rule in rules {
        stage.force(Action::AddRule(Rule { protocol: STATIC, ..rule }));
    }
    let routes = [
        Route::on_link(TableId::MAIN, unmanaged, calico),
        // An address of Ferrule over a veth that is not Ferrule's.
        Route::on_link(TableId::MAIN, address(1, 72), calico),
        Route { dst: within_subnet(88, 0), ..Route::on_link(TableId::MAIN, unmanaged, dev) },
        Route::on_link(TableId(77), address(1, 73), dev),
    ];
    for route in routes {
        stage.force(Action::AddRoute(Route { protocol: STATIC, ..route }));
    }
    stage.assert_converged();
    // They also stay when there are repairs.
    let before = stage.kernel.observe();
    stage.kernel.set_down(stage.pod_links[0]);
    repaired(&mut stage);
    assert_same(&stage.kernel.observe(), &before);
    // A foreign link in the reap group prevents the deletion of the group as a whole.
    let link = stage.link(calico);
    stage.force(Action::SetGroup(link, registry::GROUP_REAP));
    let orphan = stage.kernel.add_pod_veth("eniorphan", Some(&key("gone").alias()));
    let applied = stage.pass();
    assert_eq!(applied.changed, 1);
    let observed = stage.kernel.observe();
    assert!(observed.links.contains_key(&calico) && !observed.links.contains_key(&orphan));
    let notes = plan(&stage.desired, &observed).notes;
    assert_eq!(notes, [Note::ForeignInReapGroup { link: calico }]);
}

/// One pass, after which the next plan is empty.
fn repaired(stage: &mut Stage<'_>) {
    let applied = stage.pass();
    assert!(applied.changed > 0, "there was nothing to repair");
    stage.assert_converged();
    assert_connected(stage);
}

fn assert_connected(stage: &mut Stage<'_>) {
    let observed = stage.kernel.observe();
    for wanted in &stage.desired.pods {
        let n = (0..=2).find(|n| table(*n) == wanted.table).expect("a table of the stage");
        assert!(pod_is_connected(&observed, wanted, mac(n)), "{} in {observed:#?}", wanted.address);
    }
}

/// The same objects; the order of routes and of rules of one priority may differ.
fn assert_same(a: &Observed, b: &Observed) {
    let sorted = |observed: &Observed| {
        let (mut rules, mut routes) = (observed.rules.clone(), observed.routes.clone());
        rules.sort();
        routes.sort();
        let links: Vec<IfIndex> = observed.links.keys().copied().collect();
        (rules, routes, links)
    };
    assert_eq!(sorted(a), sorted(b));
}

const OTHER_MARK: config_model::Mark = config_model::Mark { value: 0x4000, mask: 0xc000 };
