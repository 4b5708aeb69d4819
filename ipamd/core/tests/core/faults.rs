//! The faults of the cloud.

use crate::world::{Fault, World};
use config_model::{DeviceIndex, Span};
use ipamd_core::{Action, CloudCall, Event, PoolConfig, RefusalReason, Topic, Witness};
use std::collections::BTreeSet;

/// An instance that wants a second ENI as soon as it has looked around.
fn growing(faults: &[(Action, &[Fault])]) -> World {
    let config = PoolConfig { warm_eni_target: 2, ..PoolConfig::default() };
    let mut world = World::new(config, 4, 10, 9);
    for (action, faults) in faults {
        world.cloud.faults.insert(*action, faults.iter().copied().collect());
    }
    world
}

fn devices(world: &World) -> Vec<u16> {
    let attached = world.cloud.attached();
    attached.iter().map(|eni| eni.seen.attachment.as_ref().unwrap().device.0).collect()
}

fn assert_two_good_enis(world: &World) {
    assert_eq!(world.split(), [9, 9]);
    assert_eq!(world.cloud.enis.len(), 2, "an ENI was left behind");
    let second = world.cloud.attached()[1].seen.attachment.clone().unwrap();
    assert_eq!(second.delete_on_termination, Some(true));
    assert_eq!(world.core.counts().usable, 18);
}

#[test]
fn an_eni_is_created_attached_and_deleted_with_the_instance() {
    let mut world = growing(&[]);
    world.pass(Span::seconds(10));
    assert_two_good_enis(&world);
    let actions: Vec<Action> = world.cloud.log.iter().map(|(_, call)| call.action()).collect();
    assert_eq!(actions, [Action::Create, Action::Attach, Action::Modify]);
    assert_eq!(devices(&world), [0, 1]);
}

#[test]
fn a_lost_creation_is_repeated_with_the_same_token() {
    for lost in [Fault::LoseReply, Fault::LoseCall] {
        let mut world = growing(&[(Action::Create, &[lost, lost])]);
        world.pass(Span::seconds(30));
        assert_two_good_enis(&world);
        let tokens: BTreeSet<_> = world
            .cloud
            .log
            .iter()
            .filter_map(|(_, call)| {
                let CloudCall::CreateEni { token, .. } = call else { return None };
                Some(token.clone())
            })
            .collect();
        assert_eq!((tokens.len(), world.cloud.count(Action::Create)), (1, 3));
    }
}

#[test]
fn a_lost_attach_is_looked_up_before_its_repetition() {
    for (lost, attaches) in [(Fault::LoseReply, 1), (Fault::LoseCall, 2)] {
        let mut world = growing(&[(Action::Attach, &[lost])]);
        world.pass(Span::seconds(30));
        assert_two_good_enis(&world);
        assert_eq!(world.cloud.count(Action::Describe), 1);
        assert_eq!(world.cloud.count(Action::Attach), attaches);
    }
}

#[test]
fn a_lost_attach_that_stale_answers_hide_ends_with_one_eni() {
    let mut world = growing(&[(Action::Attach, &[Fault::LoseReply])]);
    world.cloud.lag.insert(ipamd_core::Witness::Ec2, Span::seconds(15));
    world.pass(Span::seconds(600));
    assert_two_good_enis(&world);
}

#[test]
fn a_lost_assignment_is_looked_up_before_the_next_request() {
    for (lost, assigns) in [(Fault::LoseReply, 1), (Fault::LoseCall, 2)] {
        let config = PoolConfig { warm_ip_target: Some(4), ..PoolConfig::default() };
        let mut world = World::new(config, 4, 10, 0);
        world.cloud.faults.insert(Action::Assign, [lost].into());
        world.pass(Span::seconds(30));
        assert_eq!(world.split(), [4]);
        assert_eq!(world.cloud.count(Action::Assign), assigns);
        assert_eq!(world.core.counts().usable, 4);
    }
}

