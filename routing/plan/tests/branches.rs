//! The laws for pods with branch ENIs: a plan converges, rests, resumes after a cut or a fault, and spares foreign
//! objects. Also the routes of the pods' packets.

use config_model::{Mac, PodName, RuleLayout, TableId, registry};
use proptest::{collection::vec, prelude::*, sample::subsequence};
use routing_plan::{
    Action, Branch, BranchDesired, Enforcing, Errno, Family, IfIndex, LinkAddr, LinkKind, LinkRef,
    NodeDesired, Note, Observed, Op, Rule, Selector, Subject, plan,
};
use std::{collections::BTreeSet, net::IpAddr};
use tests_support::{
    FakeKernel, lookup, lookup_incoming,
    node::{address, family, far, key, mac, node, set_family, within_subnet},
};

/// The ENI that is the trunk.
const TRUNK: u8 = 2;

/// One thing that is wrong, foreign or in the way.
#[derive(Clone, Debug)]
enum Mess {
    /// A VLAN link of a pod that is gone.
    OrphanVlan { vlan: u16, doomed: bool },
    /// A VLAN link without an alias that takes the VLAN of a pod.
    Squatter { vlan: u16, right_mac: bool },
    /// A rule of the branches' form, of ours or of somebody else's.
    Incoming { name: usize, table: u32, protocol: u8 },
    /// The rules and routes of the other mode for a pod.
    OtherWay { pod: usize },
    /// A link taken down.
    Down { link: usize },
    /// Some rule or route gone.
    Lost { index: usize },
    /// A living pod's link put among those to be deleted.
    Doomed { link: usize },
}

fn mess() -> impl Strategy<Value = Mess> {
    let protocol = || prop_oneof![Just(registry::ROUTE_PROTOCOL), Just(4_u8)];
    let vlan = || 1..7_u16;
    prop_oneof![
        (vlan(), any::<bool>()).prop_map(|(vlan, doomed)| Mess::OrphanVlan { vlan, doomed }),
        (vlan(), any::<bool>()).prop_map(|(vlan, right_mac)| Mess::Squatter { vlan, right_mac }),
        (0..6_usize, 100..108_u32, protocol()).prop_map(|(name, table, protocol)| Mess::Incoming {
            name,
            table,
            protocol
        }),
        (0..4_usize).prop_map(|pod| Mess::OtherWay { pod }),
        (0..9_usize).prop_map(|link| Mess::Down { link }),
        (0..40_usize).prop_map(|index| Mess::Lost { index }),
        (0..9_usize).prop_map(|link| Mess::Doomed { link }),
    ]
}

#[derive(Clone, Debug)]
struct World {
    desired: NodeDesired,
    kernel: FakeKernel,
    foreign: Vec<Rule>,
}

fn enforcing(i: u16) -> Enforcing {
    if i.is_multiple_of(2) { Enforcing::Standard } else { Enforcing::Strict }
}

/// Branch pod `i`, on VLAN `i`; odd ones are built to be strict.
fn branch_pod(i: u16, confirmed: bool) -> BranchDesired {
    let host = u8::try_from(i).expect("a small number");
    let name = PodName { namespace: "default".to_owned(), name: format!("branch-{i}") };
    let gateway: IpAddr = match family() {
        Family::V4 => address(3, 1),
        Family::V6 => registry::VPC_GATEWAY_V6.into(),
    };
    let branch = Branch { vlan: i, mac: branch_mac(i), gateway, enforcing: Enforcing::Strict };
    let key = key(&format!("b{i}"));
    BranchDesired::new(key, &name, "eni", address(3, 20 + host), branch, confirmed)
}

fn branch_mac(i: u16) -> Mac {
    Mac([0x02, 0, 0, 0, 9, i.to_be_bytes()[1]])
}

fn veth_of(pod: &BranchDesired) -> &str {
    match enforcing(pod.branch.vlan) {
        Enforcing::Strict => pod.strict_veth.as_str(),
        Enforcing::Standard => pod.standard_veth.as_str(),
    }
}

