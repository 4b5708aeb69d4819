//! Observations of EC2 and IMDS.

use crate::world::World;
use config_model::Span;
use ipamd_core::{Action, Event, PoolConfig, Topic, Witness};

fn world() -> World {
    let mut world = World::new(PoolConfig::default(), 4, 5, 4);
    world.pass(Span::seconds(2));
    world.reserve_all(0..6);
    world.pass(Span::seconds(120));
    assert_eq!(world.split(), [4, 4, 4]);
    world
}

#[test]
fn a_lagging_imds_neither_drops_nor_revives_addresses() {
    let config = PoolConfig { warm_ip_target: Some(2), ..PoolConfig::default() };
    let mut world = World::new(config, 4, 5, 4);
    world.cloud.lag.insert(Witness::Imds, Span::seconds(30));
    world.cloud.lag.insert(Witness::Ec2, Span::seconds(5));
    world.pass(Span::seconds(50));
    for round in 0..20 {
        world.reserve_all(round * 10..round * 10 + 8);
        world.pass(Span::seconds(50));
        for pod in round * 10..round * 10 + 8 {
            world.release(pod);
        }
        world.pass(Span::seconds(100));
    }
    assert_eq!(world.count_of(Topic::Vanished), 0);
    assert_eq!(world.count_of(Topic::AssignedVanished), 0);
    assert_eq!(world.count_of(Topic::Adopted), 1, "{:?}", world.notices);
}

#[test]
fn a_detached_unused_eni_is_dropped_after_two_witnesses_and_replaced() {
    let mut world = world();
    let empty = world.cloud.attached()[2].seen.id.clone();
    world.cloud.tear_off(&empty, world.now);
    world.pass(Span::seconds(300));
    assert_eq!(world.count_of(Topic::Vanished), 1);
    assert_eq!(world.split(), [4, 4, 4]);
}

#[test]
fn a_removed_address_is_detected_within_minutes_after_idle_hours() {
    let mut world = world();
    world.pass(Span::seconds(4 * 3600));
    let empty = world.cloud.attached()[2].seen.id.clone();
    world.cloud.tear_off(&empty, world.now);
    world.pass(Span::seconds(150));
    assert_eq!(world.count_of(Topic::Vanished), 1);
}

#[test]
fn an_eni_detached_under_pods_is_reported_once_and_its_pods_keep_their_addresses() {
    let mut world = world();
    let (eni, address) = (world.eni_of(5), world.address_of(5));
    world.stolen = world.assigned.values().flatten().copied().collect();
    world.cloud.tear_off(&eni, world.now);
    world.pass(Span::seconds(1200));
    assert_eq!(world.count_of(Topic::AssignedVanished), 1);
    assert_eq!(world.address_of(5), address);
    assert!(world.snapshot().enis.iter().any(|view| view.id == eni && view.missing));
    let replaced = world.reserve(20);
    world.pass(Span::seconds(30));
    assert!(world.served(replaced));
    for pod in 0..6 {
        world.release(pod);
    }
    world.pass(Span::seconds(120));
    assert!(!world.snapshot().enis.iter().any(|view| view.id == eni), "it stays forever");
}

#[test]
fn a_removed_free_address_is_dropped_after_two_answers_of_ec2() {
    let mut world = world();
    world.imds_is_down = true;
    let last = world.cloud.attached()[2].seen.clone();
    world.cloud.take_address(&last.id, last.blocks[3].addr(), world.now);
    let total = world.core.counts().total;
    // While IMDS does not answer, EC2 gets no question and nothing is dropped. IMDS's next answer starts the questions,
    // and EC2's confirms it.
    world.pass(Span::seconds(120));
    assert_eq!(world.core.counts().total, total);
    world.imds_is_down = false;
    world.pass(Span::seconds(300));
    assert_eq!(world.count_of(Topic::Vanished), 1);
}

#[test]
fn a_removed_assigned_address_is_reported_and_never_dropped() {
    let mut world = world();
    let (eni, address) = (world.eni_of(5), world.address_of(5).unwrap());
    world.stolen.insert(address);
    world.cloud.take_address(&eni, address, world.now);
    world.pass(Span::seconds(1200));
    assert_eq!(world.count_of(Topic::AssignedVanished), 1);
    assert_eq!(world.address_of(5), Some(address));
}

