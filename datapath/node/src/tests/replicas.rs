//! The order of replicas.

use crate::{Next, Replicas};
use config_model::{Span, Time};
use std::{collections::BTreeSet, net::SocketAddr};

fn three() -> BTreeSet<SocketAddr> {
    (1..=3).map(|last| SocketAddr::from(([10, 0, 0, last], 61690))).collect()
}

fn dialed(next: Next) -> (SocketAddr, bool) {
    let Next::Dial { at, take_behind } = next else { panic!("{next:?}") };
    (at, take_behind)
}

#[test]
fn nodes_spread_and_each_keeps_its_order() {
    let mut first = BTreeSet::new();
    for node in 0..100 {
        let mut replicas = Replicas::new(format!("node-{node}"));
        assert_eq!(replicas.next(Time(0), 0), Next::NoReplica);
        replicas.ready(&three());
        let order = replicas.all().to_vec();
        replicas.ready(&three());
        assert_eq!(replicas.all(), order);
        first.insert(dialed(replicas.next(Time(0), 0)).0);
    }
    assert_eq!(first, three());
}

#[test]
fn each_replica_is_tried_once_in_a_round_and_rounds_have_pauses() {
    let mut replicas = Replicas::new("n");
    replicas.ready(&three());
    let (mut now, mut last) = (Time(0), Span(0));
    for round in 0..12 {
        let tried: BTreeSet<_> = (0..3).map(|_| dialed(replicas.next(now, 7)).0).collect();
        assert_eq!(tried, three());
        let Next::Wait(until) = replicas.next(now, u64::MAX) else { panic!("no pause") };
        let pause = until.since(now);
        assert!(pause >= last && pause <= Span::seconds(15), "{round}: {pause:?}");
        assert_eq!(replicas.next(now, 0), Next::Wait(until));
        (now, last) = (until, Span(pause.0 / 2));
    }
    // A new replica ends the pause.
    let more = three().into_iter().chain(["10.0.0.4:1".parse().unwrap()]).collect();
    let pauses = |next: Next| matches!(next, Next::Wait(_));
    assert!((0..4).any(|_| pauses(replicas.next(now, 0))));
    replicas.ready(&more);
    let tried: BTreeSet<_> = (0..4).map(|_| dialed(replicas.next(now, 0)).0).collect();
    assert_eq!(tried, more);
}

#[test]
fn the_newest_replica_that_is_behind_is_followed_after_half_a_minute() {
    let mut replicas = Replicas::new("n");
    replicas.ready(&three());
    let mut now = Time(50_000);
    let began = now;
    let newest = SocketAddr::from(([10, 0, 0, 2], 61690));
    loop {
        match replicas.next(now, 0) {
            Next::Dial { at, take_behind: false } => {
                replicas.is_behind(at, if at == newest { 5 } else { 50 }, now);
            }
            Next::Dial { at, take_behind: true } => {
                assert_eq!(at, newest);
                assert!(now.since(began) >= Span::seconds(30), "{now:?}");
                break;
            }
            Next::Wait(until) => now = until,
            Next::NoReplica => panic!("there are three"),
        }
        assert!(now.since(began) < Span::seconds(60), "none was taken");
    }
    // Once a replica is followed, the wait restarts.
    replicas.began();
    replicas.ended(now, 0);
    let Next::Wait(until) = replicas.next(now, 0) else { panic!("no pause") };
    assert!(!dialed(replicas.next(until, 0)).1);
}

#[test]
fn a_node_leaves_a_replica_that_is_no_longer_ready() {
    let mut replicas = Replicas::new("n");
    let at = *three().first().unwrap();
    assert!(!replicas.is_left_out(at), "no others are known");
    replicas.ready(&three());
    assert!(!replicas.is_left_out(at));
    replicas.ready(&three().into_iter().skip(1).collect());
    assert!(replicas.is_left_out(at));
    replicas.ready(&BTreeSet::new());
    assert!(!replicas.is_left_out(at), "none is better");
}

#[test]
fn the_wait_for_replicas_behind_restarts_after_a_round_without_one() {
    let mut replicas = Replicas::new("n");
    replicas.ready(&three());
    let mut now = Time(50_000);
    for round in 0..2 {
        // One replica is behind at first; then no replica answers for minutes.
        let (began, mut was_behind) = (now, false);
        while now.since(began) < Span::seconds(120) {
            match replicas.next(now, 0) {
                Next::Dial { at, take_behind: false } => {
                    if !was_behind {
                        replicas.is_behind(at, 5, now);
                    }
                    was_behind = true;
                }
                Next::Dial { take_behind: true, .. } => {
                    panic!("round {round}: one was taken that had been behind for a moment")
                }
                Next::Wait(until) => now = until,
                Next::NoReplica => panic!("there are three"),
            }
        }
    }
    // It is not kept while no replica is known either.
    replicas.ready(&[].into());
    assert_eq!(replicas.next(now, 0), Next::NoReplica);
}