#[test]
fn a_lost_return_of_addresses_gives_no_pod_a_foreign_address() {
    for lost in [Fault::LoseReply, Fault::LoseCall] {
        let config = PoolConfig { warm_ip_target: Some(2), ..PoolConfig::default() };
        let mut world = World::new(config, 2, 15, 14);
        world.cloud.faults.insert(Action::Unassign, [lost].into());
        world.cloud.lag.insert(ipamd_core::Witness::Ec2, Span::seconds(10));
        world.pass(Span::seconds(3));
        let tickets = world.reserve_all(0..10);
        world.pass(Span::seconds(300));
        for ticket in tickets {
            let answer = world.answers.get(&ticket);
            assert!(world.served(ticket), "{lost:?}: {answer:?}");
        }
        assert_eq!(world.split().iter().sum::<usize>(), 12);
    }
}

#[test]
fn an_attach_that_is_refused_is_undone() {
    let mut world = growing(&[(Action::Attach, &[Fault::Deny])]);
    world.pass(Span::seconds(10));
    assert_eq!(world.cloud.enis.len(), 1, "the ENI was not deleted");
    assert_eq!(world.count_of(Topic::CallFailed), 1);
    let notice = world.notices.iter().find(|notice| notice.topic == Topic::CallFailed).unwrap();
    assert!(notice.next_step.contains("ec2:AttachNetworkInterface"), "{notice:?}");
    world.pass(Span::seconds(300));
    assert_two_good_enis(&world);
}

#[test]
fn a_taken_device_index_leads_to_the_next_one() {
    let mut world = growing(&[]);
    world.cloud.taken_devices.extend([DeviceIndex(1), DeviceIndex(2)]);
    world.pass(Span::seconds(10));
    assert_two_good_enis(&world);
    assert_eq!(devices(&world), [0, 3]);
}

#[test]
fn an_eni_without_delete_on_termination_still_serves() {
    let mut world = growing(&[(Action::Modify, &[Fault::Deny, Fault::Deny, Fault::Throttle])]);
    world.pass(Span::seconds(10));
    assert_eq!(world.core.counts().usable, 18);
    world.pass(Span::seconds(600));
    assert_two_good_enis(&world);
}

#[test]
fn throttling_only_slows_calls_down() {
    let mut world = growing(&[]);
    for _ in 0..10 {
        world.cloud.any_faults.extend([Some(Fault::Throttle), None]);
    }
    // No pod waits, so each try leaves the calls to other nodes for a minute.
    world.pass(Span::seconds(1800));
    assert_two_good_enis(&world);
}

#[test]
fn lasting_throttling_makes_calls_rare() {
    let mut world = growing(&[(Action::Create, &[Fault::Throttle; 1000])]);
    world.pass(Span::seconds(600));
    let calls = world.cloud.count(Action::Create);
    assert!((8..15).contains(&calls), "{calls} calls in ten minutes without a waiting pod");
    world.reserve_all(0..20);
    world.pass(Span::seconds(40));
    let urgent = world.cloud.count(Action::Create) - calls;
    assert!((4..20).contains(&urgent), "{urgent} calls in forty seconds while pods wait");
}

#[test]
fn an_attach_that_never_completes_is_reported_given_up_and_blocks_no_one() {
    let mut world = growing(&[]);
    world.cloud.attaches_never_complete = true;
    world.pass(Span::seconds(3));
    let stuck = world.cloud.attached()[1].seen.id.clone();
    world.cloud.attaches_never_complete = false;
    world.pass(Span::seconds(40));
    assert_eq!(world.count_of(Topic::AttachStuck), 1);
    assert_eq!(world.core.counts().usable, 18, "no other ENI was made");
    world.pass(Span::seconds(300));
    assert!(!world.cloud.enis.contains_key(&stuck), "it was not given up");
    assert_two_good_enis(&world);
}

#[test]
fn failed_attaches_are_retried_less_and_less_often() {
    let mut world = growing(&[]);
    world.cloud.attaches_never_complete = true;
    world.pass(Span::seconds(4 * 3600));
    let creations = world.cloud.count(Action::Create);
    assert!(creations < 40, "{creations} ENIs made in four hours");
    assert!(world.cloud.enis.len() <= 4);
    world.cloud.attaches_never_complete = false;
    world.pass(Span::seconds(2 * 3600));
    assert_two_good_enis(&world);
}

