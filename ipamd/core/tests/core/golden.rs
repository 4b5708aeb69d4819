//! The documented examples of amazon-vpc-cni's targets, driven through the whole core.

use crate::world::World;
use config_model::Span;
use ipamd_core::PoolConfig;

fn settled(config: &PoolConfig, per_eni: u16, max_enis: u16, pods: u32) -> Vec<usize> {
    let primary = match config.warm_ip_target {
        None if !config.prefixes => per_eni,
        _ => 0,
    };
    rested(config, per_eni, max_enis, primary, pods).split()
}

fn rested(config: &PoolConfig, per_eni: u16, max_enis: u16, primary: u16, pods: u32) -> World {
    let mut world = World::new(config.clone(), max_enis, per_eni + 1, primary);
    world.pass(Span::seconds(60));
    // One after the other, as pods come: what waits in a burst is demand as well.
    for pod in 0..pods {
        let ticket = world.reserve(pod);
        world.pass(Span::seconds(20));
        assert!(world.served(ticket), "pod {pod}: {:?}", world.answers.get(&ticket));
    }
    world.pass(Span::seconds(300));
    let before = world.cloud.log.len();
    world.pass(Span::seconds(3600));
    assert_eq!(world.cloud.log.len(), before, "it does not rest: {:?}", &world.cloud.log[before..]);
    world
}

/// ENIs, prefixes and free addresses.
fn with_prefixes(config: &PoolConfig, per_eni: u16, max_enis: u16, pods: u32) -> (u32, usize, u64) {
    let config = PoolConfig { prefixes: true, ..config.clone() };
    let world = rested(&config, per_eni, max_enis, 0, pods);
    let counts = world.core.counts();
    (counts.enis, world.prefixes(), counts.free)
}

fn enis(warm: u32) -> PoolConfig {
    PoolConfig { warm_eni_target: warm, ..PoolConfig::default() }
}

fn addresses(warm: u32, minimum: u32) -> PoolConfig {
    let (warm, minimum) = (Some(warm), Some(minimum));
    PoolConfig { warm_ip_target: warm, minimum_ip_target: minimum, ..PoolConfig::default() }
}

#[test]
fn t3_small_with_one_warm_eni() {
    let split = |pods| settled(&enis(1), 3, 3, pods);
    assert_eq!(split(0), [3]);
    assert_eq!(split(5), [3, 3, 3]);
    assert_eq!(split(9), [3, 3, 3]);
}

#[test]
fn t3_small_with_one_warm_address_and_a_minimum_of_one() {
    let split = |pods| settled(&addresses(1, 1), 3, 3, pods);
    assert_eq!(split(0), [1]);
    assert_eq!(split(5), [3, 3]);
    assert_eq!(split(9), [3, 3, 3]);
}

#[test]
fn t3_small_with_two_warm_addresses_and_a_minimum_of_five() {
    let split = |pods| settled(&addresses(2, 5), 3, 3, pods);
    assert_eq!(split(0), [3, 2]);
    assert_eq!(split(5), [3, 3, 1]);
    assert_eq!(split(9), [3, 3, 3]);
}

#[test]
fn p3dn_24xlarge_with_one_warm_eni() {
    let split = |pods| settled(&enis(1), 49, 15, pods);
    assert_eq!(split(0), [49]);
    assert_eq!(split(3), [49, 49]);
    assert_eq!(split(95), [49, 49, 49]);
}

#[test]
fn p3dn_24xlarge_with_five_warm_addresses_and_a_minimum_of_ten() {
    let split = |pods| settled(&addresses(5, 10), 49, 15, pods);
    assert_eq!(split(0), [10]);
    assert_eq!(split(7), [12]);
    assert_eq!(split(15), [20]);
    assert_eq!(split(45), [49, 1]);
}

#[test]
fn t3_small_with_one_warm_prefix() {
    let config = PoolConfig { warm_prefix_target: Some(1), ..PoolConfig::default() };
    let of = |pods| with_prefixes(&config, 3, 3, pods);
    assert_eq!([of(0), of(5), of(16)], [(1, 1, 16), (1, 2, 27), (1, 2, 16)]);
    assert_eq!([of(17), of(58)], [(1, 3, 31), (2, 5, 22)]);
}

#[test]
fn t3_small_with_prefixes_and_one_warm_address() {
    let of = |pods| with_prefixes(&addresses(1, 1), 3, 3, pods);
    assert_eq!([of(0), of(5), of(17), of(58)], [(1, 1, 16), (1, 1, 11), (1, 2, 15), (2, 4, 6)]);
}

#[test]
fn t3_small_with_prefixes_and_seven_warm_addresses_of_twenty() {
    let of = |pods| with_prefixes(&addresses(7, 20), 3, 3, pods);
    assert_eq!([of(0), of(5), of(17), of(58)], [(1, 2, 32), (1, 2, 27), (1, 2, 15), (2, 5, 22)]);
}

#[test]
fn p3dn_24xlarge_with_prefixes_needs_one_eni() {
    let of = |pods| with_prefixes(&addresses(5, 10), 49, 15, pods);
    assert_eq!([of(0), of(7), of(15), of(45)], [(1, 1, 16), (1, 1, 9), (1, 2, 17), (1, 4, 19)]);
}

#[test]
fn max_eni_bounds_the_enis() {
    let config = PoolConfig { warm_eni_target: 3, max_eni: Some(2), ..PoolConfig::default() };
    assert_eq!(settled(&config, 9, 4, 0), [9, 9]);
    let config = PoolConfig { max_eni: Some(9), ..config };
    assert_eq!(settled(&config, 9, 3, 0), [9, 9, 9]);
}

#[test]
fn the_pool_does_not_grow_beyond_max_pods() {
    let config = PoolConfig { warm_eni_target: 3, max_pods: 15, ..PoolConfig::default() };
    assert_eq!(settled(&config, 9, 4, 0), [9, 9]);
}
