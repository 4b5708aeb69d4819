//! Rows as bytes.

use super::*;
use crate::{BackendRow, FrontendKey, TableSize};

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
