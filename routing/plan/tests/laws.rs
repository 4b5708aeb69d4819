//! The laws of every plan, on kernels in any state and with faults at any step.
//!
//! It *converges*: applied, it leads to the desired state. It *rests*: the next plan is empty. It *resumes*: after an
//! interruption at any step, the next plan converges. It *spares* foreign objects. It never disconnects a pod that is
//! connected before and after.

use config_model::{HostEndMode, Mac, Mark, RuleLayout, TableId, registry};
use ipnet::IpNet;
use proptest::{collection::vec, prelude::*, sample::subsequence};
use routing_plan::{
    Action, Applied, Errno, Family, IfIndex, LinkAddr, LinkKind, LinkRef, Neighbor, NodeDesired,
    Observed, Op, Plan, PodDesired, Route, Rule, Selector, Subject,
    egress::{self, Egress},
    plan,
    pod::{self, GatewayPort, HostEnd},
};
use std::collections::BTreeSet;
use tests_support::{
    FakeKernel,
    node::{
        address, eni, family, far, key, mac, node, pod as pod_of, range, set_family, table,
        within_subnet,
    },
    pod_is_connected,
};

/// One drifted, foreign or conflicting object.
#[derive(Clone, Debug)]
enum Mess {
    /// The result of a pod's ADD with any protocol number, for a pod that may be desired or not.
    BuiltPod { n: u8, i: u8, protocol: u8, wrong_table: bool },
    /// The result of a pod's ADD with layout compact.
    BuiltCompact { n: u8, i: u8 },
    /// A rule that pods share: to all of them, or from a prefix or a mark to the table of some ENI.
    Shared { kind: u8, n: u8, table: u8 },
    /// An address whose packets netfilter no longer marks.
    Unmarked { address: usize },
    /// A rule of a pod priority for an address of an ENI.
    StrayRule { n: u8, host: u8, table: u8, to: bool, protocol: u8 },
    /// A host route for an address of an ENI, by some link.
    StrayRoute { n: u8, host: u8, link: usize, metric: u32, protocol: u8 },
    /// A second route of a key, in front of or behind what is there.
    Appended { route: usize, link: usize },
    /// The address and routes of a DHCP client.
    Dhcp { n: u8, metric: u32, host: u8 },
    /// Routes of another program in an ENI's table.
    TableRoute { n: u8, link: usize, metric: u32, protocol: u8 },
    /// A former ENI's rule.
    FormerEni { host: u8, protocol: u8 },
    /// A rule for marked traffic.
    Marked { value: u32, protocol: u8 },
    /// A rule for an external Service.
    External { number: u8, protocol: u8 },
    /// A veth with the alias of an unknown pod.
    OrphanVeth { id: u8, doomed: bool },
    /// A running pod's veth in the reap group.
    DoomedPod { pod: usize },
    /// A foreign object.
    Foreign { kind: u8, host: u8 },
    /// The second address of an IPv6 pod.
    Leased { pod: usize },
    /// A route to a second IPv4 address by some link, of an interrupted ADD or another program.
    StrayLease { host: u8, link: usize, protocol: u8 },
    /// A route to the second address of an IPv4 address.
    StrayEgress { n: u8, host: u8, link: usize },
    /// A permanent neighbor entry on the gateway port, for an address of an ENI.
    StrayNeighbor { n: u8, host: u8 },
    /// A gateway port that was deleted and created again.
    NewGatewayPort,
    /// A neighbor entry that is gone.
    LostNeighbor { index: usize },
    /// A link taken down.
    Down { link: usize },
    /// Some rule or route gone.
    Lost { index: usize },
}

fn mess() -> impl Strategy<Value = Mess> {
    let protocol = || prop_oneof![Just(registry::ROUTE_PROTOCOL), Just(3_u8)];
    let metric = || prop_oneof![4 => Just(0_u32), 1 => Just(512)];
    prop_oneof![
        4 => (0..=2_u8, 0..6_u8, protocol(), prop::bool::weighted(0.2)).prop_map(
            |(n, i, protocol, wrong_table)| Mess::BuiltPod { n, i, protocol, wrong_table }
        ),
        2 => (0..=2_u8, 0..6_u8).prop_map(|(n, i)| Mess::BuiltCompact { n, i }),
        2 => (0..4_u8, 1..=2_u8, 0..=3_u8)
            .prop_map(|(kind, n, table)| Mess::Shared { kind, n, table }),
        1 => (0..12_usize).prop_map(|address| Mess::Unmarked { address }),
        2 => (0..=2_u8, 18..30_u8, 0..=3_u8, any::<bool>(), protocol()).prop_map(
            |(n, host, table, to, protocol)| Mess::StrayRule { n, host, table, to, protocol }
        ),
        2 => (0..=2_u8, 18..30_u8, 0..8_usize, metric(), protocol()).prop_map(
            |(n, host, link, metric, protocol)| Mess::StrayRoute { n, host, link, metric, protocol }
        ),
        1 => (0..40_usize, 0..8_usize).prop_map(|(route, link)| Mess::Appended { route, link }),
        2 => (1..=2_u8, metric(), 4..8_u8)
            .prop_map(|(n, metric, host)| Mess::Dhcp { n, metric, host }),
        1 => (1..=2_u8, 0..8_usize, metric(), protocol()).prop_map(
            |(n, link, metric, protocol)| Mess::TableRoute { n, link, metric, protocol }
        ),
        1 => (0..9_u8, protocol()).prop_map(|(host, protocol)| Mess::FormerEni { host, protocol }),
        1 => (0..3_u8, protocol()).prop_map(|(number, protocol)| Mess::External { number, protocol }),
        1 => (0..2_u32, protocol()).prop_map(|(value, protocol)| Mess::Marked {
            value: 0x40 << value,
            protocol
        }),
        2 => (0..4_u8, any::<bool>()).prop_map(|(id, doomed)| Mess::OrphanVeth { id, doomed }),
        1 => (0..6_usize).prop_map(|pod| Mess::DoomedPod { pod }),
        3 => (0..6_u8, 1..40_u8).prop_map(|(kind, host)| Mess::Foreign { kind, host }),
        2 => (0..8_usize).prop_map(|pod| Mess::Leased { pod }),
        1 => (2..12_u8, 0..8_usize, protocol())
            .prop_map(|(host, link, protocol)| Mess::StrayLease { host, link, protocol }),
        1 => (0..=2_u8, 18..30_u8, 0..8_usize)
            .prop_map(|(n, host, link)| Mess::StrayEgress { n, host, link }),
        2 => (0..=2_u8, 18..30_u8).prop_map(|(n, host)| Mess::StrayNeighbor { n, host }),
        1 => Just(Mess::NewGatewayPort),
        1 => (0..8_usize).prop_map(|index| Mess::LostNeighbor { index }),
        1 => (0..8_usize).prop_map(|link| Mess::Down { link }),
        3 => (0..60_usize).prop_map(|index| Mess::Lost { index }),
    ]
}

