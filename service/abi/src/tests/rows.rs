//! Rows as bytes.

use super::*;
use crate::{BackendRow, FrontendKey, FrontendRow, SocketKey, TableSize};

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
        for row in held.frontends.values() {
            prop_assert_eq!(FrontendRow::from_bytes(&row.to_bytes()), *row);
        }
        for (word, range) in held.sources.iter().flat_map(|(word, of)| of.iter().map(move |of| (*word, *of))) {
            prop_assert_eq!(SourceKey::new(word, range).range(), Some((word, range)));
        }
        for word in held.words.values() {
            prop_assert_eq!(Word::from_number(word.to_number()), Some(*word));
        }
        for (_, row) in held.backends.iter() {
            prop_assert_eq!(BackendRow::from_bytes(&row.to_bytes()), *row);
            let is_used = held.backends.present().any(|(_, of)| of.at == row.at);
            prop_assert_eq!(row.at.is_some_and(|at| node.mirror.has_backend(at)), is_used);
        }
    }

    /// No other key or word is taken for one that a release writes.
    #[test]
    fn each_row_has_one_form(key: [u8; 24], number: u64, length in 0_u32..170, bytes: [u8; 20]) {
        if let Some(place) = FrontendKey(key).place() {
            prop_assert_eq!(FrontendKey::from(place).0, key);
        }
        if let Some(word) = Word::from_number(number) {
            prop_assert_eq!(word.to_number(), number);
        }
        let source = SourceKey { length, bytes };
        if let Some((word, range)) = source.range() {
            prop_assert_eq!(SourceKey::new(word, range), source);
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
fn a_source_range_has_the_bits_of_a_mapped_address() {
    let key = |text| SourceKey::new(0, range(text).into());
    let (v4, mapped) = (key("10.1.2.3/8"), key("::ffff:10.0.0.0/104"));
    assert_eq!((v4, v4.length), (mapped, 32 + 96 + 8));
    assert_eq!(v4.bytes[14..], [0xff, 0xff, 10, 0, 0, 0]);
    assert_eq!(key("::/0").length, 32);
    assert_eq!(key("fd00::1/128").length, 160);
    for odd in [
        SourceKey { length: 31, ..v4 },
        SourceKey { length: 161, ..v4 },
        SourceKey { length: 33, ..v4 },
    ] {
        assert_eq!(odd.range(), None, "{odd:?}");
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
