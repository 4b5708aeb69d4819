//! Prefixes of sixteen addresses, alone and beside single addresses.

use crate::world::World;
use config_model::Span;
use ipamd_core::{Action, CloudCall, PoolConfig, Want};

fn prefixes(warm: u32) -> PoolConfig {
    PoolConfig {
        prefixes: true,
        warm_prefix_target: Some(warm),
        max_pods: 200,
        ..PoolConfig::default()
    }
}

fn world(config: PoolConfig, per_eni: u16) -> World {
    let mut world = World::new(config, 3, per_eni + 1, 0);
    world.pass(Span::seconds(10));
    world
}

fn singles(world: &World) -> usize {
    world.split().iter().sum::<usize>() - world.prefixes()
}

#[test]
fn pods_are_packed_so_that_prefixes_run_empty_and_are_given_back_whole() {
    let mut world = world(prefixes(1), 14);
    let tickets = world.reserve_all(0..60);
    world.pass(Span::seconds(300));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    assert_eq!(world.prefixes(), 5);
    // Of each prefix some stay: nothing can go, and the next pods fill what is fullest.
    for pod in (0..60).filter(|pod| pod % 2 == 0) {
        world.release(pod);
    }
    world.pass(Span::seconds(300));
    assert_eq!(world.prefixes(), 5);
    world.reserve_all(100..116);
    world.pass(Span::seconds(300));
    for pod in (0..60).filter(|pod| pod % 2 == 1) {
        world.release(pod);
    }
    world.pass(Span::seconds(600));
    assert_eq!(world.core.counts().assigned, 16);
    assert!(world.prefixes() <= 3, "{} prefixes for 16 pods", world.prefixes());
    // That nothing held or cooling went back, the world holds after every call.
    assert!(world.cloud.count(Action::Unassign) > 0);
}

#[test]
fn a_burst_asks_for_all_its_prefixes_in_one_call() {
    let mut world = world(prefixes(1), 14);
    let before = world.cloud.log.len();
    let tickets = world.reserve_all(0..110);
    world.pass(Span::seconds(3));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    let asked: Vec<_> = world.cloud.log[before..].iter().map(|(_, call)| call.clone()).collect();
    let [CloudCall::Assign { want: Want::Prefixes(count), .. }, ..] = &asked[..] else {
        panic!("{asked:?}")
    };
    assert!((6..=7).contains(count), "{asked:?}");
}

#[test]
fn switched_on_under_pods_it_replaces_what_is_free_and_what_comes_free() {
    let mut world = World::new(PoolConfig::default(), 3, 5, 4);
    world.pass(Span::seconds(10));
    world.reserve_all(0..5);
    world.pass(Span::seconds(300));
    assert_eq!((world.prefixes(), singles(&world)), (0, 12));
    let before: Vec<_> = (0..5).map(|pod| world.address_of(pod)).collect();
    world.restart_with(prefixes(1));
    world.pass(Span::seconds(600));
    assert_eq!((0..5).map(|pod| world.address_of(pod)).collect::<Vec<_>>(), before);
    assert_eq!(singles(&world), 5, "free single addresses stay");
    assert!(world.prefixes() >= 1);
    let next = world.reserve(10);
    world.pass(Span::seconds(60));
    assert!(world.served(next));
    for pod in 0..5 {
        world.release(pod);
    }
    world.pass(Span::seconds(900));
    assert_eq!((world.prefixes(), singles(&world)), (2, 0));
    assert_eq!(world.core.counts().assigned, 1);
}

#[test]
fn switched_on_where_every_place_is_taken_it_makes_room_first() {
    let config = PoolConfig { max_eni: Some(1), ..PoolConfig::default() };
    let mut world = World::new(config, 3, 5, 4);
    world.pass(Span::seconds(10));
    world.reserve(0);
    world.pass(Span::seconds(60));
    world.restart_with(PoolConfig { max_eni: Some(1), ..prefixes(1) });
    world.pass(Span::seconds(600));
    assert_eq!((world.prefixes(), singles(&world)), (1, 1));
}

#[test]
fn switched_off_under_pods_it_replaces_what_is_free_and_what_comes_free() {
    let mut world = world(prefixes(1), 4);
    world.reserve_all(0..20);
    world.pass(Span::seconds(300));
    assert_eq!((world.prefixes(), singles(&world)), (3, 0));
    let before: Vec<_> = (0..20).map(|pod| world.address_of(pod)).collect();
    world.restart_with(PoolConfig { warm_ip_target: Some(2), ..PoolConfig::default() });
    world.pass(Span::seconds(600));
    assert_eq!((0..20).map(|pod| world.address_of(pod)).collect::<Vec<_>>(), before);
    assert_eq!((world.prefixes(), singles(&world)), (2, 2));
    for pod in 0..20 {
        world.release(pod);
    }
    world.pass(Span::seconds(900));
    assert_eq!((world.prefixes(), singles(&world)), (0, 2));
}

#[test]
fn an_eni_holds_as_many_blocks_of_either_kind_as_its_type_says() {
    let mut world = World::new(PoolConfig::default(), 1, 5, 4);
    world.pass(Span::seconds(10));
    world.reserve_all(0..3);
    world.pass(Span::seconds(60));
    world.restart_with(prefixes(3));
    world.pass(Span::seconds(600));
    // Three places are pods': one is left, however many prefixes are wanted.
    assert_eq!((world.prefixes(), singles(&world)), (1, 3));
    let tickets = world.reserve_all(10..26);
    world.pass(Span::seconds(10));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
}

#[test]
fn on_a_type_without_prefixes_single_addresses_are_used() {
    let config = PoolConfig { prefixes: true, ..PoolConfig::default() };
    let mut world = World::new(config, 2, 5, 4);
    world.limits.prefixes = false;
    world.restart();
    world.pass(Span::seconds(60));
    assert_eq!((world.prefixes(), singles(&world)), (0, 4));
}