/// A link with the name of a pod's host veth that is not the pod's.
#[derive(Clone, Copy, Debug)]
enum Impostor {
    /// Created by the ADD of another pod, without an alias yet.
    New,
    Unmarked,
    /// With the alias of another pod.
    Marked,
}

fn impostor() -> impl Strategy<Value = Impostor> {
    prop_oneof![Just(Impostor::New), Just(Impostor::Unmarked), Just(Impostor::Marked)]
}

/// A node, its kernel before any plan, and how much of a first plan was once carried out.
#[derive(Clone, Debug)]
struct World {
    desired: NodeDesired,
    kernel: FakeKernel,
    foreign: Vec<Foreign>,
}

/// An object that must be unchanged afterwards.
#[derive(Clone, Debug, PartialEq)]
enum Foreign {
    Rule(Rule),
    Route(Route),
    Link(IfIndex),
    Neighbor(Neighbor),
    /// The bridge that a link is a port of.
    Membership(IfIndex, Option<IfIndex>),
}

fn world() -> impl Strategy<Value = World> {
    let everyone: Vec<(u8, u8)> = (0..=2).flat_map(|n| (0..4).map(move |i| (n, i))).collect();
    let pods = subsequence(everyone, 0..=8);
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    let layout = || prop_oneof![Just(RuleLayout::PerPod), Just(RuleLayout::Compact)];
    let once = prop::option::of(layout());
    let bridged = vec(any::<bool>(), 12);
    let flags = (vec(any::<bool>(), 12), bridged, vec(any::<bool>(), 3));
    let flags = (flags, once, layout(), any::<bool>());
    (family, pods, flags, vec(mess(), 0..14)).prop_map(
        |(family, pods, ((flags, bridged, attached), once, layout, egress), messes)| {
            // The test uses this family for the world.
            set_family(family);
            let pods: Vec<PodDesired> = pods
                .into_iter()
                .zip(flags.into_iter().zip(bridged))
                .map(|((n, i), (confirmed, bridged))| PodDesired {
                    confirmed: confirmed || i > 0,
                    host_end: host_end(bridged),
                    ..pod_of(n, i)
                })
                .collect();
            let desired = NodeDesired { layout, egress, ..node(2, pods) };
            build(desired, &attached, once, &messes)
        },
    )
}

fn build(
    mut desired: NodeDesired,
    attached: &[bool],
    once: Option<RuleLayout>,
    messes: &[Mess],
) -> World {
    let mut kernel = FakeKernel::default();
    let eth0 = kernel.add_link("eth0", mac(0), LinkKind::Device);
    force(&mut kernel, Action::SetUp(link(eth0)));
    add_address(&mut kernel, eth0, 0, 5, false);
    let default = Route::default_via(TableId::MAIN, address(0, 1), eth0);
    force(&mut kernel, Action::AddRoute(Route { protocol: 3, ..default }));
    for n in 1..=2_u8 {
        if attached[usize::from(n)] {
            kernel.add_link(&format!("eth{n}"), mac(n), LinkKind::Device);
        }
    }
    add_gateway_port(&mut kernel);
    for pod in &desired.pods.clone() {
        let veth = kernel.add_link(pod.veth.as_str(), pod_mac(pod), LinkKind::Veth);
        force(&mut kernel, Action::SetUp(link(veth)));
        force(&mut kernel, Action::SetAlias(link(veth), pod.key.alias()));
        if pod.host_end != HostEndMode::Routed {
            // The bridge's owner has made the host end a port.
            let port = gateway_port(&kernel);
            kernel.state.links.entry(veth).and_modify(|link| link.master = Some(port.index));
        }
    }
    if let Some(layout) = once {
        // The result of an earlier daemon, with the other layout or the same.
        settle(&NodeDesired { layout, ..desired.clone() }, &mut kernel);
    }
    let mut foreign = Vec::new();
    for mess in messes {
        spoil(&mut kernel, &mut desired, mess, &mut foreign);
    }
    let memberships = kernel.state.links.values().map(|link| (link.index, link.master));
    let memberships = memberships.filter(|(_, master)| master.is_some());
    foreign.extend(memberships.map(|(port, master)| Foreign::Membership(port, master)));
    // No plan can spare an object that a later mess destroyed.
    foreign.retain(|thing| is_there(thing, &kernel.state));
    kernel.calls.clear();
    World { desired, kernel, foreign }
}