fn world() -> impl Strategy<Value = World> {
    let family = prop_oneof![Just(Family::V4), Just(Family::V6)];
    let pods = subsequence(vec![1_u16, 2, 3, 4], 0..=4);
    let layout = prop_oneof![Just(RuleLayout::PerPod), Just(RuleLayout::Compact)];
    let node_of = (family, layout);
    (node_of, pods, vec(any::<bool>(), 4), any::<bool>(), any::<bool>(), vec(mess(), 0..10))
        .prop_map(|((family, layout), pods, confirmed, strict, once, messes)| {
            set_family(family);
            let mut desired = NodeDesired { layout, ..node(2, Vec::new()) };
            desired.enis[1].trunk = true;
            desired.trunk = Some(mac(TRUNK));
            desired.strict = strict;
            let pods = pods.into_iter().zip(confirmed);
            desired.branches = pods.map(|(i, confirmed)| branch_pod(i, confirmed)).collect();
            build(desired, once, &messes)
        })
}

fn build(desired: NodeDesired, once: bool, messes: &[Mess]) -> World {
    let mut kernel = FakeKernel::default();
    for n in 0..=2 {
        let index = kernel.add_link(&format!("eth{n}"), mac(n), LinkKind::Device);
        force(&mut kernel, Action::SetUp(link(index)));
    }
    let primary = kernel.state.link_named("eth0").expect("it was made").index;
    let own = LinkAddr {
        dev: primary,
        address: within_subnet(0, 5),
        peer: None,
        global: true,
        secondary: false,
        noprefixroute: false,
    };
    force(&mut kernel, Action::AddAddress(own));
    let default = routing_plan::Route::default_via(TableId::MAIN, address(0, 1), primary);
    force(&mut kernel, Action::AddRoute(routing_plan::Route { protocol: 3, ..default }));
    for pod in &desired.branches {
        let veth = kernel.add_link(veth_of(pod), Mac([0x0a; 6]), LinkKind::Veth);
        force(&mut kernel, Action::SetUp(link(veth)));
        force(&mut kernel, Action::SetAlias(link(veth), pod.key.alias()));
    }
    if once {
        let before = plan(&desired, &kernel.observe());
        kernel.apply(&before.ops);
    }
    let mut foreign = Vec::new();
    for mess in messes {
        spoil(&mut kernel, &desired, mess, &mut foreign);
    }
    foreign.retain(|rule| kernel.state.rules.contains(rule));
    kernel.calls.clear();
    World { desired, kernel, foreign }
}

fn spoil(kernel: &mut FakeKernel, desired: &NodeDesired, mess: &Mess, foreign: &mut Vec<Rule>) {
    match *mess {
        Mess::OrphanVlan { vlan, doomed } => {
            let Some(index) = add_vlan(kernel, vlan, Mac([9; 6])) else { return };
            force(kernel, Action::SetAlias(link(index), key(&format!("old{vlan}")).alias()));
            if doomed {
                force(kernel, Action::SetGroup(link(index), registry::GROUP_REAP));
            }
        }
        Mess::Squatter { vlan, right_mac } => {
            add_vlan(kernel, vlan, if right_mac { branch_mac(vlan) } else { Mac([8; 6]) });
        }
        Mess::Incoming { name, table, protocol } => {
            let names = ["vlan.eth.1", "vlan.eth.2", "vlan0123456789a", "tun0", "eth0", "wg0"];
            let selector = Selector::incoming(names[name]);
            let rule = Rule::ours(registry::PREF_BRANCH, selector, TableId(table));
            let rule = Rule { protocol, family: family(), ..rule };
            // Only this pod's packets match rules for its links.
            let of_pods = name < 2;
            if attempt(kernel, Action::AddRule(rule.clone())) && protocol == 4 && !of_pods {
                foreign.push(rule);
            }
        }
        Mess::OtherWay { pod } => {
            let Some(pod) = desired.branches.get(pod).filter(|pod| pod.confirmed) else { return };
            let main = Rule::ours(registry::PREF_TO_POD, Selector::to(pod.address), TableId::MAIN);
            attempt(kernel, Action::AddRule(main));
            let from = Selector::from(pod.address);
            attempt(kernel, Action::AddRule(Rule::ours(registry::PREF_FROM_POD, from, TableId(3))));
        }
        Mess::Down { link } => {
            // The primary ENI's default route would be the network manager's to restore.
            if let Some(index) = kernel.state.links.keys().nth(link + 1).copied() {
                kernel.set_down(index);
            }
        }
        Mess::Lost { index } => {
            // A plan cannot repair the node's own addresses.
            let rules = kernel.state.rules.iter().filter(|rule| rule.table != TableId::LOCAL);
            let rules = rules.filter(|rule| rule.protocol != 2);
            let rules: Vec<Rule> = rules.cloned().collect();
            if let Some(rule) = rules.get(index) {
                force(kernel, Action::DeleteRule(rule.clone()));
            } else if let Some(route) = kernel.state.routes.get(index % 20).cloned()
                && route.protocol == registry::ROUTE_PROTOCOL
            {
                attempt(kernel, Action::DeleteRoute(route));
            }
        }
        Mess::Doomed { link: n } => {
            let pods: Vec<IfIndex> = kernel
                .state
                .links
                .values()
                .filter(|it| it.key().is_some())
                .map(|it| it.index)
                .collect();
            if let Some(index) = pods.get(n) {
                force(kernel, Action::SetGroup(link(*index), registry::GROUP_REAP));
            }
        }
    }
}