#[test]
fn an_address_that_ec2_removed_under_a_pod_is_not_assigned_again() {
    let mut world = world();
    let (eni, address) = (world.eni_of(5), world.address_of(5).unwrap());
    world.stolen.insert(address);
    world.cloud.take_address(&eni, address, world.now);
    world.pass(Span::seconds(1200));
    world.stolen.clear();
    world.release(5);
    world.pass(Span::seconds(31));
    world.reserve_all(20..24);
    world.pass(Span::seconds(60));
    let given: Vec<_> = (20..24).filter_map(|pod| world.address_of(pod)).collect();
    assert_eq!(given.len(), 4);
    assert!(!given.contains(&address), "{address} is on no ENI");
}

#[test]
fn a_foreign_eni_is_adopted_once_ec2_shows_it_and_never_freed() {
    let mut world = world();
    let foreign = world.cloud.attach_foreign(7, 4, world.now);
    world.ec2_is_down = true;
    world.pass(Span::seconds(150));
    assert!(!world.snapshot().enis.iter().any(|view| view.id == foreign), "IMDS alone was enough");
    world.ec2_is_down = false;
    world.pass(Span::seconds(1200));
    let view = world.snapshot().enis.into_iter().find(|view| view.id == foreign).unwrap();
    assert_eq!((view.device.0, view.table.0, view.blocks.len()), (7, 8, 4));
    for pod in 0..6 {
        world.release(pod);
    }
    world.pass(Span::seconds(1200));
    assert!(world.cloud.enis.contains_key(&foreign), "a foreign ENI was deleted");
}

#[test]
fn an_eni_that_only_imds_shows_occupies_its_place() {
    let config = PoolConfig { max_eni: Some(2), ..PoolConfig::default() };
    let mut world = World::new(config, 4, 5, 4);
    world.pass(Span::seconds(2));
    world.reserve_all(0..6);
    world.pass(Span::seconds(5));
    assert_eq!(world.split(), [4, 4]);
    // EC2's answers to the next process are older than the second ENI.
    world.cloud.lag.insert(Witness::Ec2, Span::seconds(20));
    world.restart();
    let waiting = world.reserve(10);
    world.pass(Span::seconds(10));
    assert!(world.snapshot().enis.len() == 1 && !world.served(waiting));
    assert_eq!((world.core.counts().enis, world.cloud.count(Action::Create)), (2, 1));
    // EC2 is asked again before IMDS's next turn.
    world.pass(Span::seconds(25));
    assert!(world.served(waiting), "{:?}", world.notices);
    assert_eq!((world.split(), world.cloud.count(Action::Create)), (vec![4, 4], 1));
}

#[test]
fn an_eni_that_only_a_refused_attach_reveals_occupies_its_place() {
    let config = PoolConfig { max_eni: Some(2), ..PoolConfig::default() };
    let mut world = World::new(config, 4, 5, 4);
    world.pass(Span::seconds(2));
    world.reserve_all(0..6);
    world.pass(Span::seconds(5));
    assert_eq!(world.split(), [4, 4]);
    for witness in [Witness::Imds, Witness::Ec2] {
        world.cloud.lag.insert(witness, Span::seconds(20));
    }
    world.restart();
    let waiting = world.reserve(10);
    world.pass(Span::seconds(20));
    assert_eq!((world.split(), world.cloud.count(Action::Delete)), (vec![4, 4], 1));
    world.pass(Span::seconds(24));
    assert!(world.served(waiting), "{:?}", world.notices);
    assert_eq!((world.split(), world.cloud.count(Action::Create)), (vec![4, 4], 2));
}