fn spoil(
    kernel: &mut FakeKernel,
    desired: &mut NodeDesired,
    mess: &Mess,
    foreign: &mut Vec<Foreign>,
) {
    match *mess {
        Mess::BuiltPod { n, i, protocol, wrong_table } => {
            let mut pod = pod_of(n, i);
            if wrong_table {
                pod.table = table(2 - n);
            }
            let Some(veth) = kernel.state.link_named(pod.veth.as_str()).map(|link| link.index)
            else {
                return;
            };
            let route = Route::on_link(TableId::MAIN, pod.address, veth);
            attempt(kernel, Action::ReplaceRoute(Route { protocol, ..route }));
            let to = Rule::ours(registry::PREF_TO_POD, Selector::to(pod.address), TableId::MAIN);
            attempt(kernel, Action::AddRule(Rule { protocol, ..to }));
            let from = Rule::ours(registry::PREF_FROM_POD, Selector::from(pod.address), pod.table);
            attempt(kernel, Action::AddRule(Rule { protocol, ..from }));
        }
        Mess::BuiltCompact { n, i } => {
            let pod = pod_of(n, i);
            let Some(veth) = kernel.state.link_named(pod.veth.as_str()).map(|link| link.index)
            else {
                return;
            };
            for op in pod_net(kernel, &pod, RuleLayout::Compact).host_batch(veth) {
                attempt(kernel, op.action);
            }
        }
        Mess::Shared { kind, n, table: t } => {
            let prefix = eni(n).blocks.into_iter().next_back().expect("it has blocks");
            let mark = Mark::of_table(table(n)).expect("it has a mark");
            let rule = match kind {
                0 => Rule::to_pods(family()),
                1 => Rule::from_prefix(prefix, table(t)),
                2 => Rule { family: family(), ..Rule::from_marked(mark, table(n)) },
                _ => Rule::from_prefix(within_subnet(n, 0), table(t)),
            };
            attempt(kernel, Action::AddRule(rule));
        }
        Mess::Unmarked { address } => {
            if let Some(address) = kernel.state.marked.keys().nth(address).copied() {
                kernel.state.marked.remove(&address);
            }
        }
        Mess::StrayRule { n, host, table: t, to, protocol } => {
            let address = address(n, host);
            let rule = if to {
                Rule::ours(registry::PREF_TO_POD, Selector::to(address), table(t))
            } else {
                Rule::ours(registry::PREF_FROM_POD, Selector::from(address), table(t))
            };
            attempt(kernel, Action::AddRule(Rule { protocol, ..rule }));
        }
        Mess::StrayRoute { n, host, link, metric, protocol } => {
            let Some(dev) = nth_link(kernel, link) else { return };
            let route = Route::on_link(TableId::MAIN, address(n, host), dev);
            attempt(kernel, Action::AddRoute(Route { metric, protocol, ..route }));
        }
        Mess::Appended { route, link } => {
            let (Some(route), Some(dev)) =
                (kernel.state.routes.get(route).cloned(), nth_link(kernel, link))
            else {
                return;
            };
            // Only routes that hide ours, and only over a link that is up.
            let ours = route.protocol == registry::ROUTE_PROTOCOL;
            if ours && route.gateway.is_none() && kernel.state.links[&dev].up {
                kernel.append_route(Route { dev: Some(dev), ..route });
            }
        }
        Mess::Dhcp { n, metric, host } => {
            let Some(dev) = kernel.state.link_named(&format!("eth{n}")).map(|link| link.index)
            else {
                return;
            };
            force(kernel, Action::SetUp(link(dev)));
            add_address(kernel, dev, n, host, false);
            let default = Route::default_via(TableId::MAIN, address(n, 1), dev);
            attempt(kernel, Action::AddRoute(Route { metric, protocol: 16, ..default }));
        }
        Mess::TableRoute { n, link, metric, protocol } => {
            let Some(dev) = nth_link(kernel, link) else { return };
            let route = Route::on_link(table(n), address(n, 1), dev);
            attempt(kernel, Action::AddRoute(Route { metric, protocol, ..route.clone() }));
            let default = Route::default_via(table(n), address(n, 1), dev);
            attempt(kernel, Action::AddRoute(Route { metric, protocol, ..default }));
        }
        Mess::FormerEni { host, protocol } => {
            let former =
                Rule::ours(registry::PREF_FROM_ENI, Selector::from(address(7, host)), TableId(9));
            let former = Rule { protocol, ..former };
            if try_one(kernel, Action::AddRule(former.clone())) && protocol == 3 {
                foreign.push(Foreign::Rule(former));
            }
        }
        Mess::Marked { value, protocol } => {
            let mark = config_model::Mark { value, mask: value };
            let rule = Rule::marked(family(), mark);
            let rule = Rule { protocol, ..rule };
            if try_one(kernel, Action::AddRule(rule.clone())) && protocol == 3 {
                foreign.push(Foreign::Rule(rule));
            }
        }
        Mess::External { number, protocol } => {
            let rule = Rule { protocol, ..Rule::external(range(number)) };
            if try_one(kernel, Action::AddRule(rule.clone())) && protocol == 3 {
                foreign.push(Foreign::Rule(rule));
            }
        }
        Mess::OrphanVeth { id, doomed } => {
            let veth = kernel.add_link(&format!("eniold{id}"), Mac([9; 6]), LinkKind::Veth);
            let alias = key(&format!("old{id}")).alias();
            force(kernel, Action::SetAlias(link(veth), alias));
            if doomed {
                force(kernel, Action::SetGroup(link(veth), registry::GROUP_REAP));
            }
        }
        Mess::DoomedPod { pod } => {
            let veth = desired.pods.get(pod).and_then(|pod| kernel.state.link_of(&pod.key));
            if let Some(veth) = veth.map(LinkRef::from) {
                force(kernel, Action::SetGroup(veth, registry::GROUP_REAP));
            }
        }
        Mess::Leased { pod } => {
            let Some(of) = desired.pods.get(pod).filter(|_| family() == Family::V6) else { return };
            let Some(veth) = kernel.state.link_of(&of.key).map(|link| link.index) else { return };
            let Ok(host) = u8::try_from(pod) else { return };
            for op in leased(2 + host).host_batch(veth) {
                attempt(kernel, op.action);
            }
        }
        Mess::StrayLease { host, link, protocol } => {
            let Some(dev) = nth_link(kernel, link) else { return };
            let route = leased(host).host_route(dev);
            attempt(kernel, Action::AddRoute(Route { protocol, ..route }));
        }
        Mess::StrayEgress { n, host, link } => {
            let (Some(dev), Some(egress)) = (nth_link(kernel, link), egress_of(address(n, host)))
            else {
                return;
            };
            attempt(kernel, Action::AddRoute(egress.host_route(dev)));
        }
        Mess::StrayNeighbor { n, host } => {
            let dev = gateway_port(kernel).index;
            let mac = Some(Mac([0x0a, 0, 0, 7, n, host]));
            let entry = Neighbor { dev, address: address(n, host), mac, permanent: true };
            attempt(kernel, Action::SetNeighbor(entry));
        }
        Mess::NewGatewayPort => {
            let old = gateway_port(kernel).index;
            force(kernel, Action::DeleteLink(link(old)));
            add_gateway_port(kernel);
        }
        Mess::LostNeighbor { index } => {
            if let Some(entry) = kernel.state.neighbors.get(index).copied() {
                force(kernel, Action::DeleteNeighbor(entry));
            }
        }
        Mess::Foreign { kind, host } => add_foreign(kernel, kind, host, foreign),
        Mess::Down { link } => {
            if let Some(dev) =
                nth_link(kernel, link).filter(|dev| *dev != gateway_port(kernel).index)
            {
                kernel.set_down(dev);
            }
        }
        Mess::Lost { index } => {
            let rules: Vec<Rule> =
                kernel.state.rules.iter().filter(|rule| rule.protocol != 2).cloned().collect();
            if let Some(rule) = rules.get(index % 32) {
                force(kernel, Action::DeleteRule(rule.clone()));
            } else if let Some(route) = kernel.state.routes.get(index % 32).cloned() {
                // The primary ENI's own routes are the network manager's.
                let primary = route.protocol == 3 && route.dev == Some(IfIndex(2));
                if !primary {
                    attempt(kernel, Action::DeleteRoute(route));
                }
            }
        }
    }
}

