//! The guarantees for pods.

use crate::world::{World, key, pod};
use config_model::Span;
use ipamd_core::{Action, Answer, Cards, Event, PoolConfig, Record, RefusalReason, Ticket, Topic};

fn small(config: PoolConfig) -> World {
    let mut world = World::new(config, 3, 4, 3);
    world.pass(Span::seconds(5));
    world
}

fn addresses(warm: u32) -> PoolConfig {
    PoolConfig { warm_ip_target: Some(warm), ..PoolConfig::default() }
}

#[test]
fn the_same_key_gets_the_same_address() {
    let mut world = small(PoolConfig::default());
    let first = world.reserve(1);
    let again = world.reserve(1);
    assert_eq!(world.answers[&first], world.answers[&again]);
    world.pass(Span::seconds(1));
    let confirmed = world.reserve(1);
    assert_eq!(world.answers[&first], world.answers[&confirmed]);
}

#[test]
fn a_key_that_names_another_pod_is_refused() {
    let mut world = small(PoolConfig::default());
    world.reserve(1);
    let (ticket, give_up_at) = (Ticket(900), world.now + Span::seconds(45));
    let (cards, branch) = (Cards::First, None);
    world.send(Event::Reserve { ticket, key: key(1), pod: pod(2), cards, branch, give_up_at });
    assert_eq!(world.refused(ticket), Some(RefusalReason::Invalid));
}

#[test]
fn a_second_pod_with_the_name_of_a_host_veth_waits_for_the_end_of_the_first() {
    let mut world = small(PoolConfig::default());
    let (first, second) = (("shop", "web-282697"), ("tenant", "x-5499148"));
    let served = world.reserve_named(1, first, Cards::First);
    assert!(world.served(served));
    let refused = world.reserve_named(2, second, Cards::First);
    assert_eq!(world.refused(refused), Some(RefusalReason::TryAgain));
    let notices: Vec<_> =
        world.notices.iter().filter(|notice| notice.topic == Topic::VethNameInUse).collect();
    let pods = notices.iter().map(|notice| notice.pod.as_ref().unwrap().to_string());
    assert_eq!(pods.collect::<Vec<_>>(), ["tenant/x-5499148", "shop/web-282697"]);
    for notice in notices {
        for pod in ["tenant/x-5499148", "shop/web-282697"] {
            assert!(notice.cause.contains(pod), "{}", notice.cause);
        }
    }
    world.reserve_named(2, second, Cards::First);
    assert_eq!(world.count_of(Topic::VethNameInUse), 2, "a retry is not reported again");
    world.restart();
    world.pass(Span::seconds(5));
    let after_a_restart = world.reserve_named(3, second, Cards::First);
    assert_eq!(world.refused(after_a_restart), Some(RefusalReason::TryAgain));
    let next_sandbox = world.reserve_named(4, first, Cards::First);
    assert!(world.served(next_sandbox), "the same pod");
    world.release(1);
    let one_is_left = world.reserve_named(5, second, Cards::First);
    assert_eq!(world.refused(one_is_left), Some(RefusalReason::TryAgain));
    world.release(4);
    let free = world.reserve_named(6, second, Cards::First);
    assert!(world.served(free));
}

#[test]
fn a_warm_address_is_assigned_at_once() {
    let mut world = small(PoolConfig::default());
    let ticket = world.reserve(1);
    assert_eq!(world.answered_at[&ticket], world.now);
}

#[test]
fn pods_are_packed_so_that_other_enis_become_free() {
    let mut world = World::new(addresses(1), 3, 4, 3);
    world.pass(Span::seconds(5));
    for pod in 0..8 {
        world.reserve(pod);
        world.pass(Span::seconds(20));
    }
    assert_eq!(world.split(), [3, 3, 3]);
    for pod in 3..8 {
        world.release(pod);
    }
    world.pass(Span::seconds(300));
    assert_eq!(world.split(), [3, 1]);
    world.release(2);
    world.pass(Span::seconds(300));
    assert_eq!(world.split(), [3]);
    assert_eq!(world.cloud.count(Action::Delete), 2);
    assert_eq!(world.cloud.enis.len(), 1, "a detached ENI was left behind");
}

#[test]
fn a_reservation_never_confirmed_lapses_and_then_cools() {
    let mut world = small(PoolConfig::default());
    world.plugins_finish = false;
    world.reserve(1);
    let address = world.address_of(1);
    world.pass(Span::millis(59_900));
    assert_eq!(world.address_of(1), address);
    world.pass(Span::millis(200));
    assert_eq!(world.address_of(1), None);
    assert_eq!(world.core.counts().cooling, 1);
    assert_eq!(world.count_of(Topic::ReservationLapsed), 1);
    assert_eq!(world.forgotten, [(key(1), pod(1))]);
    let late = world.confirm(1);
    assert_eq!(world.answers[&late], Answer::Confirmed { confirmed: false });
}

