//! Pod CIDRs of the node as blocks of the address book.

use crate::world::{World, key};
use config_model::{Span, TableId};
use ipamd_core::{
    Answer, BlockSource, Checkpoint, CloudCall, Event, PoolConfig, Record, RefusalReason, Topic,
};
use ipnet::IpNet;
use std::{collections::BTreeSet, net::IpAddr};

/// 13 addresses for pods, from 10.244.1.2 to 10.244.1.14.
const CIDR: &str = "10.244.1.0/28";

fn cidr(text: &str) -> IpNet {
    text.parse().unwrap()
}

/// One ENI with two addresses, and these pod CIDRs.
fn world(cidrs: &[&str]) -> World {
    let node_cidrs = cidrs.iter().map(|text| cidr(text)).collect();
    let config = PoolConfig { max_eni: Some(1), node_cidrs, ..PoolConfig::default() };
    let mut world = World::new(config, 1, 3, 2);
    world.pass(Span::seconds(5));
    world
}

/// The CIDRs of the node change now.
fn change(world: &mut World, cidrs: &[&str]) {
    let cidrs: Vec<IpNet> = cidrs.iter().map(|text| cidr(text)).collect();
    world.config.node_cidrs.clone_from(&cidrs);
    world.send(Event::NodeCidrs(cidrs));
}

fn address(last: u8) -> Option<IpAddr> {
    Some(IpAddr::from([10, 244, 1, last]))
}

#[test]
fn a_pod_gets_an_address_of_the_pod_cidr_once_no_eni_has_a_free_one() {
    let mut world = world(&[CIDR]);
    let calls = world.cloud.log.len();
    world.reserve_all(0..4);
    world.pass(Span::seconds(10));
    let sources: Vec<bool> = (0..4)
        .map(|pod| {
            let view = world.core.inspect(&key(pod)).unwrap();
            assert!(view.confirmed);
            view.addresses[0].source == BlockSource::NodeCidr(cidr(CIDR))
        })
        .collect();
    assert_eq!(sources, [false, false, true, true]);
    assert_eq!((world.address_of(2), world.address_of(3)), (address(2), address(3)));
    let view = world.core.inspect(&key(2)).unwrap();
    assert_eq!(view.addresses[0].table, TableId::MAIN, "it has no table of an ENI");
    let counts = world.core.counts();
    assert_eq!((counts.total, counts.assigned, counts.free, counts.usable), (15, 4, 11, 11));
    assert_eq!(world.cloud.log.len(), calls, "EC2 has no part in it");
}

#[test]
fn a_released_address_of_a_pod_cidr_cools_before_its_reuse() {
    let mut world = world(&[CIDR]);
    world.reserve_all(0..4);
    world.pass(Span::seconds(1));
    world.release(2);
    world.reserve(10);
    assert_eq!(world.address_of(10), address(4));
    world.pass(Span::seconds(15));
    world.restart();
    world.pass(Span::seconds(5));
    world.reserve(11);
    assert_eq!(world.address_of(11), address(5), "the cooldown survives the restart");
    world.pass(Span::seconds(30));
    world.reserve(12);
    assert_eq!(world.address_of(12), address(2));
}

#[test]
fn assignments_of_a_pod_cidr_hold_after_a_restart_and_cool_after_a_reboot() {
    let mut world = world(&[CIDR]);
    world.reserve_all(0..5);
    world.pass(Span::seconds(5));
    let before: Vec<_> = (0..5).map(|pod| world.core.inspect(&key(pod)).unwrap()).collect();
    world.restart();
    for (pod, before) in (0..5).zip(&before) {
        assert_eq!(world.core.inspect(&key(pod)).unwrap().addresses, before.addresses);
    }
    world.reboot();
    world.pass(Span::seconds(5));
    assert_eq!((world.core.counts().assigned, world.core.counts().cooling), (0, 5));
    world.reserve(20);
    assert_eq!(world.address_of(20), address(5));
    world.pass(Span::seconds(60));
    assert_eq!(world.core.counts().cooling, 0);
}