fn add_vlan(kernel: &mut FakeKernel, vlan: u16, mac_of_it: Mac) -> Option<IfIndex> {
    let trunk = kernel.state.enis_with(mac(TRUNK)).first().map(|trunk| LinkRef::from(*trunk))?;
    let index = IfIndex(500 + u32::from(vlan));
    let name = format!("vlan.eth.{vlan}");
    let made = routing_plan::VlanLink {
        link: LinkRef { index, name },
        parent: trunk,
        vlan,
        mac: mac_of_it,
    };
    attempt(kernel, Action::AddVlan(made)).then_some(index)
}

proptest! {
    #[test]
    fn a_plan_for_branches_converges_and_rests(world in world()) {
        let World { desired, mut kernel, foreign } = world;
        let first = plan(&desired, &kernel.observe());
        let applied = kernel.apply(&first.ops);
        prop_assert_eq!(&applied.refused, &vec![], "of {:#?}", first.ops);
        let again = plan(&desired, &kernel.observe());
        prop_assert_eq!(&again.ops, &vec![], "after {:#?}", first.ops);
        assert_as_desired(&desired, &kernel.state)?;
        for rule in &foreign {
            prop_assert!(kernel.state.rules.contains(rule), "{} fell to {:#?}", rule, first.ops);
        }
    }

    #[test]
    fn a_plan_for_branches_resumes_after_a_cut_anywhere(world in world(), cut in 0_usize..60) {
        let World { desired, mut kernel, foreign: _ } = world;
        let first = plan(&desired, &kernel.observe());
        kernel.apply(&first.ops[..cut.min(first.ops.len())]);
        let second = plan(&desired, &kernel.observe());
        prop_assert_eq!(kernel.apply(&second.ops).refused, vec![]);
        prop_assert_eq!(plan(&desired, &kernel.observe()).ops, vec![]);
        assert_as_desired(&desired, &kernel.state)?;
    }

    #[test]
    fn a_plan_for_branches_resumes_after_any_faults(
        world in world(),
        faults in vec((0_usize..40, prop_oneof![Just(Errno::EPERM), Just(Errno::EBUSY)]), 1..6),
    ) {
        let World { desired, mut kernel, foreign } = world;
        for (at, errno) in faults {
            kernel.refuse_after(at, errno);
        }
        for _ in 0..8 {
            let next = plan(&desired, &kernel.observe());
            kernel.apply(&next.ops);
            prop_assert!(local_is_asked(&kernel.state), "the node lost its own addresses");
        }
        prop_assert_eq!(plan(&desired, &kernel.observe()).ops, vec![]);
        assert_as_desired(&desired, &kernel.state)?;
        for rule in &foreign {
            prop_assert!(kernel.state.rules.contains(rule), "{} is gone", rule);
        }
    }

    #[test]
    fn no_branch_pod_is_cut_off_at_any_step(world in world()) {
        let World { desired, mut kernel, foreign: _ } = world;
        let connected = |state: &Observed| -> Vec<usize> {
            let pods = desired.branches.iter().enumerate();
            pods.filter(|(_, pod)| is_connected(state, pod)).map(|(at, _)| at).collect()
        };
        let must_stay = connected(&kernel.state);
        let ops = plan(&desired, &kernel.observe()).ops;
        let mut lost = None;
        kernel.apply_watching(&ops, |op, kernel| {
            let now = connected(&kernel.state);
            if !must_stay.iter().all(|pod| now.contains(pod)) || !local_is_asked(&kernel.state) {
                lost.get_or_insert_with(|| op.clone());
            }
        });
        prop_assert_eq!(lost, None, "of {:#?}", ops);
    }
}