#[test]
fn a_confirmed_pod_does_not_lapse_and_a_repeated_reserve_extends() {
    let mut world = small(PoolConfig::default());
    world.plugins_finish = false;
    world.reserve(1);
    world.pass(Span::seconds(40));
    world.reserve(1);
    world.pass(Span::seconds(40));
    let confirmed = world.confirm(1);
    assert_eq!(world.answers[&confirmed], Answer::Confirmed { confirmed: true });
    world.pass(Span::seconds(3600));
    assert!(world.core.inspect(&key(1)).unwrap().confirmed);
    world.release(1);
    assert_eq!(world.forgotten, [], "its DEL reports it");
}

#[test]
fn pods_of_records_without_a_mark_may_have_links_without_alias() {
    let mut world = small(PoolConfig::default());
    world.reserve(1);
    world.pass(Span::seconds(5));
    assert!(!world.core.inspect(&key(1)).unwrap().adopted);
    world.restart();
    assert!(!world.core.inspect(&key(1)).unwrap().adopted);
    for record in &mut world.file {
        if let Record::Confirmed { marked, .. } = record {
            *marked = false;
        }
    }
    world.restart();
    assert!(world.core.inspect(&key(1)).unwrap().adopted);
}

#[test]
fn a_reservation_that_lapses_after_a_restart_is_reported_too() {
    let mut world = small(PoolConfig::default());
    world.plugins_finish = false;
    world.reserve(1);
    world.restart();
    world.pass(Span::millis(59_900));
    assert_eq!(world.forgotten, []);
    world.pass(Span::millis(200));
    assert_eq!(world.forgotten, [(key(1), pod(1))]);
}

#[test]
fn a_release_returns_the_keys_addresses_and_a_second_one_none() {
    let mut world = small(PoolConfig::default());
    world.reserve(1);
    let address = world.address_of(1).unwrap();
    let first = world.release(1);
    let Answer::Released { known: true, addresses } = &world.answers[&first] else { panic!() };
    assert_eq!(addresses[0].address, address);
    let second = world.release(1);
    let nothing = Answer::Released { known: false, addresses: Vec::new() };
    assert_eq!(world.answers[&second], nothing);
}

#[test]
fn an_address_cools_and_leaves_the_kernel_before_its_reuse() {
    let config = PoolConfig { max_eni: Some(1), ..PoolConfig::default() };
    let mut world = small(config);
    world.reserve_all(0..3);
    world.pass(Span::seconds(1));
    world.kernel_stuck = true;
    world.release_only(0);
    let ticket = world.reserve_for(10, Span::seconds(600));
    world.pass(Span::seconds(120));
    assert!(!world.served(ticket), "the kernel still has it");
    assert_eq!(world.count_of(Topic::KernelDirty), 1);
    world.kernel_stuck = false;
    world.pass(Span::seconds(21));
    assert!(world.served(ticket));
}

#[test]
fn a_burst_is_queued_and_served_completely() {
    let mut world = World::new(PoolConfig::default(), 4, 15, 14);
    world.pass(Span::seconds(5));
    let tickets = world.reserve_all(0..56);
    world.pass(Span::seconds(45));
    let served_at: Vec<_> = tickets.iter().map(|ticket| world.answered_at[ticket]).collect();
    assert!(tickets.iter().all(|ticket| world.served(*ticket)));
    assert!(served_at.is_sorted(), "{served_at:?}");
    assert_eq!(world.split(), [14, 14, 14, 14]);
    assert_eq!(world.cloud.count(Action::Create), 3);
    assert_eq!(world.cloud.count(Action::Assign), 0);
}

#[test]
fn growth_starts_with_the_reserve_without_a_free_address() {
    let mut world = World::new(PoolConfig { warm_eni_target: 0, ..PoolConfig::default() }, 3, 4, 1);
    world.pass(Span::seconds(5));
    let before = world.cloud.log.len();
    world.reserve_all(0..2);
    // The plan waits only 20 ms for the rest of a burst.
    world.pass(Span::millis(20));
    assert_eq!(world.cloud.log[before].0, world.now);
}

