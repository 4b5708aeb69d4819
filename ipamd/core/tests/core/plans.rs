//! How many calls does growth cost?

use crate::world::{Cloud, Fault, World};
use config_model::{CardIndex, Span, Time};
use ipamd_core::{Action, CloudCall, ClusterFact, Event, Limits, PoolConfig, Topic, Want};

fn addresses(warm: u32) -> PoolConfig {
    PoolConfig { warm_ip_target: Some(warm), ..PoolConfig::default() }
}

/// Returns the request of each call of an action.
fn wants(world: &World, action: Action) -> Vec<Want> {
    let of = |call: &CloudCall| {
        let (CloudCall::CreateEni { want, .. } | CloudCall::Assign { want, .. }) = call else {
            return None;
        };
        Some(*want)
    };
    let calls = world.cloud.log.iter().filter(|(_, call)| call.action() == action);
    calls.filter_map(|(_, call)| of(call)).collect()
}

#[test]
fn a_burst_on_an_empty_node_is_one_plan_of_full_parallel_calls() {
    let mut world = World::new(addresses(1), 8, 30, 0);
    world.pass(Span::seconds(60));
    let before = world.cloud.log.len();
    let begun = world.now;
    let tickets = world.reserve_all(0..110);
    world.pass(Span::millis(30));
    // One address is warm. The other 109 and a new warm one are requested at once: 28 on the primary ENI, the rest on
    // three new ones.
    let calls = &world.cloud.log[before..];
    assert!(calls.iter().all(|(at, _)| *at == begun + Span::millis(20)), "{calls:?}");
    assert_eq!(wants(&world, Action::Assign)[1..], [Want::Addresses(28)]);
    let created = [29, 29, 24].map(Want::Addresses);
    assert_eq!(wants(&world, Action::Create), created);
    world.pass(Span::seconds(10));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    let mut places: Vec<u16> =
        world.cloud.places(CardIndex(0)).iter().map(|device| device.0).collect();
    places.sort_unstable();
    assert_eq!(places, [0, 1, 2, 3]);
    assert_eq!(world.cloud.count(Action::Attach), 3, "attaches raced for one place");
}

#[test]
fn a_burst_on_an_empty_node_with_prefixes_takes_one_call() {
    let config = PoolConfig { prefixes: true, ..PoolConfig::default() };
    let mut world = World::new(config, 8, 30, 0);
    world.pass(Span::seconds(60));
    let tickets = world.reserve_all(0..110);
    world.pass(Span::seconds(2));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    // One warm prefix at first; then 110 pods and as many warm addresses as the node may have.
    let asked = wants(&world, Action::Assign);
    assert_eq!(asked.len(), 2, "{asked:?}");
    assert_eq!(world.cloud.count(Action::Create), 0);
}

#[test]
fn a_burst_during_a_creation_waits_for_that_eni() {
    let mut world = World::new(addresses(1), 4, 10, 9);
    world.pass(Span::seconds(60));
    world.reserve_all(0..9);
    world.pass(Span::seconds(40));
    let made = world.cloud.count(Action::Create);
    // The first pod that finds nothing starts an ENI; those behind it fit on it too.
    world.cloud.attach_takes = Span::seconds(5);
    let mut tickets = vec![world.reserve(10)];
    for pod in 11..15 {
        world.pass(Span::millis(100));
        tickets.push(world.reserve(pod));
    }
    world.pass(Span::seconds(20));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    assert!(world.cloud.count(Action::Create) <= made + 1, "{:?}", world.cloud.log);
}

#[test]
fn top_ups_without_waiting_pods_are_five_seconds_apart() {
    let mut world = World::new(addresses(10), 4, 50, 10);
    world.pass(Span::seconds(60));
    for pod in 0..30 {
        world.reserve(pod);
        world.pass(Span::millis(900));
    }
    let times: Vec<Time> = world.cloud.log.iter().map(|(at, _)| *at).collect();
    assert!(times.windows(2).all(|pair| pair[1].since(pair[0]) >= Span::seconds(5)), "{times:?}");
    assert!(times.len() >= 3, "{times:?}");
}

#[test]
fn a_stream_of_pods_needs_fewer_calls_than_pods() {
    let mut world = World::new(addresses(1), 4, 100, 1);
    world.pass(Span::seconds(60));
    let begun = world.cloud.log.len();
    for pod in 0..60 {
        let ticket = world.reserve(pod);
        world.pass(Span::seconds(1));
        assert!(world.served(ticket), "pod {pod}");
    }
    // A loop of five seconds would make twelve.
    let calls = world.cloud.log.len() - begun;
    assert!(calls <= 13, "{calls} calls");
}

