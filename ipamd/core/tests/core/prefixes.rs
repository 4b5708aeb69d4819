//! Prefixes of sixteen addresses, alone and beside single addresses.

use crate::world::World;
use config_model::Span;
use ipamd_core::{Action, CloudCall, EniView, PoolConfig, Topic, Want};
use ipnet::IpNet;

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

/// The block that the pod's address is of.
fn prefix_of(world: &World, pod: u32) -> IpNet {
    let address = world.address_of(pod).unwrap();
    let blocks = world.snapshot().enis.into_iter().flat_map(|view| view.blocks);
    blocks.into_iter().find(|block| block.contains(&address)).unwrap()
}

fn singles(world: &World) -> usize {
    world.split().iter().sum::<usize>() - world.prefixes()
}

#[test]
fn pods_are_packed_so_that_whole_prefixes_are_returned() {
    let mut world = world(prefixes(1), 14);
    let tickets = world.reserve_all(0..60);
    world.pass(Span::seconds(300));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    assert_eq!(world.prefixes(), 5);
    // Each prefix keeps some pods, so none can be returned. The next pods fill the fullest one.
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
fn a_prefix_that_ec2_removed_under_pods_gives_no_addresses() {
    let mut world = world(prefixes(1), 14);
    world.reserve_all(0..3);
    world.pass(Span::seconds(120));
    let (eni, lost) = (world.eni_of(0), prefix_of(&world, 0));
    world.stolen = (0..3).filter_map(|pod| world.address_of(pod)).collect();
    world.cloud.take_block(&eni, lost, world.now);
    world.pass(Span::seconds(300));
    assert_eq!(world.count_of(Topic::AssignedVanished), 1);
    let lost_of = |view: &EniView| view.lost.clone();
    assert_eq!(world.snapshot().enis.iter().flat_map(lost_of).collect::<Vec<_>>(), [lost]);
    let later = world.reserve_all(10..30);
    world.pass(Span::seconds(60));
    assert!(later.iter().all(|ticket| world.served(*ticket)));
    assert!((10..30).all(|pod| prefix_of(&world, pod) != lost), "{lost} is on no ENI");
    for pod in 0..3 {
        world.release(pod);
    }
    world.pass(Span::seconds(10));
    let kept = world.snapshot().enis.into_iter().any(|view| view.blocks.contains(&lost));
    assert!(!kept, "{lost} stays forever");
}

#[test]
fn a_prefix_that_ec2_gave_to_another_eni_serves_there_once_its_old_pods_are_gone() {
    let mut world = world(prefixes(1), 1);
    world.reserve_all(0..16);
    world.pass(Span::seconds(120));
    let (eni, moved) = (world.eni_of(0), prefix_of(&world, 0));
    world.stolen = (0..16).filter_map(|pod| world.address_of(pod)).collect();
    world.cloud.free_prefix(&eni, moved, world.now);
    // The second ENI serves them; what is warm then comes with the third, and that is this one.
    world.reserve_all(20..30);
    world.pass(Span::seconds(20));
    let holder = world.cloud.attached().into_iter().find(|it| it.seen.blocks.contains(&moved));
    let holder = holder.unwrap().seen.id.clone();
    assert_ne!(holder, eni);
    // It is not replaced by another before it can serve.
    world.cloud.prefixes.clear();
    for pod in 0..16 {
        world.release(pod);
    }
    world.stolen.clear();
    world.pass(Span::seconds(200));
    // More than the second ENI has left.
    let last = world.reserve_all(40..50);
    world.pass(Span::seconds(20));
    assert!(last.iter().all(|ticket| world.served(*ticket)));
    let of_it: Vec<u32> = (40..50).filter(|pod| prefix_of(&world, *pod) == moved).collect();
    assert!(!of_it.is_empty());
    assert!(of_it.iter().all(|pod| world.eni_of(*pod) == holder));
}

#[test]
fn a_burst_requests_all_its_prefixes_in_one_call() {
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
fn prefix_mode_replaces_free_single_addresses_under_running_pods() {
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
fn prefix_mode_on_a_full_node_first_frees_places() {
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
fn without_prefix_mode_free_prefixes_are_replaced_under_running_pods() {
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
fn an_eni_has_as_many_blocks_of_either_kind_as_its_type_allows() {
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
