//! Rows of connections, by where NAT changes them.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use super::*;
use datapath_conntrack::IcmpMessage;
use std::net::{IpAddr, SocketAddr};

const NOW: Now = Now { seen: 5, generation: 6 };
const A: u32 = 1;
const B: u32 = 2;

fn address(text: &str) -> Address {
    text.parse::<IpAddr>().unwrap().into()
}

fn tuple(source: &str, destination: &str) -> Tuple {
    let [source, destination] = [source, destination].map(|at| at.parse::<SocketAddr>().unwrap());
    Tuple {
        source: source.ip(),
        destination: destination.ip(),
        source_port: source.port(),
        destination_port: destination.port(),
        icmp: None,
    }
}

/// An established connection: the original tuple, and the tuple of replies.
fn tcp(original: (&str, &str), reply: (&str, &str)) -> Connection {
    Connection {
        protocol: TCP,
        original: tuple(original.0, original.1),
        reply: tuple(reply.0, reply.1),
        is_answered: true,
        is_assured: true,
        tcp_state: Some(TcpState::Established),
        timeout: None,
    }
}

fn own() -> Own {
    Own { addresses: [address("192.168.0.1")].into(), ..Own::default() }
}

fn target() -> Target {
    let mut target = Target::default();
    target.services.insert(address("172.20.0.1"), 77);
    target
}

fn pods() -> BTreeMap<u32, Pod> {
    let pod = |v4, v6| Pod { v4: Some(address(v4)), v6: Some(address(v6)), ..Pod::default() };
    [(A, pod("10.0.0.1", "fd00::1")), (B, pod("10.0.0.2", "fd00::2"))].into()
}

/// The row of a connection if these links are not guarded yet, with its ends as the key has them.
fn row(unguarded: &[u32], connection: &Connection) -> Option<(FlowKey, Flow)> {
    let (own, target) = (own(), target());
    let unguarded = unguarded.iter().copied().collect();
    Existing::of(unguarded, &pods(), &own, &target, 100).row(connection, NOW)
}

fn key(source: &str, destination: &str) -> FlowKey {
    ends_of(TCP, &tuple(source, destination)).unwrap().key()
}

#[test]
fn a_connection_of_two_pods_has_their_links() {
    let direct = tcp(("10.0.0.1:40000", "10.0.0.2:80"), ("10.0.0.2:80", "10.0.0.1:40000"));
    let (at, flow) = row(&[B], &direct).unwrap();
    assert_eq!(at, key("10.0.0.1:40000", "10.0.0.2:80"));
    let expected = Flow {
        seen: 5,
        service: 0,
        source: address("10.0.0.1"),
        destination: address("10.0.0.2"),
        key: 6 << 16 | 80,
        source_port: 40000,
        generation: 6,
        initiator: A,
        responder: B,
        is_from_low: true,
        is_from_node: false,
    };
    assert_eq!(flow, expected);
    assert_eq!(row(&[A], &direct), Some((at, expected)));
    assert_eq!(row(&[], &direct), None, "programs guard both pods");

    // The other pod is the initiator here. The key has the same order of ends.
    let back = tcp(("10.0.0.2:40000", "10.0.0.1:80"), ("10.0.0.1:80", "10.0.0.2:40000"));
    let (at, flow) = row(&[A], &back).unwrap();
    assert_eq!(at, key("10.0.0.1:80", "10.0.0.2:40000"));
    assert_eq!((flow.initiator, flow.responder, flow.is_from_low), (B, A, false));
    assert_eq!((flow.source_port, flow.key), (40000, 6 << 16 | 80));
}

#[test]
fn the_ends_of_a_key_are_in_the_order_of_the_machines_numbers() {
    // In network order the second address is the lower one.
    let ends = ends_of(TCP, &tuple("10.0.0.2:1", "10.0.1.1:1")).unwrap();
    assert_eq!(ends.is_from_low(), cfg!(target_endian = "big"));
    let ends = ends_of(TCP, &tuple("[fd00::1:1]:1", "[fd00::2]:1")).unwrap();
    assert_eq!(ends.is_from_low(), !cfg!(target_endian = "big"));
    let same = ends_of(TCP, &tuple("10.0.0.2:2", "10.0.0.2:1")).unwrap();
    assert!(!same.is_from_low());
}

