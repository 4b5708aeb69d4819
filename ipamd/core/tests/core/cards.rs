//! Several network cards, and pods with an address of each.

use crate::world::{Cloud, World, key};
use config_model::{CardIndex, Span};
use ipamd_core::{
    Action, Answer, CardLimits, Cards, Limits, PoolConfig, RefusalReason, Ticket, Topic,
};

const WAIT: Span = Span::seconds(45);

fn with(multi_nic: bool, others: u16) -> World {
    let mut limits = Limits::one_card(3, 4);
    limits.cards.push(CardLimits { card: CardIndex(1), enis: others });
    let mut cloud = Cloud::new(3, 4, 3);
    cloud.other_cards = usize::from(others);
    let node = World::node(&cloud);
    let config = PoolConfig { multi_nic, warm_ip_target: Some(2), ..PoolConfig::default() };
    let mut world = World::start(config, limits, node, cloud);
    world.pass(Span::seconds(60));
    world
}

fn cards_of(world: &World, ticket: Ticket) -> Vec<u16> {
    let answer = &world.answers[&ticket];
    let Answer::Reserved { addresses } = answer else { panic!("{answer:?}") };
    addresses.iter().map(|held| held.card.0).collect()
}

#[test]
fn every_card_has_a_pool_of_its_own() {
    let world = with(true, 2);
    assert_eq!(world.cloud.places(CardIndex(1)).len(), 1);
    let on = |card| {
        let enis = world.snapshot().enis.into_iter().filter(|eni| eni.card == CardIndex(card));
        enis.map(|eni| eni.counts.free).sum::<u64>()
    };
    assert_eq!((on(0), on(1)), (2, 1));
}

#[test]
fn a_pod_gets_one_address_of_each_card_and_the_same_again() {
    let mut world = with(true, 2);
    let first = world.reserve_from(1, Cards::All, false, WAIT);
    assert_eq!(cards_of(&world, first), [0, 1]);
    let again = world.reserve_from(1, Cards::All, false, WAIT);
    assert_eq!(world.answers[&first], world.answers[&again]);
    let Answer::Reserved { addresses } = &world.answers[&first] else { panic!() };
    let tables: Vec<u32> = addresses.iter().map(|held| held.table.0).collect();
    assert_eq!(tables[0], 254);
    assert!(tables[1] >= 10_100, "{tables:?}");
    world.pass(Span::seconds(1));
    let held = world.core.inspect(&key(1)).unwrap().addresses;
    world.restart();
    assert_eq!(world.core.inspect(&key(1)).unwrap().addresses, held);
    world.release(1);
    assert_eq!(world.snapshot().cooling.len(), 2);
    world.pass(Span::seconds(60));
    assert_eq!(world.snapshot().cooling.len(), 0);
}

#[test]
fn a_request_waits_until_every_card_has_an_address_and_delays_no_other() {
    let mut world = with(true, 2);
    let served = world.reserve_from(1, Cards::All, false, WAIT);
    assert!(world.served(served));
    world.pass(Span::millis(1));
    let waiting = world.reserve_from(2, Cards::All, false, WAIT);
    assert!(!world.answers.contains_key(&waiting), "card 1 had one address");
    let assigned = world.core.counts().assigned;
    assert_eq!(assigned, 2, "all or nothing");
    world.pass(Span::seconds(10));
    assert_eq!(cards_of(&world, waiting), [0, 1]);
}

#[test]
fn an_address_of_card_0_is_laid_by_for_who_waits_for_both() {
    let mut world = with(true, 2);
    world.reserve_from(1, Cards::All, false, WAIT);
    let both = world.reserve_from(2, Cards::All, false, WAIT);
    // One address of card 0 is free, and it is the elder's.
    let one = world.reserve(3);
    assert!(!world.answers.contains_key(&one));
    world.pass(Span::seconds(15));
    assert!(world.served(both) && world.served(one));
}

#[test]
fn a_request_takes_nothing_while_one_card_has_no_address() {
    let mut world = with(true, 1);
    for pod in 0..3 {
        let ticket = world.reserve_from(pod, Cards::All, false, WAIT);
        world.pass(Span::seconds(30));
        assert!(world.served(ticket), "{:?}", world.answers.get(&ticket));
    }
    let beyond = world.reserve_from(9, Cards::All, false, WAIT);
    world.pass(Span::seconds(60));
    assert_eq!(world.refused(beyond), Some(RefusalReason::Exhausted));
    assert_eq!(world.core.counts().assigned, 6);
    assert_eq!(world.count_of(Topic::ReserveRefused), 1);
    let single = world.reserve(10);
    world.pass(Span::seconds(30));
    assert!(world.served(single));
}

#[test]
fn no_address_is_reserved_for_a_request_that_cannot_be_served() {
    let mut world = with(true, 1);
    for pod in 0..8 {
        let cards = if pod < 3 { Cards::All } else { Cards::First };
        world.reserve_from(pod, cards, false, WAIT);
        world.pass(Span::seconds(60));
    }
    assert_eq!((world.core.counts().assigned, world.core.counts().free), (11, 1));
    let in_vain = world.reserve_from(8, Cards::All, false, WAIT);
    world.pass(Span::seconds(1));
    let last = world.reserve(9);
    assert!(world.served(last), "{:?}", world.answers.get(&last));
    world.pass(WAIT);
    assert_eq!(world.refused(in_vain), Some(RefusalReason::Exhausted));
}

#[test]
fn an_unused_eni_of_another_card_is_removed() {
    let mut world = with(true, 2);
    for pod in 0..4 {
        world.reserve_from(pod, Cards::All, false, WAIT);
        world.pass(Span::seconds(30));
    }
    assert_eq!(world.cloud.places(CardIndex(1)).len(), 2);
    for pod in 0..4 {
        world.release(pod);
    }
    world.pass(Span::seconds(600));
    assert_eq!(world.cloud.places(CardIndex(1)).len(), 1);
    assert!(world.cloud.count(Action::Delete) > 0);
}

#[test]
fn without_the_mode_other_cards_are_unused() {
    let mut world = with(false, 2);
    assert!(world.cloud.places(CardIndex(1)).is_empty());
    let ticket = world.reserve_from(1, Cards::All, false, WAIT);
    assert_eq!(cards_of(&world, ticket), [0]);
}

#[test]
fn a_further_interface_has_the_name_of_another_pods_host_veth() {
    let mut world = with(true, 2);
    let both = world.reserve_named(1, ("shop", "web"), Cards::All);
    assert!(world.served(both));
    let other = world.reserve_named(2, ("shop", "web.1"), Cards::First);
    assert_eq!(world.refused(other), Some(RefusalReason::TryAgain));
    world.release(1);
    let other = world.reserve_named(3, ("shop", "web.1"), Cards::First);
    assert!(world.served(other));
    let both = world.reserve_named(4, ("shop", "web"), Cards::All);
    assert_eq!(world.refused(both), Some(RefusalReason::TryAgain));
    let one = world.reserve_named(5, ("shop", "web"), Cards::First);
    world.pass(Span::seconds(20));
    assert!(world.served(one), "one interface has another name");
}
