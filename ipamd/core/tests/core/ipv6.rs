//! IPv6: one prefix holds more addresses than there will ever be pods.

use crate::world::{World, key};
use config_model::Span;
use ipamd_core::{Action, CloudCall, Family, PoolConfig, Want};
use std::net::IpAddr;

fn world(enis: u16) -> World {
    let config = PoolConfig {
        family: Family::V6,
        warm_ip_target: Some(9),
        warm_eni_target: 5,
        max_pods: 1000,
        ..PoolConfig::default()
    };
    let mut world = World::new(config, enis, 5, 0);
    world.pass(Span::seconds(30));
    world
}

#[test]
fn one_prefix_on_the_primary_eni_serves_every_pod() {
    let mut world = world(3);
    let tickets = world.reserve_all(0..500);
    world.pass(Span::seconds(600));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    let calls: Vec<_> = world.cloud.log.iter().map(|(_, call)| call.clone()).collect();
    let [CloudCall::Assign { want: Want::Ipv6Prefixes(1), .. }] = &calls[..] else {
        panic!("{calls:?}")
    };
    assert_eq!(world.cloud.log[0].1.action(), Action::AssignIpv6);
    let counts = world.core.counts();
    assert_eq!((counts.total, counts.assigned), (1 << 48, 500));
    assert_eq!(counts.free, (1 << 48) - 500);
    assert!((0..500).all(|pod| matches!(world.address_of(pod), Some(IpAddr::V6(_)))));
}

#[test]
fn released_addresses_cool_and_come_back() {
    let mut world = world(1);
    world.reserve_all(0..3);
    let first = world.address_of(0);
    world.release(0);
    world.reserve(10);
    assert_ne!(world.address_of(10), first);
    world.pass(Span::seconds(60));
    world.reserve(11);
    assert_eq!(world.address_of(11), first, "the lowest is used first");
}

#[test]
fn pods_keep_their_addresses_across_a_restart_and_not_across_a_boot() {
    let mut world = world(1);
    world.reserve_all(0..3);
    world.pass(Span::seconds(5));
    world.release(2);
    let before: Vec<_> = (0..2).map(|pod| world.core.inspect(&key(pod)).unwrap()).collect();
    world.restart();
    for (pod, before) in before.iter().enumerate() {
        let after = world.core.inspect(&key(u32::try_from(pod).unwrap())).unwrap();
        assert_eq!((after.addresses, after.confirmed), (before.addresses.clone(), true));
    }
    assert_eq!(world.snapshot().cooling.len(), 1);
    world.reboot();
    assert_eq!((world.core.counts().assigned, world.snapshot().cooling.len()), (0, 3));
    world.pass(Span::seconds(60));
    assert!(world.snapshot().cooling.is_empty());
}

#[test]
fn a_prefix_that_two_witnesses_lack_is_replaced() {
    let mut world = world(1);
    world.pass(Span::seconds(120));
    let primary = world.cloud.primary();
    world.cloud.enis.get_mut(&primary).unwrap().seen.blocks.clear();
    world.pass(Span::seconds(300));
    assert_eq!(world.prefixes(), 1);
    let ticket = world.reserve(1);
    assert!(world.served(ticket));
}

#[test]
fn blocks_of_the_other_family_are_ignored_and_cause_no_question() {
    let mut world = world(1);
    let primary = world.cloud.primary();
    let seen = &mut world.cloud.enis.get_mut(&primary).unwrap().seen;
    seen.blocks.push("10.0.0.200/32".parse().unwrap());
    world.restart();
    world.pass(Span::seconds(120));
    let before = world.cloud.log.len();
    let ticket = world.reserve(1);
    assert!(world.served(ticket) && world.address_of(1).unwrap().is_ipv6());
    world.pass(Span::seconds(3600));
    assert_eq!(world.cloud.log.len(), before);
    assert_eq!(world.snapshot().enis[0].blocks.len(), 1);
}

#[test]
fn an_eni_that_does_not_get_ready_is_replaced() {
    let mut world = world(3);
    let primary = world.cloud.primary();
    world.send(ipamd_core::Event::EniNotReady { eni: primary.clone(), why: "gone".into() });
    let state = world.cloud.enis.get_mut(&primary).unwrap();
    state.seen.attachment.as_mut().unwrap().state = ipamd_core::AttachmentState::Attaching;
    state.there_at = None;
    let ticket = world.reserve_for(1, Span::seconds(120));
    world.pass(Span::seconds(60));
    assert!(world.served(ticket), "{:?}", world.snapshot().waiting);
    assert_ne!(world.eni_of(1), primary);
}
