//! A place is kept for the trunk, and it is asked for.

use crate::world::{Cloud, World};
use config_model::{CardIndex, Span};
use ipamd_core::{EniKind, Limits, PoolConfig, Topic};

fn world(primary_addresses: u16, pod_enis: bool) -> World {
    let limits = Limits { trunk: true, branch_enis: 9, ..Limits::one_card(3, 5) };
    let config = PoolConfig { pod_enis, ..PoolConfig::default() };
    let cloud = Cloud::new(3, 5, primary_addresses);
    let node = World::node(&cloud);
    World::start(config, limits, node, cloud)
}

#[test]
fn the_last_place_is_reserved_for_the_trunk() {
    let mut world = world(4, true);
    let tickets = world.reserve_all(0..9);
    world.pass(Span::seconds(60));
    assert_eq!(world.cloud.places(CardIndex(0)).len(), 2);
    assert_eq!(tickets.iter().filter(|ticket| world.served(**ticket)).count(), 8);
    world.cloud.attach_other(CardIndex(0), 2, EniKind::Trunk, 0, world.now);
    world.pass(Span::seconds(300));
    assert_eq!(world.cloud.places(CardIndex(0)).len(), 3);
}

#[test]
fn a_missing_trunk_is_requested_each_minute() {
    let mut world = world(4, true);
    world.pass(Span::seconds(150));
    assert_eq!(world.trunk_wishes.len(), 3);
    assert_eq!((world.count_of(Topic::TrunkMissing), world.snapshot().trunk_missing), (0, None));
    world.pass(Span::seconds(60));
    assert_eq!(world.count_of(Topic::TrunkMissing), 1);
    world.pass(Span::seconds(3600));
    assert_eq!(world.count_of(Topic::TrunkMissing), 1);
    let missing = world.snapshot().trunk_missing.unwrap();
    assert!(missing.cause.contains("no trunk ENI was attached"), "{missing:?}");
    world.cloud.attach_other(CardIndex(0), 2, EniKind::Trunk, 0, world.now);
    world.pass(Span::seconds(400));
    assert_eq!(world.snapshot().trunk_missing, None);
    let asked = world.trunk_wishes.len();
    world.pass(Span::seconds(1200));
    assert_eq!(world.trunk_wishes.len(), asked);
}

#[test]
fn a_new_trunk_is_observed_soon() {
    let mut world = world(4, true);
    world.pass(Span::seconds(40));
    world.cloud.attach_other(CardIndex(0), 2, EniKind::Trunk, 0, world.now);
    world.pass(Span::seconds(45));
    let there = world.snapshot().enis.iter().any(|eni| eni.kind == Some(EniKind::Trunk));
    assert!(there, "{:?} {:?}", world.snapshot().enis, world.notices);
}

#[test]
fn without_branch_enis_no_place_is_reserved_and_no_trunk_requested() {
    let mut world = world(4, false);
    world.reserve_all(0..12);
    world.pass(Span::seconds(60));
    assert_eq!(world.cloud.places(CardIndex(0)).len(), 3);
    assert!(world.trunk_wishes.is_empty());
}