#[test]
fn an_eni_of_a_lagging_imds_answer_occupies_no_place_after_its_removal() {
    let config = PoolConfig { max_eni: Some(2), warm_ip_target: Some(1), ..PoolConfig::default() };
    let mut world = World::new(config, 4, 5, 4);
    world.pass(Span::seconds(2));
    world.reserve_all(0..5);
    world.pass(Span::seconds(70));
    assert_eq!(world.split().len(), 2);
    world.cloud.lag.insert(Witness::Imds, Span::seconds(30));
    world.release(4);
    world.release(3);
    while world.cloud.count(Action::Delete) == 0 {
        world.pass(Span::seconds(1));
    }
    for _ in 0..120 {
        world.pass(Span::seconds(1));
        assert_eq!(world.core.counts().enis, 1);
    }
}

#[test]
fn a_stable_node_makes_no_ec2_calls() {
    let mut world = world();
    let calls = world.cloud.log.len();
    world.pass(Span::seconds(7200));
    assert_eq!(world.cloud.log.len(), calls);
    assert_eq!(world.cloud.count(Action::Describe), 0);
}

#[test]
fn nothing_is_created_before_ec2_shows_the_instance() {
    let config = PoolConfig { minimum_ip_target: Some(16), ..PoolConfig::default() };
    let mut world = World::new(config, 4, 5, 0);
    world.cloud.lag.insert(Witness::Ec2, Span::seconds(3));
    world.cloud.launch_again(world.now);
    world.restart();
    world.pass(Span::seconds(30));
    // Four ENIs of four: the primary's own room is used, and no ENI too many was asked for.
    assert_eq!(world.split(), [4, 4, 4, 4]);
    assert_eq!(world.cloud.count(Action::Create), 3, "{:?}", world.cloud.log);
}

#[test]
fn a_returned_block_causes_no_more_questions() {
    let config = PoolConfig { warm_ip_target: Some(2), ..PoolConfig::default() };
    let mut world = World::new(config, 2, 15, 2);
    world.reserve_all(0..6);
    world.pass(Span::seconds(100));
    for pod in 1..6 {
        world.release(pod);
    }
    world.pass(Span::seconds(50));
    // All but the pod's own address are missing in one answer, and soon are over the target.
    let mut enis = world.cloud.look(Witness::Ec2, world.now);
    let held = world.address_of(0).unwrap();
    enis[0].blocks.retain(|block| block.addr() == held);
    let started = world.now;
    world.send(Event::Sighting { witness: Witness::Ec2, started, enis });
    world.pass(Span::seconds(60));
    assert_eq!(world.cloud.count(Action::Unassign), 1);
    let looks = world.looks[&Witness::Ec2];
    world.pass(Span::seconds(600));
    assert_eq!(world.looks[&Witness::Ec2], looks, "EC2 is asked again and again");
}

#[test]
fn answers_without_the_primary_eni_drop_nothing() {
    let mut world = world();
    for _ in 0..5 {
        for witness in [Witness::Ec2, Witness::Imds] {
            let mut enis = world.cloud.look(witness, world.now);
            enis.retain(|eni| eni.id != world.node.primary_eni);
            enis.truncate(1);
            let started = world.now;
            world.send(Event::Sighting { witness, started, enis });
        }
        world.pass(Span::seconds(1));
    }
    assert_eq!((world.count_of(Topic::Vanished), world.split()), (0, vec![4, 4, 4]));
    assert_eq!(world.snapshot().enis.len(), 3);
}

#[test]
fn questions_to_imds_about_a_subnet_have_pauses() {
    let mut world = world();
    world.cloud.lag.insert(Witness::Imds, Span::seconds(60));
    let foreign = world.cloud.attach_foreign(7, 2, world.now);
    world.cloud.enis.get_mut(&foreign).unwrap().seen.subnet = "subnet-2".into();
    // Only EC2 shows it so far, without the CIDR of its subnet.
    let (started, enis) = (world.now, world.cloud.look(Witness::Ec2, world.now));
    world.send(Event::Sighting { witness: Witness::Ec2, started, enis });
    let looks = world.looks[&Witness::Imds];
    world.pass(Span::seconds(30));
    let asked = world.looks[&Witness::Imds] - looks;
    assert!((10..35).contains(&asked), "{asked} sweeps in 30 s");
    world.pass(Span::seconds(120));
    assert!(world.snapshot().enis.iter().any(|view| view.id == foreign), "it was not taken in");
}
