//! A subnet without whole prefixes gives single addresses, and prefixes again later.

use crate::world::World;
use config_model::Span;
use ipamd_core::{Action, CloudCall, PoolConfig, Topic, Want};
use ipnet::IpNet;

fn world() -> World {
    let config = PoolConfig { prefixes: true, ..PoolConfig::default() };
    World::new(config, 3, 10, 0)
}

fn prefixes(world: &World) -> usize {
    let blocks = world.cloud.enis.values().flat_map(|eni| &eni.seen.blocks);
    blocks.filter(|block| block.prefix_len() < 32).count()
}

fn singles(world: &World) -> usize {
    world.split().iter().sum::<usize>() - prefixes(world)
}

#[test]
fn a_fragmented_subnet_serves_pods_with_single_addresses_at_once() {
    let mut world = world();
    world.cloud.prefixes.clear();
    let tickets = world.reserve_all(0..6);
    world.pass(Span::seconds(5));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    assert_eq!((prefixes(&world), world.count_of(Topic::SubnetFragmented)), (0, 1));
    let notice = world.notices.iter().find(|n| n.topic == Topic::SubnetFragmented).unwrap();
    assert!(notice.next_step.contains("reserve a range"), "{notice:?}");
    assert_eq!(world.count_of(Topic::SubnetExhausted), 0);
}

#[test]
fn prefixes_are_used_again_after_one_successful_try() {
    let mut world = world();
    let kept: Vec<_> = world.cloud.prefixes.drain(..).collect();
    world.reserve_all(0..6);
    world.pass(Span::seconds(5));
    let tries = world.cloud.count(Action::Assign);
    world.cloud.prefixes.extend(kept);
    world.pass(Span::seconds(600));
    assert_eq!(world.cloud.count(Action::Assign), tries, "a full pool asked for more");
    // The warm addresses of the fall-back are used up; what comes next is a prefix.
    let more = world.reserve_all(10..30);
    world.pass(Span::seconds(120));
    assert!(more.iter().all(|ticket| world.served(*ticket)));
    assert!(prefixes(&world) >= 1, "{:?}", world.split());
    assert_eq!(world.count_of(Topic::SubnetFragmented), 2);
    // Single addresses go when their pods have gone, and prefixes take their place.
    for pod in 0..6 {
        world.release(pod);
    }
    for pod in 10..30 {
        world.release(pod);
    }
    world.pass(Span::seconds(600));
    assert_eq!(singles(&world), 0, "{:?}", world.cloud.log);
    assert!(prefixes(&world) >= 1);
}

#[test]
fn a_subnet_that_stays_fragmented_is_tried_rarely_and_never_blocks_a_pod() {
    let mut world = world();
    world.cloud.prefixes.clear();
    for pod in 0..24 {
        let ticket = world.reserve(pod);
        world.pass(Span::seconds(400));
        assert!(world.served(ticket), "pod {pod}");
    }
    let asked = |call: &CloudCall| {
        matches!(
            call,
            CloudCall::Assign { want: Want::Prefixes(_), .. }
                | CloudCall::CreateEni { want: Want::Prefixes(_), .. }
        )
    };
    let tries = world.cloud.log.iter().filter(|(_, call)| asked(call)).count();
    assert!(tries <= 8, "{tries} tries in {} s", 24 * 400);
}

#[test]
fn with_neither_prefixes_nor_addresses_the_subnet_is_exhausted() {
    let mut world = world();
    world.cloud.prefixes.clear();
    world.cloud.subnet.clear();
    world.reserve(0);
    world.pass(Span::seconds(60));
    assert_eq!(world.count_of(Topic::SubnetFragmented), 1);
    assert_eq!(world.count_of(Topic::SubnetExhausted), 1);
    let calls = world.cloud.log.len();
    assert!(calls < 12, "{calls}");
    world.cloud.subnet.extend((1..200).map(|n| std::net::Ipv4Addr::new(10, 0, 77, n)));
    world.pass(Span::seconds(120));
    let ticket = world.reserve(1);
    world.pass(Span::seconds(45));
    assert!(world.served(ticket));
}

#[test]
fn prefix_mode_returns_free_single_addresses_only() {
    let mut world = World::new(PoolConfig::default(), 3, 10, 9);
    world.pass(Span::seconds(5));
    world.reserve_all(0..3);
    world.pass(Span::seconds(30));
    let held: Vec<IpNet> =
        world.assigned.values().flatten().map(|address| IpNet::from(*address)).collect();
    world.release(2);
    world.config.prefixes = true;
    world.restart();
    world.pass(Span::seconds(20));
    // The released one still cools, so it is not returned.
    for block in &held {
        let there = world.cloud.enis.values().any(|eni| eni.seen.blocks.contains(block));
        assert!(there, "{block} went back to EC2");
    }
    world.pass(Span::seconds(300));
    assert_eq!(singles(&world), 2);
    assert!(prefixes(&world) >= 1);
    let ticket = world.reserve(9);
    world.pass(Span::seconds(5));
    assert!(world.served(ticket));
}

#[test]
fn without_prefix_mode_free_prefixes_are_returned() {
    let mut world = world();
    world.reserve_all(0..20);
    world.pass(Span::seconds(30));
    assert!(prefixes(&world) >= 2);
    for pod in 1..20 {
        world.release(pod);
    }
    world.config.prefixes = false;
    world.restart();
    world.pass(Span::seconds(600));
    assert_eq!(prefixes(&world), 1, "the one that a pod lives in stays");
    assert!(singles(&world) >= 9);
}
