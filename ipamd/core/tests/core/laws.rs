//! Laws under random events. The world checks after every event that no address is assigned twice, reused too early or
//! dropped under a pod. It also checks every limit.

use crate::world::{Cloud, Fault, World, pod, uid};
use config_model::{CardIndex, Mac, Span, Time};
use ipamd_core::{
    BranchEni, CardLimits, Cards, ClusterFact, EniKind, Event, Family, Limits, NodeCidrView,
    PoolConfig, Witness,
};
use proptest::{
    collection::{btree_set, vec},
    option,
    prelude::*,
};
use std::collections::BTreeSet;

#[derive(Clone, Debug)]
enum Step {
    Reserve(u32),
    Confirm(u32),
    Release(u32),
    ReleaseKernelLater(u32),
    Abandon,
    Pass(u64),
    Faults(Vec<Option<Fault>>),
    Lag(u64, u64),
    DieAfter(u32),
    Restart,
    Reboot,
    PluginsFinish(bool),
    AttachNeverCompletes(bool),
    SubnetLoses(usize),
    SubnetGets(usize),
    PrefixesLost(usize),
    PrefixesBack,
    /// A request for an address of every card.
    ReserveAll(u32),
    ReserveBranch(u32),
    Branch(u32, bool),
    Coming(BTreeSet<u32>),
    MaxPods(u32),
    Schedulable(bool),
    /// The node has its pod CIDR, or has none.
    NodeCidr(bool),
    /// The process restarts with or without prefixes.
    Toggle,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        Just(Fault::Throttle),
        Just(Fault::LoseReply),
        Just(Fault::LoseCall),
        Just(Fault::Deny)
    ]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (0..12_u32).prop_map(Step::Reserve),
        2 => (0..12_u32).prop_map(Step::Confirm),
        8 => (0..12_u32).prop_map(Step::Release),
        3 => (0..12_u32).prop_map(Step::ReleaseKernelLater),
        1 => Just(Step::Abandon),
        12 => (0..60_000_u64).prop_map(Step::Pass),
        2 => vec(option::of(fault()), 1..6).prop_map(Step::Faults),
        1 => (0..20_000_u64, 0..30_000_u64).prop_map(|(ec2, imds)| Step::Lag(ec2, imds)),
        3 => (0..12_u32).prop_map(Step::DieAfter),
        1 => Just(Step::Restart),
        1 => Just(Step::Reboot),
        1 => any::<bool>().prop_map(Step::PluginsFinish),
        1 => any::<bool>().prop_map(Step::AttachNeverCompletes),
        1 => (0..4000_usize).prop_map(Step::SubnetLoses),
        1 => (0..30_usize).prop_map(Step::SubnetGets),
        1 => (0..64_usize).prop_map(Step::PrefixesLost),
        1 => Just(Step::PrefixesBack),
        4 => (0..12_u32).prop_map(Step::ReserveAll),
        1 => (0..4_u32).prop_map(Step::ReserveBranch),
        1 => (0..4_u32, any::<bool>()).prop_map(|(pod, there)| Step::Branch(pod, there)),
        2 => btree_set(0..20_u32, 0..8).prop_map(Step::Coming),
        1 => (5..20_u32).prop_map(Step::MaxPods),
        1 => any::<bool>().prop_map(Step::Schedulable),
        1 => Just(Step::Toggle),
        1 => any::<bool>().prop_map(Step::NodeCidr),
    ]
}

fn config() -> impl Strategy<Value = PoolConfig> {
    let target = || option::of(0..6_u32);
    (0..3_u32, target(), target(), option::of(1..5_u32), 5..20_u32).prop_map(
        |(warm_eni_target, warm_ip_target, minimum_ip_target, max_eni, max_pods)| PoolConfig {
            warm_eni_target,
            warm_ip_target,
            minimum_ip_target,
            max_eni,
            max_pods,
            ..PoolConfig::default()
        },
    )
}

fn modes(config: impl Strategy<Value = PoolConfig>) -> impl Strategy<Value = PoolConfig> {
    let family = prop_oneof![4 => Just(Family::V4), 1 => Just(Family::V6)];
    let node_cidr = prop_oneof![2 => Just(None), 1 => Just(Some(NODE_CIDR.parse().unwrap()))];
    let switches = (any::<bool>(), any::<bool>(), any::<bool>());
    (config, family, switches, option::of(0..3_u32), node_cidr).prop_map(
        |(config, family, switches, warm_prefix_target, node_cidr)| PoolConfig {
            family,
            prefixes: switches.0,
            warm_prefix_target,
            multi_nic: switches.1,
            pod_enis: switches.2,
            node_cidrs: node_cidr.into_iter().collect(),
            ..config
        },
    )
}

/// Five addresses for pods.
const NODE_CIDR: &str = "10.244.1.0/29";