/// Requirements on the node that do not use the planner.
fn assert_as_desired(desired: &NodeDesired, state: &Observed) -> Result<(), TestCaseError> {
    let known = |name: &str| {
        let names = desired.branches.iter().map(|pod| pod.key.alias());
        names.into_iter().any(|alias| alias == name)
    };
    for link in state.links.values().filter(|link| link.key().is_some()) {
        prop_assert!(known(link.alias.as_deref().unwrap_or_default()), "{} is left", link.name);
    }
    let confirmed = || desired.branches.iter().filter(|pod| pod.confirmed);
    for pod in confirmed() {
        prop_assert!(is_connected(state, pod), "{:?} in {:#?}", pod, state);
        let strict = enforcing(pod.branch.vlan) == Enforcing::Strict;
        let from_node = lookup(state, address(0, 5), pod.address, 0).and_then(|route| route.dev);
        let direct = from_node == state.link_of(&pod.key).map(|link| link.index);
        prop_assert_eq!(direct, !strict, "the node and a strict pod meet by the branch");
        let links = [veth_of(pod).to_owned(), pod.branch.link_name()];
        let own = state.rules.iter().filter(|rule| {
            let of_pod = rule.selector.iif.as_ref().is_some_and(|name| links.contains(name));
            rule.pref == registry::PREF_BRANCH && of_pod
        });
        prop_assert!(own.clone().all(|rule| rule.table == pod.branch.table()));
        let names: BTreeSet<_> = own.map(|rule| rule.selector.iif.clone()).collect();
        prop_assert_eq!(names.len(), if strict { 2 } else { 0 });
    }
    let strict =
        desired.strict || confirmed().any(|p| enforcing(p.branch.vlan) == Enforcing::Strict);
    prop_assert!(local_is_asked(state));
    let early = state.rules.iter().any(|rule| {
        let whole = rule.selector == Selector::default();
        (rule.family, rule.pref, rule.table) == (family(), 0, TableId::LOCAL) && whole
    });
    prop_assert_eq!(early, !strict);
    let mine = |rule: &&Rule| rule.pref == registry::PREF_BRANCH && rule.protocol == 70;
    for rule in state.rules.iter().filter(mine) {
        let table = |pod: &BranchDesired| pod.branch.table() == rule.table || !pod.confirmed;
        prop_assert!(desired.branches.iter().any(table), "{} is left", rule);
    }
    Ok(())
}

/// Packets from the branch reach the pod, and packets from the pod leave by the branch.
fn is_connected(state: &Observed, pod: &BranchDesired) -> bool {
    let Some(veth) = state.link_of(&pod.key) else { return false };
    let carries = |link: &&routing_plan::Link| {
        link.kind == LinkKind::Vlan(pod.branch.vlan) && link.mac == Some(pod.branch.mac) && link.up
    };
    let Some(carrier) = state.links.values().find(carries) else { return false };
    let inwards = lookup_incoming(state, Some(&carrier.name), far(), pod.address, 0);
    let outwards = lookup_incoming(state, Some(&veth.name), pod.address, far(), 0);
    inwards.and_then(|route| route.dev) == Some(veth.index)
        && outwards.and_then(|route| route.dev) == Some(carrier.index)
}

/// Without this rule a node does not know its own addresses.
fn local_is_asked(state: &Observed) -> bool {
    state.rules.iter().any(|rule| {
        rule.family == family()
            && rule.table == TableId::LOCAL
            && rule.selector == Selector::default()
    })
}

