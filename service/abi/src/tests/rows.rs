//! Rows as bytes.

use super::*;
use crate::{BackendRow, FrontendKey, SocketKey, TableSize};

proptest! {
    /// A process that starts finds the state in the maps.
    #[test]
    fn the_rows_have_all_of_the_state(state in frontends()) {
        let mut node = Node::new(LIMITS);
        node.reach(&state);
        let held = node.mirror.held();
        for place in held.frontends.keys() {
            prop_assert_eq!(FrontendKey::from(*place).place(), Some(*place));
        }
        for word in held.words.values() {
            prop_assert_eq!(Word::from_number(word.to_number()), Some(*word));
        }
        for row in held.backends.values() {
            prop_assert_eq!(BackendRow::from_bytes(&row.to_bytes()), *row);
            let is_used = |of: &BackendRow| of.is_present && of.at == row.at;
            let is_used = held.backends.values().any(is_used);
            prop_assert_eq!(row.at.is_some_and(|at| node.mirror.has_backend(at)), is_used);
        }
    }

    /// No other key or word is taken for one that a release writes.
    #[test]
    fn each_row_has_one_form(key: [u8; 24], number: u64) {
        if let Some(place) = FrontendKey(key).place() {
            prop_assert_eq!(FrontendKey::from(place).0, key);
        }
        if let Some(word) = Word::from_number(number) {
            prop_assert_eq!(word.to_number(), number);
        }
    }
}

#[test]
fn node_ports_of_both_families_have_keys_of_their_own() {
    let of = |family| FrontendKey::from(Place::NodePort(family, 30_000, Protocol::Tcp));
    assert_ne!(of(Family::V4), of(Family::V6));
    let mut odd = of(Family::V4);
    odd.0[23] = 1;
    assert_eq!(odd.place(), None, "a byte that no release writes");
}

#[test]
fn the_key_of_a_socket_has_the_layout_of_the_programs() {
    let of = |address: [u8; 16]| {
        let parts = [
            &0x0102_0304_0506_0708_u64.to_ne_bytes()[..],
            &address,
            &53_u16.to_ne_bytes(),
            &17_u16.to_ne_bytes(),
            &[0; 4],
        ];
        parts.concat()
    };
    let mapped = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 2];
    let v6 = [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    for (backend, address) in
        [("10.0.0.2:53", mapped), ("[::ffff:10.0.0.2]:53", mapped), ("[fd00::2]:53", v6)]
    {
        let backend = backend.parse().expect("an address of this test");
        assert_eq!(SocketKey::of_udp(0x0102_0304_0506_0708, backend).0[..], of(address));
    }
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
