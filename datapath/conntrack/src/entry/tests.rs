#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use proptest::prelude::*;

fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(4 + value.len()).unwrap();
    let mut bytes = [length.to_ne_bytes(), kind.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn nested(kind: u16, parts: &[Vec<u8>]) -> Vec<u8> {
    attribute(kind | NESTED, &parts.concat())
}

/// NLA_F_NESTED
const NESTED: u16 = 0x8000;

fn address(kinds: (u16, u16), address: &str) -> Vec<u8> {
    match address.parse().unwrap() {
        IpAddr::V4(address) => attribute(kinds.0, &address.octets()),
        IpAddr::V6(address) => attribute(kinds.1, &address.octets()),
    }
}

fn addresses_of(source: &str, destination: &str) -> Vec<u8> {
    let source = address((V4_SOURCE, V6_SOURCE), source);
    let destination = address((V4_DESTINATION, V6_DESTINATION), destination);
    nested(TUPLE_IP, &[source, destination])
}

fn ports_of(protocol: u8, source: u16, destination: u16) -> Vec<u8> {
    let number = attribute(PROTO_NUM, &[protocol]);
    let source = attribute(SOURCE_PORT, &source.to_be_bytes());
    let destination = attribute(DESTINATION_PORT, &destination.to_be_bytes());
    nested(TUPLE_PROTO, &[number, source, destination])
}

fn status(bits: u32) -> Vec<u8> {
    attribute(STATUS, &bits.to_be_bytes())
}

fn timeout(seconds: u32) -> Vec<u8> {
    attribute(TIMEOUT, &seconds.to_be_bytes())
}

fn entry(attributes: &[Vec<u8>]) -> Vec<u8> {
    [&[2, 0, 0, 0][..], &attributes.concat()].concat()
}

/// A connection to 10.96.0.1:80, which DNAT leads to 10.0.0.2:8080.
fn service() -> [Vec<u8>; 5] {
    let original = [addresses_of("10.0.0.1", "10.96.0.1"), ports_of(TCP, 40000, 80)];
    let reply = [addresses_of("10.0.0.2", "10.0.0.1"), ports_of(TCP, 8080, 40000)];
    let state = nested(PROTOINFO_TCP, &[attribute(TCP_STATE, &[3]), attribute(2, &[7])]);
    [
        nested(TUPLE_ORIG, &original),
        nested(TUPLE_REPLY, &reply),
        // Also CONFIRMED, DST_NAT and DST_NAT_DONE.
        status(SEEN_REPLY | ASSURED | 1 << 3 | 1 << 5 | 1 << 8),
        timeout(431_999),
        nested(PROTOINFO, &[state]),
    ]
}

/// The entry as a message about a connection, with this sequence number.
pub(crate) fn message(sequence: u32) -> Vec<u8> {
    crate::reply::tests::framed(0x100, 2, sequence, &entry(&service()))
}

fn tuple(ends: (&str, u16), to: (&str, u16), icmp: Option<IcmpMessage>) -> Tuple {
    let (source, destination) = (ends.0.parse().unwrap(), to.0.parse().unwrap());
    Tuple { source, destination, source_port: ends.1, destination_port: to.1, icmp }
}

pub(crate) fn connection() -> Connection {
    Connection {
        protocol: 6,
        original: tuple(("10.0.0.1", 40000), ("10.96.0.1", 80), None),
        reply: tuple(("10.0.0.2", 8080), ("10.0.0.1", 40000), None),
        is_answered: true,
        is_assured: true,
        tcp_state: Some(TcpState::Established),
        timeout: Some(Duration::from_secs(431_999)),
    }
}

#[test]
fn a_translated_connection_has_both_tuples() {
    assert_eq!(parse(&entry(&service())), Ok(Entry::Connection(connection())));
}

#[test]
fn an_unanswered_datagram_of_ipv6_has_no_state() {
    let original = [addresses_of("fd00::1", "fd00::2"), ports_of(UDP, 5000, 53)];
    let reply = [addresses_of("fd00::2", "fd00::1"), ports_of(UDP, 53, 5000)];
    let parts =
        [nested(TUPLE_ORIG, &original), nested(TUPLE_REPLY, &reply), status(8), timeout(30)];
    let expected = Connection {
        protocol: 17,
        original: tuple(("fd00::1", 5000), ("fd00::2", 53), None),
        reply: tuple(("fd00::2", 53), ("fd00::1", 5000), None),
        is_answered: false,
        is_assured: false,
        tcp_state: None,
        timeout: Some(Duration::from_secs(30)),
    };
    assert_eq!(parse(&entry(&parts)), Ok(Entry::Connection(expected)));
}

#[test]
fn an_echo_has_its_identifier_as_ports() {
    for (protocol, first, kinds, ends) in [
        (ICMP, ICMP_ID, (8, 0), ("10.0.0.1", "10.0.0.2")),
        (ICMPV6, ICMPV6_ID, (128, 129), ("fd00::1", "fd00::2")),
    ] {
        let transport = |kind: u8| {
            let number = attribute(PROTO_NUM, &[protocol]);
            let identifier = attribute(first, &77_u16.to_be_bytes());
            let parts =
                [number, identifier, attribute(first + 1, &[kind]), attribute(first + 2, &[0])];
            nested(TUPLE_PROTO, &parts)
        };
        let parts = [
            nested(TUPLE_ORIG, &[addresses_of(ends.0, ends.1), transport(kinds.0)]),
            nested(TUPLE_REPLY, &[addresses_of(ends.1, ends.0), transport(kinds.1)]),
            status(SEEN_REPLY),
        ];
        let Ok(Entry::Connection(echo)) = parse(&entry(&parts)) else { panic!("{protocol}") };
        let message = |kind| Some(IcmpMessage { kind, code: 0 });
        assert_eq!(echo.original, tuple((ends.0, 77), (ends.1, 77), message(kinds.0)));
        assert_eq!(echo.reply, tuple((ends.1, 77), (ends.0, 77), message(kinds.1)));
    }
}

#[test]
fn a_protocol_without_ports_has_zeros() {
    let transport = |protocol| nested(TUPLE_PROTO, &[attribute(PROTO_NUM, &[protocol])]);
    let parts = |protocol| {
        entry(&[
            nested(TUPLE_ORIG, &[addresses_of("10.0.0.1", "10.0.0.2"), transport(protocol)]),
            nested(TUPLE_REPLY, &[addresses_of("10.0.0.2", "10.0.0.1"), transport(protocol)]),
            status(0),
        ])
    };
    let Ok(Entry::Connection(esp)) = parse(&parts(50)) else { panic!("ESP") };
    assert_eq!(esp.original, tuple(("10.0.0.1", 0), ("10.0.0.2", 0), None));
    for protocol in [TCP, UDP, SCTP, DCCP, UDPLITE] {
        assert_eq!(parse(&parts(protocol)), Err(EntryError::Missing("port")), "{protocol}");
    }
    assert_eq!(parse(&parts(ICMP)), Err(EntryError::Missing("ICMP identifier")));
}

#[test]
fn unknown_attributes_change_nothing() {
    // Attributes of a kernel that counts packets, with labels and a number that no kernel has yet.
    let foreign = [attribute(8, &[0; 4]), nested(9, &[attribute(1, &[1; 8])]), attribute(500, &[])];
    let parts: Vec<_> = foreign.iter().chain(&service()).chain(&foreign).cloned().collect();
    assert_eq!(parse(&entry(&parts)), Ok(Entry::Connection(connection())));
}

#[test]
fn a_connection_in_a_flow_table_has_neither_state_nor_timeout() {
    let [original, reply, status, ..] = service();
    let expected = Connection { tcp_state: None, timeout: None, ..connection() };
    assert_eq!(parse(&entry(&[original, reply, status])), Ok(Entry::Connection(expected)));
}

#[test]
fn the_zone_of_one_direction_is_another_zone() {
    let zone = |kind, number: u16| attribute(kind, &number.to_be_bytes());
    let parts = |part| entry(&[&service()[..], &[part]].concat());
    assert_eq!(parse(&parts(zone(ZONE, 7))), Ok(Entry::OtherZone));
    assert_eq!(parse(&parts(zone(ZONE, 0))), Ok(Entry::Connection(connection())));
    let addresses = addresses_of("10.0.0.2", "10.0.0.1");
    let reply = [addresses, ports_of(TCP, 8080, 40000), zone(TUPLE_ZONE, 7)];
    assert_eq!(parse(&parts(nested(TUPLE_REPLY, &reply))), Ok(Entry::OtherZone));
}

#[test]
fn a_missing_or_wrong_part_is_an_error() {
    let without = |at: usize| {
        let mut parts = service().to_vec();
        parts.remove(at);
        parse(&entry(&parts))
    };
    assert_eq!(without(0), Err(EntryError::Missing("original tuple")));
    assert_eq!(without(1), Err(EntryError::Missing("reply tuple")));
    assert_eq!(without(2), Err(EntryError::Missing("status")));
    let with = |part: Vec<u8>| parse(&entry(&[&service()[..], &[part]].concat()));
    assert_eq!(with(attribute(STATUS, &[0; 3])), Err(EntryError::Length("status")));
    assert_eq!(with(attribute(TIMEOUT, &[0; 8])), Err(EntryError::Length("timeout")));
    let other = |ends: Vec<u8>, protocol| {
        with(nested(TUPLE_REPLY, &[ends, ports_of(protocol, 8080, 40000)]))
    };
    let v4 = || addresses_of("10.0.0.2", "10.0.0.1");
    assert_eq!(other(v4(), UDP), Err(EntryError::Inconsistent));
    assert_eq!(other(addresses_of("fd00::2", "fd00::1"), TCP), Err(EntryError::Inconsistent));
    assert_eq!(other(addresses_of("fd00::2", "10.0.0.1"), TCP), Err(EntryError::Inconsistent));
    // The address of the other family's length.
    let short = nested(TUPLE_IP, &[attribute(V6_SOURCE, &[0; 4])]);
    assert_eq!(other(short, TCP), Err(EntryError::Length("IPv6 address")));
}

#[test]
fn a_cut_entry_is_an_error_or_lacks_only_whole_attributes_at_its_end() {
    let whole = entry(&service());
    let end_of = |parts: usize| 4 + service()[..parts].concat().len();
    for length in 0..whole.len() {
        let parsed = parse(&whole[..length]);
        if length == end_of(3) || length == end_of(4) {
            assert!(matches!(parsed, Ok(Entry::Connection(_))), "{length}: {parsed:?}");
        } else {
            assert!(parsed.is_err(), "{length}: {parsed:?}");
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let _ = parse(&bytes);
    }

    /// Most random bytes end at the first attribute, so this test changes a good entry.
    #[test]
    fn no_changed_bytes_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8)) {
        let mut bytes = entry(&service());
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        let _ = parse(&bytes);
    }
}