fn add_foreign(kernel: &mut FakeKernel, kind: u8, host: u8, foreign: &mut Vec<Foreign>) {
    let unmanaged = address(99, host);
    let rule =
        |pref, selector, table| Rule { protocol: 4, ..Rule::ours(pref, selector, TableId(table)) };
    let dev = gateway_port(kernel).index;
    let entry = Neighbor { dev, address: unmanaged, mac: Some(Mac([8; 6])), permanent: true };
    if try_one(kernel, Action::SetNeighbor(entry)) {
        foreign.push(Foreign::Neighbor(entry));
    }
    let rule = match kind {
        0 => rule(registry::PREF_TO_POD, Selector::to(unmanaged), 254),
        1 => rule(registry::PREF_FROM_POD, Selector::from(unmanaged), 77),
        2 => rule(600, Selector::from(address(1, host)), 77),
        3 => {
            let narrow = Selector { iif: Some("lo".to_owned()), ..Selector::to(address(1, host)) };
            rule(registry::PREF_TO_POD, narrow, 254)
        }
        _ => {
            let name = format!("cali{host}");
            let veth = kernel.add_link(&name, Mac([8; 6]), LinkKind::Veth);
            force(kernel, Action::SetUp(link(veth)));
            foreign.push(Foreign::Link(veth));
            if kind == 5 {
                force(kernel, Action::SetGroup(link(veth), registry::GROUP_REAP));
            }
            let route = Route { protocol: 3, ..Route::on_link(TableId::MAIN, unmanaged, veth) };
            if try_one(kernel, Action::AddRoute(route.clone())) {
                foreign.push(Foreign::Route(route));
            }
            return;
        }
    };
    if try_one(kernel, Action::AddRule(rule.clone())) {
        foreign.push(Foreign::Rule(rule));
    }
}

