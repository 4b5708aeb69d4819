//! The state that survives the process, and the state that must not survive the boot.

use crate::world::{World, key};
use config_model::{Span, Time};
use ipamd_core::{Action, Checkpoint, Core, PoolConfig, Record, Start, Witness};
use std::collections::BTreeSet;

fn world() -> World {
    let mut world = World::new(PoolConfig::default(), 3, 4, 3);
    world.pass(Span::seconds(5));
    world.reserve_all(0..5);
    world.pass(Span::seconds(10));
    world
}

#[test]
fn assignments_of_this_boot_hold_at_once_even_before_their_enis_are_seen() {
    let mut world = world();
    let before: Vec<_> = (0..5).map(|pod| world.core.inspect(&key(pod)).unwrap()).collect();
    world.ec2_is_down = true;
    world.imds_is_down = true;
    world.restart();
    for (pod, before) in (0..5).zip(before) {
        let after = world.core.inspect(&key(pod)).unwrap();
        assert_eq!(after.addresses, before.addresses);
        assert!(after.confirmed);
    }
    let again = world.reserve(3);
    assert!(world.served(again));
    world.ec2_is_down = false;
    world.pass(Span::seconds(120));
    assert_eq!((world.core.counts().assigned, world.core.counts().free), (5, 4));
}

#[test]
fn after_a_reboot_assignments_cool_instead_of_holding() {
    let mut world = world();
    let used: BTreeSet<_> = (0..5).map(|pod| world.address_of(pod).unwrap()).collect();
    world.reboot();
    world.pass(Span::seconds(5));
    assert_eq!(world.core.counts().assigned, 0);
    assert_eq!(world.core.counts().cooling, 5);
    world.reserve_all(100..104);
    assert!((100..104).all(|pod| !used.contains(&world.address_of(pod).unwrap())));
    world.pass(Span::seconds(40));
    assert_eq!(world.core.counts().cooling, 0);
    let late = world.release(0);
    assert!(world.answers.contains_key(&late));
}

#[test]
fn a_crash_during_the_records_of_a_reboot_does_not_revive_old_pods() {
    let mut world = world();
    world.boot += 1;
    world.kernel.clear();
    for dies_after in 0..8 {
        world.dies_after = Some(dies_after);
        world.sync();
        world.restart();
        world.pass(Span::seconds(2));
        assert_eq!(world.core.counts().assigned, 0, "died after {dies_after}");
    }
}

#[test]
fn cooldown_survives_a_restart() {
    let mut world = world();
    let address = world.address_of(0).unwrap();
    world.release(0);
    world.pass(Span::seconds(1));
    world.restart();
    world.pass(Span::seconds(5));
    let cooling: Vec<_> = world.snapshot().cooling.iter().map(|view| view.address).collect();
    assert_eq!(cooling, [address]);
    world.reserve_all(10..14);
    assert!((10..14).all(|pod| world.address_of(pod) != Some(address)));
    world.pass(Span::seconds(40));
    assert!(world.snapshot().cooling.is_empty());
}

#[test]
fn an_unconfirmed_reservation_lapses_in_the_next_process_too() {
    let mut world = World::new(PoolConfig::default(), 3, 4, 3);
    world.pass(Span::seconds(5));
    world.plugins_finish = false;
    world.reserve(1);
    world.restart();
    world.pass(Span::seconds(59));
    assert!(world.address_of(1).is_some());
    world.pass(Span::seconds(2));
    assert_eq!(world.address_of(1), None);
}

#[test]
fn a_crash_at_any_effect_of_growth_and_shrink_leaves_nothing_behind() {
    for dies_after in 0..60 {
        let config = PoolConfig { warm_ip_target: Some(1), ..PoolConfig::default() };
        let mut world = World::new(config, 3, 4, 0);
        world.dies_after = Some(dies_after);
        world.pass(Span::seconds(3));
        world.reserve_all(0..5);
        world.pass(Span::seconds(100));
        for pod in 0..5 {
            // The kubelet repeats an ADD that the crash interrupted.
            if !world.core.inspect(&key(pod)).is_some_and(|view| view.confirmed) {
                world.reserve(pod);
                world.pass(Span::seconds(45));
            }
        }
        assert_eq!(world.core.counts().assigned, 5, "died after {dies_after}");
        for pod in 0..5 {
            world.release(pod);
        }
        for pod in 0..5 {
            world.release(pod);
        }
        world.pass(Span::seconds(900));
        assert_eq!(world.split(), [1], "died after {dies_after}");
        assert_eq!(world.cloud.enis.len(), 1, "an ENI leaked; died after {dies_after}");
    }
}