#[test]
fn throttling_reduces_the_nodes_calls_for_a_while() {
    let config = PoolConfig { warm_eni_target: 2, ..PoolConfig::default() };
    let mut world = World::new(config, 4, 10, 9);
    world.cloud.faults.insert(Action::Create, [Fault::Throttle; 12].into());
    world.pass(Span::seconds(60));
    let patient = world.cloud.count(Action::Create);
    assert!(patient <= 2, "{patient} calls in a minute without a waiting pod");
    // 9 addresses are there.
    world.reserve_all(0..10);
    world.pass(Span::seconds(15));
    let early = world.cloud.count(Action::Create) - patient;
    world.pass(Span::seconds(15));
    let late = world.cloud.count(Action::Create) - patient - early;
    assert!(late < early, "{early} calls while a pod starts to wait, {late} later");
    let view = |world: &World| {
        let budgets = world.snapshot().budgets;
        let of = budgets.iter().find(|budget| budget.action == Action::Create).cloned();
        of.map(|budget| budget.rate_milli_per_second).unwrap_or_default()
    };
    assert!(view(&world) <= 250, "{}", view(&world));
    assert!(world.count_of(Topic::BudgetShrunk) > 3);
    world.pass(Span::seconds(3600));
    assert!(world.split().len() >= 2, "{:?}", world.split());
    assert_eq!(view(&world), 2000);
}

#[test]
fn each_card_has_its_pool_and_other_cards_keep_one_address() {
    let mut limits = Limits::one_card(4, 10);
    limits.cards.push(ipamd_core::CardLimits { card: CardIndex(1), enis: 2 });
    let mut cloud = Cloud::new(4, 10, 9);
    cloud.other_cards = 2;
    let config = PoolConfig { multi_nic: true, ..PoolConfig::default() };
    let node = World::node(&cloud);
    let mut world = World::start(config.clone(), limits.clone(), node.clone(), cloud);
    world.pass(Span::seconds(60));
    assert_eq!(world.cloud.places(CardIndex(1)).len(), 1);
    let on_it = world.snapshot().enis.into_iter().find(|eni| eni.card == CardIndex(1)).unwrap();
    assert_eq!(on_it.counts.total, 1);

    let one = PoolConfig { multi_nic: false, ..config };
    let mut cloud = Cloud::new(4, 10, 9);
    cloud.other_cards = 2;
    let mut world = World::start(one, limits, node, cloud);
    world.pass(Span::seconds(60));
    assert_eq!(world.cloud.places(CardIndex(1)).len(), 0);
}

#[test]
fn on_an_unschedulable_node_the_pool_neither_grows_nor_shrinks() {
    let mut world = World::new(addresses(2), 4, 10, 9);
    world.send(ipamd_core::Event::Cluster(ClusterFact::Schedulable(false)));
    let tickets = world.reserve_all(0..12);
    world.pass(Span::seconds(300));
    assert_eq!(world.cloud.log.len(), 0, "{:?}", world.cloud.log);
    assert_eq!(tickets.iter().filter(|ticket| world.served(**ticket)).count(), 9);
    let notice = world.notices.iter().find(|notice| notice.topic == Topic::ReserveRefused).unwrap();
    assert!(notice.cause.contains("unschedulable"), "{notice:?}");
    assert!(notice.next_step.contains("uncordon"), "{notice:?}");
    world.send(ipamd_core::Event::Cluster(ClusterFact::Schedulable(true)));
    let ticket = world.reserve(20);
    world.pass(Span::seconds(10));
    assert!(world.served(ticket));
    assert_eq!(world.count_of(Topic::Unschedulable), 2);
}

#[test]
fn an_unschedulable_node_with_managed_enis_grows() {
    let config = PoolConfig { manage_unschedulable: true, ..addresses(2) };
    let mut world = World::new(config, 4, 10, 0);
    world.send(ipamd_core::Event::Cluster(ClusterFact::Schedulable(false)));
    world.pass(Span::seconds(10));
    assert_eq!(world.split(), [2]);
}

#[test]
fn a_node_is_full_when_its_pods_use_all_possible_addresses() {
    let config = PoolConfig { warm_ip_target: Some(1), ..PoolConfig::default() };
    let mut world = World::new(config.clone(), 2, 4, 0);
    world.pass(Span::seconds(5));
    assert_eq!((world.snapshot().full, world.snapshot().short), (false, 0));
    world.reserve_all(0..5);
    world.pass(Span::seconds(10));
    assert!(!world.snapshot().full, "one is free");
    world.reserve(5);
    world.pass(Span::seconds(10));
    let (usable, short) = (world.core.counts().usable, world.snapshot().short);
    assert_eq!((world.snapshot().full, usable, short), (true, 0, 1));
    // A cooling address is not replaced.
    world.release(5);
    assert!(world.snapshot().full);

    let mut world = World::new(config, 4, 10, 0);
    world.send(Event::Cluster(ClusterFact::MaxPods(6)));
    world.reserve_all(0..6);
    world.pass(Span::seconds(10));
    while world.core.counts().usable > 0 {
        world.reserve(world.core.counts().assigned);
        world.pass(Span::seconds(10));
    }
    assert!(world.snapshot().full, "{:?}", world.core.counts());
}

#[test]
fn a_node_without_provisioning_is_full_when_its_pods_use_all_present_addresses() {
    let given = PoolConfig { provisioning: false, ..PoolConfig::default() };
    for config in [PoolConfig { imds_only: true, ..given.clone() }, given] {
        let mut world = World::new(config, 4, 10, 3);
        world.pass(Span::seconds(5));
        world.reserve_all(0..2);
        world.pass(Span::seconds(5));
        assert_eq!((world.snapshot().full, world.core.counts().usable), (false, 1));
        world.reserve(2);
        assert_eq!((world.snapshot().full, world.core.counts().usable), (true, 0));
    }
}