/// Four ENIs of four blocks on card 0, two on card 1. With branch ENIs, a trunk is one of the four.
fn world(config: PoolConfig) -> World {
    let mut limits = Limits::one_card(4, 5);
    limits.cards.push(CardLimits { card: CardIndex(1), enis: 2 });
    let mut cloud = Cloud::new(4, 5, if config.family == Family::V4 { 2 } else { 0 });
    cloud.other_cards = 2;
    if config.pod_enis {
        (limits.trunk, limits.branch_enis) = (true, 9);
        let trunk = cloud.attach_other(CardIndex(0), 3, EniKind::Trunk, 0, Time(0));
        cloud.list_branch(&branch(), &trunk);
    }
    let node = World::node(&cloud);
    World::start(config, limits, node, cloud)
}

fn branch() -> BranchEni {
    BranchEni {
        eni: "eni-branch".into(),
        mac: Mac([6; 6]),
        address: Some([10, 9, 9, 9].into()),
        address_v6: None,
        vlan: 7,
        subnet_cidr: None,
        subnet_cidr_v6: None,
    }
}

fn run(world: &mut World, steps: Vec<Step>) {
    let mut last = None;
    let (mut spare, mut lost) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            Step::Reserve(pod) => last = Some(world.reserve(pod)),
            Step::Confirm(pod) => {
                world.confirm(pod);
            }
            Step::Release(pod) => {
                world.release(pod);
            }
            Step::ReleaseKernelLater(pod) => {
                world.release_only(pod);
            }
            Step::Abandon => {
                if let Some(ticket) = last {
                    world.send(ipamd_core::Event::Abandoned { ticket });
                }
            }
            Step::Pass(millis) => world.pass(Span::millis(millis)),
            Step::Faults(faults) => world.cloud.any_faults = faults.into(),
            Step::Lag(ec2, imds) => {
                world.cloud.lag.insert(Witness::Ec2, Span::millis(ec2));
                world.cloud.lag.insert(Witness::Imds, Span::millis(imds));
            }
            Step::DieAfter(effects) => world.dies_after = Some(effects),
            Step::Restart => world.restart(),
            Step::Reboot => world.reboot(),
            Step::PluginsFinish(finish) => world.plugins_finish = finish,
            Step::AttachNeverCompletes(never) => world.cloud.attaches_never_complete = never,
            Step::SubnetLoses(count) => {
                let left = world.cloud.subnet.len().saturating_sub(count);
                spare.extend(world.cloud.subnet.split_off(left));
            }
            Step::SubnetGets(count) => {
                let at = spare.len().saturating_sub(count);
                world.cloud.subnet.extend(spare.split_off(at));
            }
            Step::PrefixesLost(count) => {
                let left = world.cloud.prefixes.len().saturating_sub(count);
                lost.extend(world.cloud.prefixes.split_off(left));
            }
            Step::PrefixesBack => world.cloud.prefixes.extend(lost.drain(..)),
            Step::ReserveAll(pod) => {
                let wait = Span::seconds(45);
                last = Some(world.reserve_from(pod, Cards::All, false, wait));
            }
            // Branch pods have numbers of their own: no pod is of both kinds.
            Step::ReserveBranch(pod) => {
                world.reserve_from(200 + pod, Cards::First, true, Span::seconds(45));
            }
            Step::Branch(number, there) => {
                let branch = there.then(branch);
                send_fact(
                    world,
                    ClusterFact::Branch { pod: pod(200 + number), uid: uid(200 + number), branch },
                );
            }
            Step::Coming(pods) => {
                send_fact(world, ClusterFact::Coming(pods.into_iter().map(pod).collect()));
            }
            Step::MaxPods(max) => send_fact(world, ClusterFact::MaxPods(max)),
            Step::Schedulable(schedulable) => {
                send_fact(world, ClusterFact::Schedulable(schedulable))
            }
            Step::NodeCidr(there) => {
                let cidrs: Vec<_> = there.then(|| NODE_CIDR.parse().unwrap()).into_iter().collect();
                world.config.node_cidrs.clone_from(&cidrs);
                world.send(Event::NodeCidrs(cidrs));
            }
            Step::Toggle => {
                let prefixes = !world.config.prefixes;
                world.restart_with(PoolConfig { prefixes, ..world.config.clone() });
            }
        }
    }
    world.cloud.subnet.extend(spare);
    world.cloud.prefixes.extend(lost);
}

fn send_fact(world: &mut World, fact: ClusterFact) {
    world.send(Event::Cluster(fact));
}

/// Each case runs an hour and more of a node's life.
const CASES: u32 = 32;