#[test]
fn addresses_returned_just_before_a_crash_are_not_assigned_after_it() {
    let config = PoolConfig { warm_ip_target: Some(2), ..PoolConfig::default() };
    let mut world = World::new(config, 2, 15, 14);
    world.cloud.lag.insert(Witness::Ec2, Span::seconds(20));
    world.pass(Span::seconds(31));
    assert_eq!(world.cloud.count(Action::Unassign), 1);
    world.restart();
    // EC2 still shows all fourteen. Each assigned address must be on the ENI.
    let tickets = world.reserve_all(0..8);
    world.pass(Span::seconds(45));
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
}

#[test]
fn times_of_another_boot_are_ignored() {
    let mut world = world();
    world.release(0);
    world.pass(Span::seconds(1));
    let left = world.core.checkpoint().clone();
    let start = Start { boot_id: "boot-2".into(), seed: 9 };
    let (config, node) = (world.config.clone(), world.node.clone());
    let now = Time(7_000);
    let core = Core::new(config, node, world.limits.clone(), left, start, now);
    let until: BTreeSet<Time> = core.snapshot(now).cooling.iter().map(|view| view.until).collect();
    assert_eq!(until, BTreeSet::from([Time(37_000)]));
    assert!(core.wake_at().is_some_and(|at| at <= now));
}

#[test]
fn records_of_a_later_version_are_skipped() {
    // A reader reads a later kind as `Unknown`.
    let records = [Record::Unknown, Record::Boot { format: 9, boot_id: "b".into() }];
    let sum = Checkpoint::replay(records);
    assert_eq!(sum.compact().len(), 1);
}

#[test]
fn the_checkpoint_does_not_grow_with_deleted_pods() {
    let config = PoolConfig { warm_ip_target: Some(2), ..PoolConfig::default() };
    let mut world = World::new(config, 3, 4, 3);
    world.pass(Span::seconds(5));
    for round in 0..100 {
        world.reserve_all(round * 3..round * 3 + 3);
        world.pass(Span::seconds(20));
        for pod in round * 3..round * 3 + 3 {
            world.release(pod);
        }
        world.pass(Span::seconds(200));
    }
    let records = world.core.checkpoint().compact();
    assert!(records.len() < 15, "{records:#?}");
    assert!(world.now > Time(0));
}

#[test]
fn an_eni_stays_if_it_is_used_again_before_its_removal() {
    let mut world = world();
    let (eni, address) = (world.eni_of(4), world.address_of(4));
    world.sync();
    world.file.push(Record::EniLeaving { eni: eni.clone() });
    world.restart();
    world.pass(Span::seconds(120));
    assert_eq!(world.cloud.count(Action::Detach), 0, "{:?}", world.cloud.log);
    assert_eq!((world.eni_of(4), world.address_of(4)), (eni.clone(), address));
    assert!(world.snapshot().enis.iter().any(|view| view.id == eni && view.ready));
}

#[test]
fn addresses_of_an_eni_that_stays_continue_to_cool_after_a_restart() {
    let mut world = world();
    let eni = world.eni_of(4);
    assert_eq!(world.eni_of(3), eni);
    world.release(4);
    world.sync();
    world.file.push(Record::EniLeaving { eni });
    world.restart();
    world.pass(Span::seconds(10));
    world.sync();
    world.restart();
    assert_eq!(world.core.counts().assigned, 0, "no ENI was seen yet");
    world.pass(Span::seconds(2));
    assert_eq!((world.core.counts().assigned, world.core.counts().cooling), (4, 1));
}
