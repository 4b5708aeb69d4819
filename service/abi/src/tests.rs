//! The laws of the planner.

use crate::{
    BackendRow, Choice, Frontend, FrontendKey, Held, Limits, Place, TableSize, Target, Word, Write,
    plan,
};
use proptest::prelude::*;
use service_objects::Protocol;
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

const LIMITS: Limits =
    Limits { frontends: 32, words: 64, small: 64, medium: 8, large: 2, backends: 64 };

fn backend(number: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, number], 8080))
}

fn choice() -> impl Strategy<Value = Choice> {
    prop_oneof![
        4 => proptest::collection::btree_set(1_u8..20, 1..20)
            .prop_map(|of| Choice::Backends(of.into_iter().map(backend).collect())),
        1 => Just(Choice::NoEndpoints),
        1 => Just(Choice::NoLocalEndpoints),
        1 => Just(Choice::NoSuchPort),
    ]
}

fn place() -> impl Strategy<Value = Place> {
    let address = prop_oneof![
        (1_u8..6).prop_map(|last| IpAddr::from([172, 20, 0, last])),
        (1_u16..6).prop_map(|last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last])),
    ];
    let protocol = prop_oneof![Just(Protocol::Tcp), Just(Protocol::Udp), Just(Protocol::Sctp)];
    prop_oneof![
        (address.clone(), 80_u16..82, protocol.clone()).prop_map(|(a, b, c)| Place::Port(a, b, c)),
        (30_000_u16..30_004, protocol).prop_map(|(port, of)| Place::NodePort(port, of)),
        address.prop_map(Place::OtherPorts),
    ]
}

fn target() -> impl Strategy<Value = Target> {
    let frontend = (choice(), choice(), 0_u32..2);
    let frontend =
        frontend.prop_map(|(inside, outside, affinity)| Frontend { inside, outside, affinity });
    proptest::collection::btree_map(place(), frontend, 0..10)
        .prop_map(|frontends| Target { frontends })
}

/// The state as a program reads it. `None` where a row that a program needs is missing or belongs to another state.
fn read(held: &Held) -> Option<Target> {
    let choice = |number: u32| {
        Some(match held.words.get(&number)? {
            Word::NoEndpoints => Choice::NoEndpoints,
            Word::NoLocalEndpoints => Choice::NoLocalEndpoints,
            Word::NoSuchPort => Choice::NoSuchPort,
            Word::Table { slot, count } => {
                let backends = held.tables.get(slot)?.iter().take(usize::from(*count));
                let at = |number: &u32| held.backends.get(number).filter(|row| row.is_present)?.at;
                Choice::Backends(backends.map(at).collect::<Option<_>>()?)
            }
        })
    };
    let frontends = held.frontends.iter().map(|(place, row)| {
        let (inside, outside) = (choice(row.word)?, choice(row.word + 1)?);
        Some((*place, Frontend { inside, outside, affinity: row.affinity }))
    });
    Some(Target { frontends: frontends.collect::<Option<_>>()? })
}

fn write(held: &mut Held, target: &Target) -> Vec<Write> {
    let writes = plan(held, target).expect("there is room");
    for write in &writes {
        held.apply(write);
    }
    held.retire();
    writes
}