#[test]
fn a_pods_connection_to_a_service_is_judged_by_its_final_destination() {
    let both = tcp(("10.0.0.1:40000", "172.20.0.1:80"), ("10.0.0.2:8080", "192.168.0.1:50000"));
    let (at, flow) = row(&[A], &both).unwrap();
    assert_eq!(at, key("10.0.0.1:40000", "172.20.0.1:80"), "as the pod sent it");
    assert_eq!((flow.source, flow.source_port), (address("10.0.0.1"), 40000));
    assert_eq!((flow.destination, flow.key), (address("10.0.0.2"), 6 << 16 | 8080));
    assert_eq!((flow.service, flow.initiator, flow.responder), (77, A, B));

    let outside = tcp(("10.0.0.1:40000", "172.20.0.2:80"), ("10.9.0.2:8080", "10.9.0.1:40000"));
    let (_, flow) = row(&[A], &outside).unwrap();
    assert_eq!((flow.service, flow.initiator, flow.responder), (0, A, 0));
    assert_eq!(flow.destination, address("10.9.0.2"));

    let to_node = tcp(("10.0.0.1:40000", "172.20.0.1:80"), ("192.168.0.1:7070", "10.0.0.1:40000"));
    assert_eq!(row(&[A, B], &to_node), None);
}

#[test]
fn a_connection_to_a_pod_has_the_ends_that_the_pod_sees() {
    // A port of the node, masqueraded.
    let other =
        tcp(("10.9.0.2:40000", "192.168.0.1:30080"), ("10.0.0.2:8080", "192.168.0.1:50000"));
    let (at, flow) = row(&[B], &other).unwrap();
    assert_eq!(at, key("192.168.0.1:50000", "10.0.0.2:8080"));
    assert_eq!((flow.source, flow.source_port), (address("192.168.0.1"), 50000));
    assert_eq!((flow.initiator, flow.responder, flow.is_from_node), (0, B, false));

    let node = tcp(("192.168.0.1:40000", "172.20.0.1:80"), ("10.0.0.2:8080", "192.168.0.1:40000"));
    let (at, flow) = row(&[B], &node).unwrap();
    assert_eq!(at, key("192.168.0.1:40000", "10.0.0.2:8080"));
    assert_eq!((flow.initiator, flow.responder, flow.is_from_node), (0, B, true));
    // The programs ask for the Service of a pod's packets only.
    assert_eq!(flow.service, 0);
}

#[test]
fn only_open_connections_have_rows() {
    let open = tcp(("10.0.0.1:40000", "10.0.0.2:80"), ("10.0.0.2:80", "10.0.0.1:40000"));
    let none = Connection { is_answered: false, ..open.clone() };
    assert_eq!(row(&[A], &none), None);
    for state in [TcpState::SynReceived, TcpState::FinWait, TcpState::TimeWait, TcpState::Close] {
        assert_eq!(row(&[A], &Connection { tcp_state: Some(state), ..open.clone() }), None);
    }
    assert!(row(&[A], &Connection { tcp_state: None, ..open.clone() }).is_some());
    let udp = Connection { protocol: UDP, tcp_state: None, ..open.clone() };
    assert_eq!(row(&[A], &udp).unwrap().1.key, 17 << 16 | 80);
}

#[test]
fn other_protocols_have_the_ports_that_the_programs_read() {
    let ports = ("[fd00::1]:9", "[fd00::2]:9");
    let mut echo = tcp(ports, (ports.1, ports.0));
    (echo.protocol, echo.tcp_state) = (ICMPV6, None);
    echo.original.icmp = Some(IcmpMessage { kind: ECHO_V6, code: 0 });
    echo.reply.icmp = Some(IcmpMessage { kind: ECHO_REPLY_V6, code: 0 });
    let (at, flow) = row(&[B], &echo).unwrap();
    assert_eq!((flow.key, flow.source_port), (1 << 16 | 128 << 8, 9));
    assert_eq!(
        at[32..],
        [&9_u16.to_ne_bytes()[..], &9_u16.to_ne_bytes(), &58_u32.to_ne_bytes()].concat()
    );
    echo.original.icmp = Some(IcmpMessage { kind: 139, code: 0 });
    assert_eq!(row(&[B], &echo), None);

    let mut gre = tcp(("10.0.0.1:3", "10.0.0.2:4"), ("10.0.0.2:4", "10.0.0.1:3"));
    (gre.protocol, gre.tcp_state) = (47, None);
    let (at, flow) = row(&[B], &gre).unwrap();
    assert_eq!((flow.key, flow.source_port, &at[32..36]), (0, 0, &[0; 4][..]));
}

#[test]
fn the_number_of_rows_has_a_bound() {
    let (own, target) = (own(), target());
    let existing = Existing::of([A].into(), &pods(), &own, &target, 2);
    let mut found = Found::default();
    let mut take = |port: u16| {
        let a = format!("10.0.0.1:{port}");
        let connection = tcp((&a, "10.0.0.2:80"), ("10.0.0.2:80", &a));
        existing.take(&connection, NOW, &mut found);
        (found.rows.len(), found.is_cut)
    };
    assert_eq!(
        [take(1), take(2), take(2), take(3)],
        [(1, false), (2, false), (2, false), (2, true)]
    );
}

#[test]
fn a_row_has_another_generation_than_the_one_in_force() {
    for generation in [0, 1, 1 << 32, u64::from(u32::MAX)] {
        assert_ne!(u64::from(other_than(generation)), generation & u64::from(u32::MAX));
    }
}