#[test]
fn a_subnet_gives_its_last_addresses_and_then_gets_no_requests() {
    let mut world = growing(&[]);
    world.cloud.subnet.truncate(6);
    world.pass(Span::seconds(60));
    assert_eq!(world.split().iter().sum::<usize>(), 9 + 5);
    assert_eq!(world.count_of(Topic::SubnetExhausted), 1);
    let tickets = world.reserve_all(0..15);
    let calls = world.cloud.log.len();
    world.pass(Span::seconds(46));
    assert_eq!(world.cloud.log.len(), calls, "the subnet was asked within its cool-down");
    assert_eq!(world.refused(tickets[14]), Some(RefusalReason::Exhausted));
    assert!(tickets[..14].iter().all(|ticket| world.served(*ticket)));
    world.cloud.subnet.extend((1..200).map(|n| std::net::Ipv4Addr::new(10, 0, 77, n)));
    world.pass(Span::seconds(600));
    // 14 pods and two ENIs' worth of warm addresses do not fit on four ENIs' worth less one.
    assert_eq!(world.core.counts().total, 36);
}

#[test]
fn a_waiting_pod_is_served_soon_after_a_full_subnet_has_addresses_again() {
    let config = PoolConfig { subnet_discovery: true, ..PoolConfig::default() };
    let mut world = World::new(config, 4, 10, 9);
    world.cloud.subnet.truncate(6);
    world.pass(Span::seconds(10));
    // 9 and what the subnet gives: 5 beside the second ENI's own address.
    let tickets = world.reserve_all(0..14);
    world.pass(Span::seconds(40));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    let late = world.reserve_for(14, Span::seconds(4));
    world.pass(Span::seconds(5));
    assert_eq!(world.refused(late), Some(RefusalReason::Exhausted));
    world.cloud.subnet.extend((1..200).map(|n| std::net::Ipv4Addr::new(10, 0, 77, n)));
    // The runtime tries again every few seconds. The cool-down of a full subnet is two minutes.
    let served = (15..23).find(|pod| {
        let ticket = world.reserve_for(*pod, Span::seconds(4));
        world.pass(Span::seconds(5));
        world.served(ticket)
    });
    assert!(served.is_some(), "no pod was served within 40 s");
}

#[test]
fn an_eni_with_fewer_addresses_than_its_type_allows_is_described_and_used() {
    let mut world = growing(&[]);
    world.cloud.per_eni = 9;
    world.limits.ipv4_per_eni = 12;
    world.restart();
    world.pass(Span::seconds(60));
    assert!(world.count_of(Topic::LimitReached) > 0);
    assert!(world.core.counts().usable >= 9);
}

#[test]
fn with_ec2_silent_nothing_is_asked_of_it_and_with_its_return_all_goes_on() {
    let mut world = growing(&[]);
    world.ec2_is_down = true;
    world.restart();
    let ticket = world.reserve_for(1, Span::seconds(200));
    world.pass(Span::seconds(120));
    assert!(world.count_of(Topic::WitnessSilent) > 1);
    world.ec2_is_down = false;
    world.pass(Span::seconds(75));
    assert!(world.served(ticket));
}

#[test]
fn an_eni_that_ec2_does_not_let_go_serves_on() {
    let config = PoolConfig { warm_ip_target: Some(1), ..PoolConfig::default() };
    let mut world = World::new(config, 3, 4, 0);
    world.pass(Span::seconds(5));
    world.reserve_all(0..5);
    world.pass(Span::seconds(100));
    world.cloud.faults.insert(Action::Detach, [Fault::Deny; 1].into());
    for pod in 0..5 {
        world.release(pod);
    }
    world.pass(Span::seconds(45));
    assert_eq!(world.cloud.count(Action::Detach), 1);
    assert_eq!(world.split().len(), 2);
    world.reserve_all(10..14);
    world.pass(Span::seconds(45));
    assert_eq!(world.core.counts().assigned, 4);
}