#[test]
fn without_room_the_wait_ends_with_exhausted() {
    let mut world = small(PoolConfig::default());
    world.reserve_all(0..9);
    world.pass(Span::seconds(30));
    let ticket = world.reserve(9);
    // A pod may be deleted, and its address rest for 30 s: that helps within the first 15.
    world.pass(Span::seconds(15));
    assert!(!world.answers.contains_key(&ticket));
    world.pass(Span::millis(1));
    assert_eq!(world.refused(ticket), Some(RefusalReason::Exhausted));
}

#[test]
fn the_address_of_a_deleted_pod_serves_a_waiting_one() {
    let mut world = small(PoolConfig::default());
    world.reserve_all(0..9);
    world.pass(Span::seconds(30));
    let ticket = world.reserve(9);
    world.pass(Span::seconds(14));
    world.release(3);
    world.pass(Span::seconds(31));
    assert!(world.served(ticket), "{:?}", world.answers.get(&ticket));
}

#[test]
fn while_an_address_cools_the_wait_ends_with_try_again() {
    let mut world = small(PoolConfig::default());
    world.reserve_all(0..9);
    world.pass(Span::seconds(30));
    let ticket = world.reserve_for(9, Span::seconds(10));
    world.release(0);
    world.pass(Span::seconds(11));
    assert_eq!(world.refused(ticket), Some(RefusalReason::TryAgain));
}

#[test]
fn an_abandoned_request_is_not_served_and_delays_no_other() {
    let mut world = small(PoolConfig { max_eni: Some(1), ..PoolConfig::default() });
    world.reserve_all(0..3);
    let (gone, next) = (world.reserve(10), world.reserve(11));
    world.send(Event::Abandoned { ticket: gone });
    world.release(0);
    world.pass(Span::seconds(41));
    assert!(world.served(next));
    assert!(!world.answers.contains_key(&gone));
}

#[test]
fn a_delete_ends_the_wait_of_its_own_key() {
    let mut world = small(PoolConfig { max_eni: Some(1), ..PoolConfig::default() });
    world.reserve_all(0..3);
    let waiting = world.reserve(10);
    world.release(10);
    assert_eq!(world.refused(waiting), Some(RefusalReason::TryAgain));
    assert_eq!(world.core.counts().waiting, 0);
}

#[test]
fn a_stop_answers_all_waiting_requests_and_starts_no_calls() {
    let mut world = small(PoolConfig { max_eni: Some(1), ..PoolConfig::default() });
    let served = world.reserve_all(0..3);
    let waiting = world.reserve_all(3..6);
    world.send(Event::Stopping);
    assert!(served.iter().all(|ticket| world.served(*ticket)));
    assert!(waiting.iter().all(|ticket| world.refused(*ticket) == Some(RefusalReason::Stopping)));
    let late = world.reserve(7);
    assert_eq!(world.refused(late), Some(RefusalReason::Stopping));
    let before = world.cloud.log.len();
    world.pass(Span::seconds(600));
    assert_eq!(world.cloud.log.len(), before);
}

#[test]
fn free_cooled_addresses_are_returned_in_one_round() {
    let mut world = World::new(addresses(2), 3, 15, 14);
    world.pass(Span::seconds(60));
    assert_eq!(world.split(), [2]);
    assert_eq!(world.cloud.count(Action::Unassign), 1);
    world.reserve_all(0..6);
    world.pass(Span::seconds(60));
    assert_eq!(world.split(), [8]);
    for pod in 0..6 {
        world.release(pod);
    }
    world.pass(Span::seconds(29));
    // While the released ones cool they count as used: the pool even keeps two beside them.
    assert_eq!(world.split(), [8]);
    // The first return was too early, so the next one waits longer.
    world.pass(Span::seconds(60));
    assert_eq!(world.split(), [8]);
    world.pass(Span::seconds(30));
    assert_eq!(world.split(), [2]);
    assert_eq!(world.cloud.count(Action::Unassign), 2);
}

#[test]
fn a_late_delete_of_a_sandbox_does_not_touch_the_next_one() {
    let mut world = small(PoolConfig { max_eni: Some(1), ..PoolConfig::default() });
    world.reserve(1);
    let address = world.address_of(1);
    world.release(1);
    world.pass(Span::seconds(60));
    // The same pod in its next sandbox, with the same address.
    let (ticket, give_up_at) = (Ticket(900), world.now + Span::seconds(45));
    let (cards, branch) = (Cards::First, None);
    world.send(Event::Reserve { ticket, key: key(2), pod: pod(1), cards, branch, give_up_at });
    assert_eq!(world.address_of(2), address);
    for _ in 0..3 {
        let late = world.release(1);
        let nothing = Answer::Released { known: false, addresses: Vec::new() };
        assert_eq!(world.answers[&late], nothing);
    }
    assert_eq!(world.address_of(2), address);
}