/// The faults end; attaches that hang are given up in time.
fn end_faults(world: &mut World) {
    world.cloud.any_faults.clear();
    world.cloud.lag.clear();
    world.cloud.attaches_never_complete = false;
    world.plugins_finish = true;
    world.dies_after = None;
    send_fact(world, ClusterFact::Schedulable(true));
    send_fact(world, ClusterFact::Coming(BTreeSet::new()));
    send_fact(world, ClusterFact::MaxPods(world.config.max_pods));
}

/// Returns whether card 0 has the addresses of its targets, as far as places and pods allow it.
fn reached(world: &World) -> bool {
    let config = &world.config;
    let of = |target: Option<u32>| u64::from(target.unwrap_or(0));
    let (warm, minimum) = (of(config.warm_ip_target), of(config.minimum_ip_target));
    let enis = world.snapshot().enis.into_iter().filter(|eni| eni.card == CardIndex(0));
    let (free, total) =
        enis.fold((0, 0), |sum, eni| (sum.0 + eni.counts.free, sum.1 + eni.counts.total));
    let targets = if config.family == Family::V6 {
        total > 0
    } else if warm > 0 || minimum > 0 {
        free >= warm && total >= minimum
    } else if config.prefixes {
        free >= (16 * u64::from(config.warm_prefix_target.unwrap_or(1))).max(1)
    } else {
        free >= u64::from(4 * config.warm_eni_target).max(1)
    };
    targets || total >= u64::from(config.max_pods)
}

/// Returns whether card 0 has all ENIs that it may have, with all blocks.
fn is_full(world: &World) -> bool {
    let max = world.config.max_eni.map_or(4, |max| max.min(4));
    let enis = world.snapshot().enis.into_iter().filter(|eni| eni.card == CardIndex(0));
    let (trunks, enis): (Vec<_>, Vec<_>) = enis.partition(|eni| eni.kind == Some(EniKind::Trunk));
    let all = trunks.len() + enis.len();
    all >= usize::try_from(max).unwrap() && enis.iter().all(|eni| eni.blocks.len() == 4)
}

/// A removed CIDR has only the addresses that are in use.
fn in_use_or_free(cidr: &NodeCidrView) -> u64 {
    if cidr.removed { cidr.used } else { cidr.total }
}

fn addresses_in_cloud(world: &World) -> u64 {
    let attached = world.cloud.attached();
    let blocks = attached.iter().flat_map(|eni| &eni.seen.blocks);
    blocks.map(|block| 1_u64 << (block.max_prefix_len() - block.prefix_len())).sum()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn without_faults_the_pool_reaches_its_targets_rests_and_leaks_nothing(
        config in modes(config()),
        steps in vec(step(), 1..60),
    ) {
        let mut world = world(config);
        run(&mut world, steps);
        end_faults(&mut world);
        world.pass(Span::seconds(3 * 3600));
        let calls = world.cloud.log.len();
        world.pass(Span::seconds(3600));
        prop_assert_eq!(&world.cloud.log[calls..], &[], "it does not rest");
        let counts = world.core.counts();
        let attached = world.cloud.attached().len();
        prop_assert_eq!(world.cloud.enis.len(), attached, "a detached ENI is left");
        prop_assert_eq!(world.snapshot().cooling.len(), 0);
        prop_assert_eq!(counts.usable, counts.free);
        let of_node: u64 = world.snapshot().node_cidrs.iter().map(in_use_or_free).sum();
        prop_assert_eq!(counts.total, addresses_in_cloud(&world) + of_node);
        prop_assert!(
            reached(&world) || is_full(&world),
            "{:?} {:?}", counts, world.snapshot().waiting
        );
        for eni in world.cloud.attached().iter().filter(|eni| eni.seen.id != world.cloud.primary()) {
            let attachment = eni.seen.attachment.as_ref().unwrap();
            if eni.seen.kind == Some(EniKind::Trunk) {
                continue;
            }
            prop_assert_eq!(attachment.delete_on_termination, Some(true));
        }
    }

    #[test]
    fn without_faults_every_pod_that_fits_is_served(
        config in modes(Just(PoolConfig::default()))
            .prop_map(|config| PoolConfig { pod_enis: false, ..config }),
        steps in vec(step(), 1..40),
    ) {
        let mut world = world(config);
        run(&mut world, steps);
        end_faults(&mut world);
        world.pass(Span::seconds(3 * 3600));
        for pod in 0..12 {
            world.release(pod);
        }
        world.pass(Span::seconds(60));
        let both = if world.config.multi_nic { Cards::All } else { Cards::First };
        let wait = Span::seconds(45);
        let mut tickets: Vec<_> =
            (100..104).map(|pod| world.reserve_from(pod, both, false, wait)).collect();
        tickets.extend(world.reserve_all(104..116));
        world.pass(Span::seconds(45));
        for ticket in tickets {
            prop_assert!(world.served(ticket), "{:?}", world.answers.get(&ticket));
        }
    }
}