proptest! {
    #[test]
    fn a_plan_converges_and_rests(world in world()) {
        let World { desired, mut kernel, foreign: _ } = world;
        let of_one_layout = desired.layout == RuleLayout::PerPod && !has_shared(&kernel.state);
        let passes = if of_one_layout { 1 } else { PASSES };
        let mut taken = Vec::new();
        for _ in 0..passes {
            let next = plan(&desired, &kernel.observe());
            let applied = carry_out(&next, &mut kernel);
            prop_assert_eq!(&applied.refused, &vec![], "of {:#?}", next.ops);
            taken.push(next.ops);
        }
        let again = plan(&desired, &kernel.observe());
        prop_assert_eq!(&again.ops, &vec![], "after {:#?}", taken);
        assert_as_desired(&desired, &kernel.state)?;
    }

    #[test]
    fn a_node_that_changed_its_layout_is_as_one_that_always_had_it(
        world in world(),
        attached in vec(any::<bool>(), 3),
    ) {
        let confirmed = |pod| PodDesired { confirmed: true, ..pod };
        let pods = world.desired.pods.into_iter().map(confirmed).collect();
        let desired = NodeDesired { pods, ..world.desired };
        let shown = |before| {
            let mut kernel = build(desired.clone(), &attached, before, &[]).kernel;
            settle(&desired, &mut kernel);
            let Observed { mut rules, mut routes, marked, .. } = kernel.state;
            rules.sort();
            routes.sort();
            (rules, routes, marked)
        };
        prop_assert_eq!(shown(Some(desired.layout.other())), shown(None));
    }

    #[test]
    fn a_plan_resumes_after_a_cut_anywhere(world in world(), cut in 0_usize..60) {
        let World { desired, mut kernel, foreign: _ } = world;
        let first = plan(&desired, &kernel.observe());
        kernel.apply(&first.ops[..cut.min(first.ops.len())]);
        for _ in 0..PASSES {
            let next = plan(&desired, &kernel.observe());
            prop_assert_eq!(carry_out(&next, &mut kernel).refused, vec![]);
        }
        prop_assert_eq!(plan(&desired, &kernel.observe()).ops, vec![]);
        assert_as_desired(&desired, &kernel.state)?;
    }

    #[test]
    fn a_plan_resumes_after_any_faults(
        world in world(),
        faults in vec((0_usize..40, prop_oneof![Just(Errno::EPERM), Just(Errno::EBUSY)]), 1..6),
    ) {
        let World { desired, mut kernel, foreign } = world;
        for (at, errno) in faults {
            kernel.refuse_after(at, errno);
        }
        // Each pass gets past at least one fault, and none of them does harm.
        for _ in 0..8 + PASSES {
            let next = plan(&desired, &kernel.observe());
            carry_out(&next, &mut kernel);
        }
        prop_assert_eq!(plan(&desired, &kernel.observe()).ops, vec![]);
        assert_as_desired(&desired, &kernel.state)?;
        for thing in &foreign {
            prop_assert!(is_there(thing, &kernel.state), "{:?} is gone", thing);
        }
    }

    #[test]
    fn a_plan_spares_foreign_objects(world in world()) {
        let World { desired, mut kernel, foreign } = world;
        let in_flight: BTreeSet<_> =
            desired.pods.iter().filter(|pod| !pod.confirmed).map(|pod| pod.address).collect();
        let touching = |observed: &Observed| -> Vec<Rule> {
            let about = |rule: &&Rule| in_flight.iter().any(|address| {
                rule.selector == Selector::from(*address) || rule.selector == Selector::to(*address)
            });
            observed.rules.iter().filter(about).cloned().collect()
        };
        let before = touching(&kernel.state);
        for _ in 0..PASSES {
            let next = plan(&desired, &kernel.observe());
            carry_out(&next, &mut kernel);
            for thing in &foreign {
                prop_assert!(is_there(thing, &kernel.state), "{:?} fell to {:#?}", thing, next.ops);
            }
        }
        prop_assert_eq!(touching(&kernel.state), before, "an ADD in flight was disturbed");
    }

    #[test]
    fn no_pod_is_cut_off_at_any_step(
        world in world(),
        faults in vec((0_usize..40, Just(Errno::EPERM)), 0..4),
    ) {
        let World { desired, mut kernel, foreign: _ } = world;
        // A rule that sends a pod to another ENI's empty table does no harm until the table is filled. If its removal
        // is refused, that pod is disconnected by the rule's owner.
        let misled = |pod: &PodDesired| kernel.state.rules.iter().any(|rule| {
            let takes = rule.selector.src.is_some_and(|net| net.contains(&pod.address))
                || rule.selector.mark.is_some_and(|mark| mark.mask == registry::SOURCE_MARKS);
            takes && rule.table != pod.table
        });
        let at_risk: BTreeSet<usize> = match faults.is_empty() {
            true => BTreeSet::new(),
            false => (0..desired.pods.len()).filter(|at| misled(&desired.pods[*at])).collect(),
        };
        let connected = |state: &Observed| -> BTreeSet<usize> {
            let pods = desired.pods.iter().enumerate();
            pods.filter(|(_, pod)| pod_is_connected(state, pod, mac(eni_of(pod))))
                .map(|(at, _)| at)
                .collect()
        };
        let mut must_stay = connected(&kernel.state);
        // Pods that are disconnected in the end by an object that no plan may repair do not count.
        let mut undisturbed = kernel.clone();
        settle(&desired, &mut undisturbed);
        let after = connected(&undisturbed.state);
        must_stay.retain(|pod| after.contains(pod) && !at_risk.contains(pod));
        for (at, errno) in faults {
            kernel.refuse_after(at, errno);
        }
        for pass in 0..PASSES {
            let next = plan(&desired, &kernel.observe());
            let mut cut_off = None;
            kernel.apply_watching(&next.ops, |op, kernel| {
                if !must_stay.is_subset(&connected(&kernel.state)) {
                    cut_off.get_or_insert_with(|| op.clone());
                }
            });
            prop_assert_eq!(cut_off, None, "of {:#?}", next.ops);
            mark(&next, &mut kernel);
            prop_assert!(must_stay.is_subset(&connected(&kernel.state)), "marks of pass {}", pass);
        }
    }

    #[test]
    fn no_pod_is_routed_to_a_link_of_another(
        world in world(),
        adopted in vec(any::<bool>(), 8),
        impostors in vec((0_usize..8, impostor()), 1..4),
    ) {
        let World { mut desired, mut kernel, foreign: _ } = world;
        for (pod, adopted) in desired.pods.iter_mut().zip(adopted) {
            pod.adopted = adopted;
            if let Some(link) = kernel.state.links.values_mut().find(|link| link.key().as_ref() == Some(&pod.key))
                && adopted
            {
                link.alias = None;
            }
        }
        for (pod, impostor) in impostors {
            let Some(pod) = desired.pods.get(pod) else { continue };
            let name = pod.veth.as_str();
            if let Some(own) = kernel.state.link_named(name).map(LinkRef::from) {
                force(&mut kernel, Action::DeleteLink(own));
            }
            let index = kernel.add_link(name, Mac([7; 6]), LinkKind::Veth);
            force(&mut kernel, Action::SetUp(link(index)));
            match impostor {
                Impostor::New => force(&mut kernel, Action::SetGroup(link(index), registry::GROUP_NEW)),
                Impostor::Unmarked => {}
                Impostor::Marked => force(&mut kernel, Action::SetAlias(link(index), key("other").alias())),
            }
        }
        for _ in 0..PASSES {
            let next = plan(&desired, &kernel.observe());
            for op in &next.ops {
                let (Action::ReplaceRoute(route) | Action::AddRoute(route)) = &op.action else { continue };
                let of = |pod: &&PodDesired| {
                    pod.host_end == HostEndMode::Routed && route.host_address() == Some(pod.address)
                };
                let Some(pod) = desired.pods.iter().find(of) else { continue };
                let by = &kernel.state.links[&route.dev.expect("a route to a pod has a link")];
                let by_name = pod.adopted && by.alias.is_none() && by.group != registry::GROUP_NEW;
                let own = by.key().as_ref() == Some(&pod.key);
                prop_assert!(own || by_name, "{} of {} by {by:?}", op, pod.key);
            }
            carry_out(&next, &mut kernel);
        }
    }

    #[test]
    fn a_pass_between_any_steps_of_an_add_or_a_del_is_harmless(
        world in world(),
        add_steps in 0_usize..7,
        del_steps in 0_usize..8,
        built_for in prop_oneof![Just(RuleLayout::PerPod), Just(RuleLayout::Compact)],
        bridged in any::<bool>(),
    ) {
        let World { mut desired, mut kernel, foreign: _ } = world;
        let newcomer = PodDesired { host_end: host_end(bridged), ..pod_of(1, 9) };
        // ADD: the reservation comes first, then the kernel, step by step, then the confirmation.
        desired.pods.push(PodDesired { confirmed: false, ..newcomer.clone() });
        let veth = kernel.add_link(newcomer.veth.as_str(), pod_mac(&newcomer), LinkKind::Veth);
        force(&mut kernel, Action::SetUp(link(veth)));
        let net = pod_net(&kernel, &newcomer, built_for);
        let build = net.host_batch(veth);
        let (early, late) = build.split_at(add_steps.min(build.len()));
        prop_assert_eq!(kernel.apply(early).refused, vec![]);
        settle(&desired, &mut kernel);
        prop_assert_eq!(kernel.apply(late).refused, vec![]);
        let mine = |state: &Observed| {
            let rules = net.rules();
            rules.iter().all(|rule| state.rules.iter().any(|other| other.is_twin_of(rule)))
                && state.routes.iter().any(|route| route.leads_as(&net.host_route(veth)))
                && net.host_neighbor().is_none_or(|entry| state.neighbors.contains(&entry))
        };
        prop_assert!(mine(&kernel.state), "the pass took a part of what ADD built");
        if let Some(pod) = desired.pods.last_mut() {
            pod.confirmed = true;
        }
        settle(&desired, &mut kernel);
        if kernel.state.links.values().any(|link| link.mac == Some(mac(1))) {
            prop_assert!(pod_is_connected(&kernel.state, &newcomer, mac(1)));
        }
        // DEL: the address is given back first, then the plugin removes, and a pass helps.
        desired.pods.pop();
        let port = gateway_port(&kernel).index;
        let by_port = pod::removal_from_port(newcomer.address, port);
        let remove = [by_port, pod::removal(newcomer.address, Some(veth))].concat();
        let (early, late) = remove.split_at(del_steps.min(remove.len()));
        prop_assert_eq!(kernel.apply(early).refused, vec![]);
        settle(&desired, &mut kernel);
        prop_assert_eq!(kernel.apply(late).refused, vec![]);
        let retired = Op::new(
            Subject::Link(veth),
            Action::SetGroup(LinkRef { index: veth, name: String::new() }, registry::GROUP_REAP),
        );
        kernel.apply(&[retired]);
        settle(&desired, &mut kernel);
        prop_assert!(!kernel.state.links.contains_key(&veth));
        let in_use = routing_plan::addresses_in_use(&kernel.state);
        prop_assert!(!in_use.contains(&newcomer.address));
        let is_left = |entry: &Neighbor| entry.address == newcomer.address;
        prop_assert!(!kernel.state.neighbors.iter().any(is_left));
        prop_assert_eq!(plan(&desired, &kernel.observe()).ops, vec![]);
    }
}