#[test]
fn lost_replies_on_the_way_out_leave_nothing_behind() {
    for lost in [Fault::LoseReply, Fault::LoseCall] {
        let config = PoolConfig { warm_ip_target: Some(1), ..PoolConfig::default() };
        let mut world = World::new(config, 3, 4, 0);
        world.cloud.lag.insert(ipamd_core::Witness::Ec2, Span::seconds(5));
        world.pass(Span::seconds(10));
        world.reserve_all(0..5);
        world.pass(Span::seconds(100));
        world.cloud.faults.insert(Action::Detach, [lost].into());
        world.cloud.faults.insert(Action::Delete, [lost].into());
        for pod in 0..5 {
            world.release(pod);
        }
        world.pass(Span::seconds(600));
        assert_eq!((world.split(), world.cloud.enis.len()), (vec![1], 1));
    }
}

#[test]
fn addresses_that_ec2_refuses_to_take_back_serve_on() {
    let config = PoolConfig { warm_ip_target: Some(1), ..PoolConfig::default() };
    let mut world = World::new(config, 1, 8, 0);
    world.cloud.faults.insert(Action::Unassign, [Fault::Deny; 50].into());
    world.pass(Span::seconds(5));
    world.reserve_all(0..6);
    world.pass(Span::seconds(20));
    for pod in 0..6 {
        world.release(pod);
    }
    world.pass(Span::seconds(300));
    assert!((1..7).contains(&world.cloud.count(Action::Unassign)), "{:?}", world.cloud.log);
    assert_eq!(world.core.counts().usable, 7, "they are leaked");
    let tickets = world.reserve_all(10..17);
    world.pass(Span::seconds(5));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
}

#[test]
fn the_limit_of_one_eni_does_not_limit_another() {
    let config = PoolConfig { warm_ip_target: Some(1), ..PoolConfig::default() };
    let mut world = World::new(config, 2, 5, 3);
    world.cloud.attach_foreign(1, 2, world.now);
    world.restart();
    world.reserve_all(0..4);
    world.pass(Span::seconds(3));
    world.cloud.faults.insert(Action::Assign, [Fault::Full].into());
    world.reserve(4);
    world.pass(Span::seconds(1));
    assert_eq!(world.count_of(Topic::LimitReached), 1);
    let last = world.reserve(5);
    world.pass(Span::seconds(10));
    assert!(world.served(last), "{:?}", world.snapshot().waiting);
}

#[test]
fn an_eni_that_is_removed_during_a_call_does_not_exclude_its_subnet() {
    let mut world = World::new(PoolConfig::default(), 3, 5, 4);
    let foreign = world.cloud.attach_foreign(1, 1, world.now);
    world.cloud.subnet.clear();
    world.restart();
    world.reserve_all(0..4);
    world.pass(Span::seconds(60));
    // The subnet has turned out to have nothing. Later it is asked for one.
    let asked = world.cloud.count(Action::Assign);
    while world.cloud.count(Action::Assign) == asked {
        world.pass(Span::millis(100));
    }
    world.cloud.tear_off(&foreign, world.now);
    for witness in [Witness::Ec2, Witness::Imds] {
        let (started, enis) = (world.now, world.cloud.look(witness, world.now));
        world.send(Event::Sighting { witness, started, enis });
    }
    assert_eq!(world.count_of(Topic::Vanished), 1);
    world.cloud.subnet.extend((1..200).map(|n| std::net::Ipv4Addr::new(10, 0, 77, n)));
    world.pass(Span::seconds(300));
    assert_eq!(world.core.counts().total, 8, "{:?}", world.snapshot().waiting);
}

#[test]
fn an_eni_that_cannot_be_deleted_no_longer_has_a_place() {
    let config = PoolConfig { warm_ip_target: Some(1), ..PoolConfig::default() };
    let mut world = World::new(config, 2, 4, 0);
    world.cloud.faults.insert(Action::Delete, [Fault::Deny; 500].into());
    world.pass(Span::seconds(5));
    world.reserve_all(0..5);
    world.pass(Span::seconds(100));
    for pod in 0..5 {
        world.release(pod);
    }
    world.pass(Span::seconds(200));
    assert_eq!((world.split().len(), world.cloud.enis.len()), (1, 2));
    let tickets = world.reserve_all(10..15);
    world.pass(Span::seconds(30));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    // The daemon detaches no further ENI, because it would be leaked.
    for pod in 10..15 {
        world.release(pod);
    }
    world.pass(Span::seconds(600));
    assert_eq!(world.cloud.enis.len(), 3);
}