#[test]
fn a_pod_keeps_its_address_of_a_removed_cidr_and_the_removal_is_reported_once() {
    let mut world = world(&[CIDR]);
    world.reserve_all(0..4);
    world.pass(Span::seconds(5));
    change(&mut world, &["10.244.9.0/28"]);
    world.pass(Span::seconds(600));
    assert_eq!(world.count_of(Topic::NodeCidrRemoved), 1);
    assert_eq!((world.address_of(2), world.address_of(3)), (address(2), address(3)));
    let views = world.snapshot().node_cidrs;
    let view: Vec<_> = views.iter().map(|view| (view.cidr, view.used, view.removed)).collect();
    assert_eq!(view, [(cidr(CIDR), 2, true), (cidr("10.244.9.0/28"), 0, false)]);
    world.reserve(10);
    assert_eq!(world.address_of(10), Some([10, 244, 9, 2].into()), "nothing new of the old one");
    world.restart();
    world.pass(Span::seconds(5));
    assert_eq!((world.address_of(2), world.address_of(3)), (address(2), address(3)));
    assert_eq!(world.count_of(Topic::NodeCidrRemoved), 2, "once per process");
    for pod in [2, 3] {
        world.release(pod);
    }
    assert_eq!(world.snapshot().node_cidrs.len(), 2, "the addresses still cool");
    world.pass(Span::seconds(60));
    assert_eq!(world.snapshot().node_cidrs.len(), 1);
}

#[test]
fn a_cidr_that_returns_while_pods_use_it_serves_pods_again() {
    let mut world = world(&[CIDR]);
    world.reserve_all(0..4);
    change(&mut world, &[]);
    let ticket = world.reserve(10);
    world.pass(Span::seconds(1));
    assert!(!world.served(ticket));
    change(&mut world, &[CIDR]);
    assert!(world.served(ticket));
    assert_eq!(world.address_of(10), address(4));
}

#[test]
fn a_pod_cidr_inside_the_subnet_or_without_addresses_is_refused_and_reported_once() {
    let mut world = world(&["10.0.7.0/24", "10.244.2.0/31", "fd00:244::/64"]);
    world.pass(Span::seconds(600));
    assert!(world.snapshot().node_cidrs.is_empty());
    assert_eq!(world.count_of(Topic::NodeCidrRefused), 2, "the other family is ignored");
    let causes: BTreeSet<String> = world
        .notices
        .iter()
        .filter(|notice| notice.topic == Topic::NodeCidrRefused)
        .map(|notice| notice.cause.clone())
        .collect();
    let expected = [
        "cannot use the node's pod CIDR: it has no address for pods",
        "cannot use the node's pod CIDR: it overlaps subnet 10.0.0.0/16",
    ];
    assert_eq!(causes, expected.map(str::to_owned).into());
}

#[test]
fn a_pod_is_refused_as_exhausted_if_enis_and_pod_cidrs_are_used_up() {
    let mut world = world(&["10.244.1.0/29"]);
    world.reserve_all(0..7);
    world.pass(Span::seconds(1));
    assert!((0..7).all(|pod| world.address_of(pod).is_some()));
    let ticket = world.reserve(10);
    world.pass(Span::seconds(46));
    assert_eq!(world.refused(ticket), Some(RefusalReason::Exhausted));
    let Some(Answer::Refused(refusal)) = world.answers.get(&ticket) else { panic!() };
    let end = "; the node's pod CIDRs have no free address either";
    assert!(refusal.message.ends_with(end), "{}", refusal.message);
}

#[test]
fn ec2_gets_no_call_about_the_addresses_of_a_pod_cidr() {
    let mut world = world(&[CIDR]);
    world.reserve_all(0..10);
    world.pass(Span::seconds(60));
    for pod in 0..10 {
        world.release(pod);
    }
    change(&mut world, &[]);
    world.pass(Span::seconds(3600));
    assert!(world.snapshot().node_cidrs.is_empty());
    let of_cidr = |block: &IpNet| cidr(CIDR).contains(block);
    let names_cidr = |call: &CloudCall| matches!(call, CloudCall::Unassign { blocks, .. } if blocks.iter().any(of_cidr));
    let named = world.cloud.log.iter().any(|(_, call)| names_cidr(call));
    assert!(!named, "{:?}", world.cloud.log);
    assert_eq!(world.count_of(Topic::Vanished) + world.count_of(Topic::AssignedVanished), 0);
}

#[test]
fn records_of_pod_cidrs_have_kinds_of_their_own() {
    for line in [
        r#"{"r":"reserved_cidr","key":{"network":"aws-cni","container_id":"c","ifname":"eth0"},"pod":{"namespace":"default","name":"web"},"addresses":[{"address":"10.244.1.2","node_cidr":"10.244.1.0/28","card":0,"device":0}],"lapses":9}"#,
        r#"{"r":"cooling_cidr","address":"10.244.1.2","cidr":"10.244.1.0/28","since":1,"until":2}"#,
    ] {
        let record: Record = serde_json::from_str(line).unwrap();
        assert_eq!(serde_json::to_string(&record).unwrap(), line);
        assert_eq!(Checkpoint::replay([record.clone()]).compact(), [record]);
    }
}