/// Applies a plan and its marks of netfilter.
fn carry_out(next: &Plan, kernel: &mut FakeKernel) -> Applied {
    let applied = kernel.apply(&next.ops);
    mark(next, kernel);
    applied
}

/// Netfilter's map is changed as a whole.
fn mark(next: &Plan, kernel: &mut FakeKernel) {
    kernel.state.marked =
        next.marks.iter().map(|(address, mark)| ((*address).into(), *mark)).collect();
}

/// Applies the number of passes that a change of the layout needs.
fn settle(desired: &NodeDesired, kernel: &mut FakeKernel) {
    for _ in 0..PASSES {
        let next = plan(desired, &kernel.observe());
        carry_out(&next, kernel);
    }
}

/// The first pass adds rules. The second observes them and removes those that they replace. Marks of netfilter follow
/// a plan, so removals that depend on them need a third pass.
const PASSES: usize = 3;

fn host_end(bridged: bool) -> HostEndMode {
    if bridged { HostEndMode::bridged("eni") } else { HostEndMode::Routed }
}

/// Adds the gateway port of a bridge, as its owner does.
fn add_gateway_port(kernel: &mut FakeKernel) {
    let mode = HostEndMode::bridged("eni");
    let name = mode.gateway_port().expect("the mode has a port");
    let kind = LinkKind::Other("openvswitch".to_owned());
    let port = kernel.add_link(name, Mac([0x0a, 0, 0, 8, 0, 1]), kind);
    force(kernel, Action::SetUp(link(port)));
}