proptest! {
    /// Each state is reached, needs no further write, and each packet on the way finds the earlier or the later choice of its
    /// frontend, whole.
    #[test]
    fn a_target_is_reached_and_no_packet_finds_half_of_it(
        targets in proptest::collection::vec(target(), 1..6),
    ) {
        let mut held = Held { limits: LIMITS, ..Held::default() };
        let mut before = Target::default();
        for target in targets {
            for write in plan(&held, &target).expect("there is room") {
                held.apply(&write);
                let now = read(&held).expect("each frontend can be read");
                for (place, frontend) in &now.frontends {
                    let states = [&before, &target].map(|of| of.frontends.get(place));
                    let is_of = |choice: fn(&Frontend) -> &Choice| {
                        states.iter().flatten().any(|of| choice(of) == choice(frontend))
                    };
                    prop_assert!(is_of(|of| &of.inside) && is_of(|of| &of.outside), "{place:?}");
                }
            }
            held.retire();
            prop_assert_eq!(read(&held), Some(target.clone()));
            prop_assert_eq!(plan(&held, &target), Ok(Vec::new()));
            held.release();
            before = target;
        }
    }

    /// A process that starts finds the state in the maps.
    #[test]
    fn the_rows_have_all_of_the_state(target in target()) {
        let mut held = Held { limits: LIMITS, ..Held::default() };
        write(&mut held, &target);
        let frontends = held.frontends.keys().map(|place| FrontendKey::from(*place).place());
        prop_assert_eq!(
            frontends.collect::<Option<Vec<_>>>(),
            Some(held.frontends.keys().copied().collect())
        );
        for word in held.words.values() {
            prop_assert_eq!(Word::from_number(word.to_number()), Some(*word));
        }
        for row in held.backends.values() {
            prop_assert_eq!(BackendRow::from_bytes(&row.to_bytes()), *row);
        }
    }
}

fn one(backends: &[SocketAddr]) -> Target {
    let choice = Choice::Backends(backends.into());
    let frontend = Frontend { inside: choice.clone(), outside: choice, affinity: 0 };
    let place = Place::Port(IpAddr::from([172, 20, 0, 1]), 80, Protocol::Tcp);
    Target { frontends: BTreeMap::from([(place, frontend)]) }
}

#[test]
fn a_thousand_changed_endpoints_are_one_table_and_one_word() {
    let limits = Limits { backends: 2048, ..LIMITS };
    let mut held = Held { limits, ..Held::default() };
    let at = |number: u16| {
        let [high, low] = number.to_be_bytes();
        SocketAddr::from(([10, 0, high, low], 80))
    };
    let all: Vec<SocketAddr> = (0..1000).map(at).collect();
    write(&mut held, &one(&all));
    let writes = write(&mut held, &one(&all[500..]));
    let of = |is: fn(&Write) -> bool| writes.iter().filter(|write| is(write)).count();
    assert_eq!(of(|write| matches!(write, Write::Table(..))), 1);
    // Both words of the frontend.
    assert_eq!(of(|write| matches!(write, Write::Word(..))), 2);
    assert_eq!(of(|write| matches!(write, Write::Backend(_, row) if !row.is_present)), 500);
    assert_eq!(writes.len(), 503);
}

#[test]
fn a_backend_that_returns_has_another_life() {
    let mut held = Held { limits: LIMITS, ..Held::default() };
    write(&mut held, &one(&[backend(1)]));
    let before = held.backends[&0];
    write(&mut held, &one(&[backend(2)]));
    assert!(!held.backends[&0].is_present && held.backends[&1].is_present);
    held.release();
    write(&mut held, &one(&[backend(1)]));
    let after = held.backends[&0];
    assert!(after.is_present && after.life != before.life, "{before:?} {after:?}");
}

#[test]
fn a_retired_table_is_used_again_only_after_its_release() {
    let mut held = Held { limits: Limits { small: 2, ..LIMITS }, ..Held::default() };
    write(&mut held, &one(&[backend(1)]));
    write(&mut held, &one(&[backend(2)]));
    let error = plan(&held, &one(&[backend(3)])).expect_err("both tables may be read");
    assert_eq!(
        error.to_string(),
        "cannot add a row to map backends_small: it has 2 rows; remove Services or endpoints"
    );
    held.release();
    write(&mut held, &one(&[backend(3)]));
    assert_eq!(held.tables.len(), 1);
}

#[test]
fn the_size_of_a_table_follows_its_backends() {
    let sizes = [1, 16, 17, 512, 513, 8191, 8192].map(TableSize::of);
    let expected = [
        Some(TableSize::Small),
        Some(TableSize::Small),
        Some(TableSize::Medium),
        Some(TableSize::Medium),
        Some(TableSize::Large),
        Some(TableSize::Large),
        None,
    ];
    assert_eq!(sizes, expected);
}