#[test]
fn a_vlan_of_another_pod_stays_and_is_reported() {
    set_family(Family::V4);
    let mut desired = node(2, Vec::new());
    desired.trunk = Some(mac(TRUNK));
    let (holder, comer) = (branch_pod(1, true), branch_pod(2, true));
    desired.branches = vec![holder.clone()];
    let World { mut kernel, .. } = build(desired.clone(), true, &[]);
    desired
        .branches
        .push(BranchDesired { branch: Branch { vlan: 1, ..comer.branch }, ..comer.clone() });
    let veth = kernel.add_link(comer.standard_veth.as_str(), Mac([0x0a; 6]), LinkKind::Veth);
    force(&mut kernel, Action::SetUp(link(veth)));
    force(&mut kernel, Action::SetAlias(link(veth), comer.key.alias()));
    let plan = plan(&desired, &kernel.observe());
    assert_eq!(plan.ops, []);
    let held = Note::VlanHeld { key: comer.key, vlan: 1, by: holder.key };
    assert_eq!(plan.notes, std::slice::from_ref(&held));
    assert_eq!(held.to_string(), "VLAN 1 of aws-cni/b2/eth0 is in use by aws-cni/b1/eth0");
}

#[test]
fn the_steps_for_a_strict_pod_are_in_this_order() {
    set_family(Family::V6);
    let mut desired = node(2, Vec::new());
    desired.trunk = Some(mac(TRUNK));
    desired.branches = vec![branch_pod(1, true)];
    let World { kernel, .. } = build(desired.clone(), false, &[]);
    let ops = plan(&desired, &kernel.observe()).ops;
    let of_branch = |op: &&Op| match &op.subject {
        Subject::Node => op.action.to_string().contains("lookup 255"),
        Subject::Address(_) => true,
        Subject::Link(IfIndex(index)) => *index > 4,
        Subject::Eni(_) | Subject::Leftover(_) | Subject::Sysctl(_) | Subject::Reap => false,
    };
    let texts: Vec<String> = ops.iter().filter(of_branch).map(ToString::to_string).collect();
    let pod = desired.branches[0].address;
    let veth = desired.branches[0].strict_veth.as_str();
    assert_eq!(
        texts,
        [
            "node: add rule pref 20 lookup 255".to_owned(),
            "node: add rule pref 0 from fe80:ec2::1 ipproto 58 lookup 255".to_owned(),
            "node: remove rule pref 0 lookup 255, protocol 2".to_owned(),
            format!("{pod}: set rp_filter of {veth} (#5) to 2"),
            format!(
                "{pod}: make vlan.eth.1 (#7733249) with MAC 02:00:00:00:09:01, VLAN 1 of eth2 (#4)"
            ),
            format!("{pod}: set alias of vlan.eth.1 (#7733249) to ferrule:aws-cni/b1/eth0"),
            format!("{pod}: set rp_filter of vlan.eth.1 (#7733249) to 2"),
            "link #7733249: set accept_ra of vlan.eth.1 (#7733249) to 0".to_owned(),
            format!("{pod}: put route fe80:ec2::1 dev #7733249 metric 1024 table 101"),
            format!("{pod}: put route default via fe80:ec2::1 dev #7733249 metric 1024 table 101"),
            format!("{pod}: put route {pod} dev #5 metric 1024 table 101"),
            format!("{pod}: add rule pref 10 iif vlan.eth.1 lookup 101"),
            format!("{pod}: add rule pref 10 iif {veth} lookup 101"),
            format!("link #5: set accept_ra of {veth} (#5) to 0"),
        ]
    );
}

fn link(index: IfIndex) -> LinkRef {
    LinkRef { index, name: String::new() }
}

/// Does it or not, as the kernel pleases.
fn attempt(kernel: &mut FakeKernel, action: Action) -> bool {
    kernel.apply(&[Op::new(Subject::Node, action)]).changed == 1
}

fn force(kernel: &mut FakeKernel, action: Action) {
    let applied = kernel.apply(&[Op::new(Subject::Node, action)]);
    assert_eq!(applied.refused, [], "the world could not be made");
}