fn gateway_port(kernel: &FakeKernel) -> GatewayPort {
    let mode = HostEndMode::bridged("eni");
    let link = mode.gateway_port().and_then(|name| kernel.state.link_named(name));
    link.and_then(GatewayPort::of).expect("the port is up")
}

fn pod_net(kernel: &FakeKernel, pod: &PodDesired, layout: RuleLayout) -> pod::PodNet {
    pod::PodNet {
        key: pod.key.clone(),
        veth: pod.veth.clone(),
        address: pod.address,
        table: pod.table,
        layout,
        host_end: match pod.host_end {
            HostEndMode::Routed => HostEnd::Routed,
            HostEndMode::Bridged { .. } => HostEnd::Bridged(gateway_port(kernel)),
        },
        number: 0,
        mtu: 9001,
        branch: None,
    }
}

/// True if an object of layout compact exists.
fn has_shared(state: &Observed) -> bool {
    let of_table = |rule: &&Rule| rule.table == TableId::PODS;
    let of_prefix = |rule: &&Rule| {
        let prefix = rule.selector.src.is_some_and(|net| net.prefix_len() < net.max_prefix_len());
        rule.pref == registry::PREF_FROM_POD && (prefix || rule.selector.mark.is_some())
    };
    state.rules.iter().any(|rule| of_table(&rule) || of_prefix(&rule))
        || state.routes.iter().any(|route| route.table == TableId::PODS)
}

/// Requirements on the node that do not use the planner.
fn assert_as_desired(desired: &NodeDesired, state: &Observed) -> Result<(), TestCaseError> {
    for eni in &desired.enis {
        let Some(link) = state.links.values().find(|link| link.mac == Some(eni.mac)) else {
            continue;
        };
        prop_assert!(link.up && link.mtu == eni.mtu);
        let there: Vec<IpNet> =
            state.addresses.iter().filter(|a| a.dev == link.index).map(|a| a.address).collect();
        let own = eni.address.expect("it has one");
        let wanted = IpNet::new_assert(own, eni.subnet.prefix_len());
        prop_assert_eq!(there, vec![wanted]);
        let out = tests_support::lookup(state, own, far(), 0);
        prop_assert_eq!(out.and_then(|route| route.dev), Some(link.index));
    }
    let primary = state.link_named("eth0").map(|link| link.index);
    let default =
        state.routes.iter().filter(|r| r.table == TableId::MAIN && r.dst.prefix_len() == 0);
    for route in default {
        prop_assert_eq!(route.dev, primary, "the node's own traffic leaves by its primary ENI");
    }
    let marked = tests_support::lookup(state, address(1, 99), address(9, 9), 0x80);
    if state.links.values().any(|link| link.name == "eth0" && link.up) {
        prop_assert_eq!(marked.and_then(|route| route.dev), primary);
    }
    if family() == Family::V4 && state.links.values().any(|link| link.name == "eth0" && link.up) {
        let service = range(0).hosts().next().expect("it has hosts").into();
        let external = tests_support::lookup(state, address(1, 99), service, 0);
        prop_assert_eq!(external.and_then(|route| route.dev), primary);
    }
    for pod in desired.pods.iter().filter(|pod| pod.confirmed) {
        let link = state.link_of(&pod.key);
        prop_assert!(link.is_some_and(|link| link.up && link.group == 0));
        if family() == Family::V6 && pod.host_end == HostEndMode::Routed {
            let gateway = IpNet::new_assert(registry::POD_GATEWAY_V6.into(), 64);
            let at = link.map(|link| (link.index, gateway));
            let has = state.addresses.iter().any(|a| Some((a.dev, a.address)) == at);
            prop_assert!(has, "no link-local gateway for {:?}", pod);
        }
        let attached = state.links.values().any(|link| link.mac == Some(mac(eni_of(pod))));
        let hidden = is_hidden(state, pod);
        if attached && !hidden {
            prop_assert!(pod_is_connected(state, pod, mac(eni_of(pod))), "{:?}", pod);
        }
    }
    assert_other_family(desired, state)?;
    assert_neighbors(desired, state)?;
    let held: BTreeSet<_> = desired.pods.iter().map(|pod| pod.address).collect();
    for address in routing_plan::addresses_in_use(state) {
        let ours = !held.contains(&address) && desired.managed.contains(&IpNet::from(address));
        prop_assert!(!ours || has_foreign_route(state, address), "{} is in use", address);
    }
    Ok(())
}

/// Checks that the gateway port has no neighbor entry of a managed address except those of bridged pods.
fn assert_neighbors(desired: &NodeDesired, state: &Observed) -> Result<(), TestCaseError> {
    for entry in &state.neighbors {
        let mut pods = desired.pods.iter().filter(|pod| pod.address == entry.address);
        let is_known = pods.any(|pod| pod.host_end != HostEndMode::Routed || !pod.confirmed);
        let is_managed = desired.managed.contains(&IpNet::from(entry.address));
        prop_assert!(is_known || !is_managed, "{:?} is left", entry);
    }
    Ok(())
}

/// Checks the routes to second addresses of pods, and that ours lead to no others.
fn assert_other_family(desired: &NodeDesired, state: &Observed) -> Result<(), TestCaseError> {
    let mut held = BTreeSet::new();
    for pod in desired.pods.iter() {
        let Some(link) = state.link_of(&pod.key) else { continue };
        let lease = egress::lease(link.index, &state.addresses);
        let lease = lease.map(|address| Egress { address: address.into() });
        let derived = egress_of(pod.address).filter(|_| desired.egress);
        let Some(second) = lease.or(derived) else { continue };
        held.insert((second.address, link.index));
        // Bridged pods have no second address; one of an earlier mode stays.
        if pod.confirmed && pod.host_end == HostEndMode::Routed {
            let first = state.routes.iter().find(|r| r.host_address() == Some(second.address));
            prop_assert_eq!(first.and_then(|route| route.dev), Some(link.index), "{:?}", second);
            let gateway = second.host_address(link.index).address;
            let own = |a: &&LinkAddr| (a.dev, a.address) == (link.index, gateway);
            prop_assert!(state.addresses.iter().any(|a| own(&a)), "{:?}", second);
        }
    }
    let in_flight: BTreeSet<IfIndex> = desired
        .pods
        .iter()
        .filter(|pod| !pod.confirmed)
        .filter_map(|pod| state.link_of(&pod.key).map(|link| link.index))
        .collect();
    for route in state.routes.iter().filter(|r| r.protocol == registry::ROUTE_PROTOCOL) {
        let (Some(address), Some(dev)) = (route.host_address(), route.dev) else { continue };
        if egress::is_within(address) {
            let known = held.contains(&(address, dev)) || in_flight.contains(&dev);
            prop_assert!(known || held.iter().any(|(it, _)| *it == address), "{}", route);
        }
    }
    Ok(())
}

/// The lease of an IPv6 pod.
fn leased(host: u8) -> Egress {
    Egress { address: std::net::Ipv4Addr::new(169, 254, 172, host).into() }
}

/// The second address of an IPv4 pod.
fn egress_of(address: std::net::IpAddr) -> Option<Egress> {
    match address {
        std::net::IpAddr::V4(own) => Some(Egress { address: egress::v6_of(own).into() }),
        std::net::IpAddr::V6(_) => None,
    }
}

/// The primary ENI down, or its default route gone, is beyond these plans.
fn is_hidden(state: &Observed, pod: &PodDesired) -> bool {
    let primary = state.link_named("eth0");
    let has_default = state.routes.iter().any(|route| {
        route.table == TableId::MAIN
            && route.dst.prefix_len() == 0
            && route.dev == primary.map(|l| l.index)
    });
    pod.table == TableId::MAIN && !(primary.is_some_and(|link| link.up) && has_default)
}

/// Returns true if another owner routes an address with our rules to its own link: the rules stay.
fn has_foreign_route(state: &Observed, address: std::net::IpAddr) -> bool {
    let rules = state.rules.iter();
    let mut of_ours = rules.filter(|rule| {
        rule.selector == Selector::from(address) || rule.selector == Selector::to(address)
    });
    let foreign = |route: &Route| {
        let link = route.dev.and_then(|dev| state.links.get(&dev));
        route.protocol != registry::ROUTE_PROTOCOL
            && link.is_some_and(|link| link.key().is_none() && !link.name.starts_with("eni"))
    };
    of_ours.all(|rule| rule.pref == 600)
        && state.routes.iter().filter(|r| r.host_address() == Some(address)).all(foreign)
}

fn is_there(thing: &Foreign, state: &Observed) -> bool {
    match thing {
        Foreign::Rule(rule) => state.rules.contains(rule),
        Foreign::Route(route) => state.routes.contains(route),
        Foreign::Link(index) => state.links.contains_key(index),
        Foreign::Neighbor(entry) => state.neighbors.contains(entry),
        Foreign::Membership(port, master) => {
            state.links.get(port).is_none_or(|link| link.master == *master)
        }
    }
}

fn eni_of(pod: &PodDesired) -> u8 {
    (0..=2).find(|n| table(*n) == pod.table).unwrap_or(0)
}

fn pod_mac(pod: &PodDesired) -> Mac {
    let (n, host) = match pod.address {
        std::net::IpAddr::V4(address) => (address.octets()[2], address.octets()[3]),
        std::net::IpAddr::V6(address) => (address.octets()[7], address.octets()[15]),
    };
    Mac([0x0a, 0, 0, 9, n, host])
}

fn link(index: IfIndex) -> LinkRef {
    LinkRef { index, name: String::new() }
}

fn nth_link(kernel: &FakeKernel, n: usize) -> Option<IfIndex> {
    kernel.state.links.keys().nth(n).copied()
}

fn add_address(kernel: &mut FakeKernel, dev: IfIndex, n: u8, host: u8, noprefixroute: bool) {
    let address = within_subnet(n, host);
    let address =
        LinkAddr { dev, address, peer: None, global: true, secondary: false, noprefixroute };
    attempt(kernel, Action::AddAddress(address));
}

/// Does it or not, as the kernel pleases.
fn attempt(kernel: &mut FakeKernel, action: Action) {
    try_one(kernel, action);
}

fn try_one(kernel: &mut FakeKernel, action: Action) -> bool {
    kernel.apply(&[Op::new(Subject::Node, action)]).changed == 1
}

fn force(kernel: &mut FakeKernel, action: Action) {
    let applied = kernel.apply(&[Op::new(Subject::Node, action)]);
    assert_eq!(applied.refused, [], "the world could not be made");
}
