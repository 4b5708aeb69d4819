//! Packets of a hostile pod, run by the kernel without an attachment.

use crate::{
    Kernel, object,
    traffic::{PODS, policy, snapshot, v6_of, write, write_between},
};
use datapath_abi::{Pod, Write};
use datapath_ebpf::Hook;
use datapath_plan::{Names, Tables, compile};
use nix::{
    net::if_::if_nametoindex,
    sched::{CloneFlags, unshare},
};
use serde_json::json;
use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    process::Command,
    time::Duration,
};

pub(crate) const A: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(crate) const B: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
pub(crate) const OUTSIDE: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 7);
/// The changes of policies during a connection.
const FLIPS: usize = 50;
pub(crate) const SYN: u8 = 2;
const ACK: u8 = 16;
pub(crate) const PASS: i32 = -1;
pub(crate) const SHOT: i32 = 2;

/// Pods a and b of a node, and the link of others.
pub(crate) struct Node {
    pub(crate) kernel: Kernel,
    a: u32,
    b: u32,
    wire: u32,
}

impl Node {
    /// Moves the calling thread into a new namespace. Pod b accepts TCP 8080 of pod a only.
    pub(crate) fn new(test: &str) -> Option<Self> {
        let object = object(test)?;
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        for name in PODS.map(|(pod, _)| pod).into_iter().chain(["wire"]) {
            let args = ["link", "add", "name", name, "type", "veth", "peer", "name"];
            let status = Command::new("ip").args(args).arg(format!("{name}-peer")).status();
            assert!(status.unwrap().success(), "cannot add {name}");
        }
        let mut kernel = Kernel::load(&object, None);
        write(&mut kernel, &[policy(8080)]);
        let [a, b, wire] = ["a", "b", "wire"].map(|name| if_nametoindex(name).unwrap());
        Some(Self { kernel, a, b, wire })
    }

    pub(crate) fn sent_by_a(&mut self, packet: &[u8]) -> i32 {
        self.kernel.programs.test(Hook::FromPod, packet, self.a, self.a, 0).unwrap()
    }

    fn b_to_wire(&mut self, packet: &[u8]) -> i32 {
        self.kernel.programs.test(Hook::ToWire, packet, self.wire, self.b, 0).unwrap()
    }

    fn sent_by_b(&mut self, packet: &[u8]) -> i32 {
        self.kernel.programs.test(Hook::FromPod, packet, self.b, self.b, 0).unwrap()
    }

    fn a_to_b(&mut self, packet: &[u8]) -> i32 {
        self.kernel.programs.test(Hook::TestToPod, packet, self.b, self.a, 0).unwrap()
    }

    fn b_to_a(&mut self, packet: &[u8]) -> i32 {
        self.kernel.programs.test(Hook::TestToPod, packet, self.a, self.b, 0).unwrap()
    }

    pub(crate) fn others_to_b(&mut self, packet: &[u8]) -> i32 {
        self.kernel.programs.test(Hook::ToPod, packet, self.b, self.wire, 0).unwrap()
    }

    pub(crate) fn a_to_wire(&mut self, packet: &[u8]) -> i32 {
        self.kernel.programs.test(Hook::ToWire, packet, self.wire, self.a, 0).unwrap()
    }
}

/// An Ethernet frame of this type.
pub(crate) fn frame(kind: u16, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
    bytes.extend(kind.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn v4(protocol: u8, source: Ipv4Addr, destination: Ipv4Addr, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len() + 20).unwrap().to_be_bytes();
    let mut bytes = vec![0x45, 0, length[0], length[1], 0, 0, 0, 0, 64, protocol, 0, 0];
    bytes.extend(source.octets());
    bytes.extend(destination.octets());
    bytes.extend(payload);
    bytes
}

pub(crate) fn tcp(
    source: Ipv4Addr,
    destination: Ipv4Addr,
    ports: (u16, u16),
    flags: u8,
) -> Vec<u8> {
    let mut segment = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    segment.resize(20, 0);
    segment[13] = flags;
    v4(6, source, destination, &segment)
}

/// The start of a connection to [`B`]'s other address.
fn tcp_v6(source: Ipv6Addr, ports: (u16, u16)) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 20, 6, 64];
    bytes.extend(source.octets());
    bytes.extend(v6_of("b").octets());
    bytes.extend([ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat());
    bytes.resize(60, 0);
    bytes[53] = SYN;
    bytes
}

/// "Port unreachable" about a packet.
fn error(source: Ipv4Addr, destination: Ipv4Addr, quoted: &[u8]) -> Vec<u8> {
    v4(1, source, destination, &[&[3, 3, 0, 0, 0, 0, 0, 0], quoted].concat())
}

/// An ICMPv6 packet between two global addresses.
pub(crate) fn icmp_v6(kind: u8, hop_limit: u8) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, 8, 58, hop_limit];
    for host in [1, 2] {
        bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    bytes.extend([kind, 0, 0, 0, 0, 0, 0, 0]);
    bytes
}

#[test]
fn a_pod_is_known_by_its_link_while_another_link_has_the_same_lowest_bits() {
    let name = "a_pod_is_known_by_its_link_while_another_link_has_the_same_lowest_bits";
    let Some(mut node) = Node::new(name) else { return };
    let isolated = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "p", "namespace": "x", "uid": "p"},
        "spec": {"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Egress"]},
    });
    let tables = compile(&snapshot(&[isolated]), &Names::none());
    let pod = |address: Ipv4Addr| Pod {
        uid: "a".to_owned(),
        v4: Some(IpAddr::from(address).into()),
        ..Pod::default()
    };
    let links = [0, 4096, 8192].map(|of| node.a + of);
    let packet = frame(0x800, &tcp(A, OUTSIDE, (40_000, 8080), SYN));
    let mut actions = |pods: &[u32]| {
        node.kernel.write(&tables, pods.iter().map(|link| (*link, pod(A))).collect());
        links.map(|link| {
            node.kernel.programs.test(Hook::ToWire, &packet, node.wire, link, 0).unwrap()
        })
    };
    // The link of another node's packets has no policies.
    assert_eq!(actions(&links[..2]), [SHOT, SHOT, PASS]);
    assert_eq!(actions(&links[1..2]), [PASS, SHOT, PASS], "after the end of the other pod");
    assert_eq!(actions(&links[1..2]), [PASS, SHOT, PASS], "nothing has changed");
    assert_eq!(actions(&links), [SHOT; 3]);
    assert_eq!(actions(&[]), [PASS; 3]);
}

#[test]
fn an_icmp_error_passes_only_to_the_sender_of_the_packet_that_it_quotes() {
    let name = "an_icmp_error_passes_only_to_the_sender_of_the_packet_that_it_quotes";
    let Some(mut node) = Node::new(name) else { return };
    let first = tcp(A, B, (40_000, 8080), SYN);
    assert_eq!(node.others_to_b(&frame(0x800, &error(OUTSIDE, B, &first))), SHOT, "no flow");
    assert_eq!(node.a_to_b(&frame(0x800, &first)), PASS);
    let answer = tcp(B, A, (8080, 40_000), ACK);
    assert_eq!(node.others_to_b(&frame(0x800, &error(OUTSIDE, B, &answer))), PASS, "of a router");
    assert_eq!(
        node.others_to_b(&frame(0x800, &error(OUTSIDE, B, &first))),
        SHOT,
        "B did not send it"
    );
    // The same flow after a change: the error waits for the next packet of the flow to be judged.
    write(&mut node.kernel, &[policy(9090)]);
    assert_eq!(node.others_to_b(&frame(0x800, &error(OUTSIDE, B, &answer))), SHOT);
}

#[test]
fn a_revoked_connection_is_not_continued_by_its_other_end() {
    let name = "a_revoked_connection_is_not_continued_by_its_other_end";
    let Some(mut node) = Node::new(name) else { return };
    assert_eq!(node.a_to_b(&frame(0x800, &tcp(A, B, (40_000, 8080), SYN))), PASS);
    let answer = frame(0x800, &tcp(B, A, (8080, 40_000), ACK));
    assert_eq!(node.b_to_a(&answer), PASS);
    write(&mut node.kernel, &[policy(9090)]);
    assert_eq!(node.a_to_b(&frame(0x800, &tcp(A, B, (40_000, 8080), ACK))), SHOT);
    assert_eq!(node.b_to_a(&answer), SHOT, "the answer starts no connection");
    assert_eq!(node.a_to_b(&frame(0x800, &tcp(A, B, (40_000, 8080), ACK))), SHOT);
    // Allowed again, the connection continues.
    write(&mut node.kernel, &[policy(8080)]);
    assert_eq!(node.a_to_b(&frame(0x800, &tcp(A, B, (40_000, 8080), ACK))), PASS);
}

#[test]
fn a_packet_like_the_last_one_has_its_result_only_on_its_link_and_in_its_generation() {
    let name = "a_packet_like_the_last_one_has_its_result_only_on_its_link_and_in_its_generation";
    let Some(mut node) = Node::new(name) else { return };
    // By its address pod a is allowed also from another node.
    let to_b = |port, flags| frame(0x800, &tcp(A, B, (40_000, port), flags));
    let to_a = |flags| frame(0x800, &tcp(B, A, (8080, 40_000), flags));
    assert_eq!(node.others_to_b(&to_b(8080, SYN)), PASS);
    assert_eq!(node.b_to_wire(&to_a(SYN | ACK)), PASS);
    for _ in 0..3 {
        assert_eq!(node.others_to_b(&to_b(8080, ACK)), PASS);
        assert_eq!(node.sent_by_b(&to_a(ACK)), PASS);
        assert_eq!(node.sent_by_a(&to_a(ACK)), SHOT, "pod a has another address");
        assert_eq!(node.others_to_b(&to_b(8081, ACK)), SHOT, "another port");
    }
    // Most of these changes are within one tick.
    let (b, wire) = (node.b, node.wire);
    for _ in 0..FLIPS {
        for (port, expected) in [(9090, [PASS, SHOT]), (8080, [SHOT, PASS])] {
            let mut results = Vec::new();
            write_between(&mut node.kernel, &[policy(port)], |programs| {
                let packet = to_b(8080, ACK);
                // The first one of a tick is looked up.
                let _ = programs.test(Hook::ToPod, &packet, b, wire, 0).unwrap();
                results.push(programs.test(Hook::ToPod, &packet, b, wire, 0).unwrap());
            });
            assert_eq!(results, expected);
        }
    }
}

#[test]
fn a_segment_without_a_connection_must_be_allowed_in_both_directions() {
    let name = "a_segment_without_a_connection_must_be_allowed_in_both_directions";
    let Some(mut node) = Node::new(name) else { return };
    // B may connect to A, and A not to B: the segment may belong to a connection that A started.
    assert_eq!(node.b_to_a(&frame(0x800, &tcp(B, A, (9090, 40_000), ACK))), SHOT);
    assert_eq!(node.b_to_a(&frame(0x800, &tcp(B, A, (9090, 40_000), SYN))), PASS);
    assert_eq!(node.b_to_a(&frame(0x800, &tcp(B, A, (8080, 40_001), ACK))), PASS, "both may");
}

#[test]
fn a_pod_sends_only_what_can_be_judged_and_from_its_own_address() {
    let name = "a_pod_sends_only_what_can_be_judged_and_from_its_own_address";
    let Some(mut node) = Node::new(name) else { return };
    let own = tcp(A, OUTSIDE, (40_000, 80), SYN);
    assert_eq!(node.sent_by_a(&frame(0x800, &own)), PASS);
    assert_eq!(node.sent_by_a(&frame(0x806, &[0; 28])), PASS, "ARP");
    let foreign = tcp(B, OUTSIDE, (40_000, 80), SYN);
    assert_eq!(node.sent_by_a(&frame(0x800, &foreign)), SHOT);
    assert_eq!(node.sent_by_a(&frame(0x800, &foreign[..22])), SHOT, "foreign and cut off");
    let mut odd = own.clone();
    odd[0] = 0x65;
    assert_eq!(node.sent_by_a(&frame(0x800, &odd)), SHOT, "another version than its type");
    let tagged = [&[0, 0, 0x81, 0, 0, 0, 8, 0], own.as_slice()].concat();
    assert_eq!(node.sent_by_a(&frame(0x8100, &tagged)), SHOT, "two VLAN tags");
    assert_eq!(node.sent_by_a(&frame(0x88cc, &own)), SHOT, "another protocol");
    assert_eq!(node.sent_by_a(&frame(0x86dd, &icmp_v6(135, 255))), SHOT, "a foreign source");
}

#[test]
fn neighbor_discovery_is_judged_where_it_was_forwarded() {
    let name = "neighbor_discovery_is_judged_where_it_was_forwarded";
    let Some(mut node) = Node::new(name) else { return };
    assert_eq!(node.others_to_b(&frame(0x86dd, &icmp_v6(135, 255))), PASS);
    assert_eq!(node.others_to_b(&frame(0x86dd, &icmp_v6(135, 64))), SHOT, "forwarded");
    assert_eq!(node.others_to_b(&frame(0x86dd, &icmp_v6(100, 255))), SHOT, "no error type");
}

#[test]
fn a_pod_whose_policies_are_unknown_is_closed() {
    let Some(mut node) = Node::new("a_pod_whose_policies_are_unknown_is_closed") else { return };
    let unknown = Pod { uid: "nobody".to_owned(), ..Pod::default() };
    node.kernel.own.addresses.insert(std::net::IpAddr::from(OUTSIDE).into());
    node.kernel.write(&Tables::default(), BTreeMap::from([(node.a, unknown)]));
    let to_a = frame(0x800, &tcp(OUTSIDE, A, (40_000, 80), SYN));
    assert_eq!(node.kernel.programs.test(Hook::ToPod, &to_a, node.a, node.wire, 0).unwrap(), SHOT);
    let from_a = frame(0x800, &tcp(A, OUTSIDE, (40_000, 80), SYN));
    assert_eq!(
        node.kernel.programs.test(Hook::ToWire, &from_a, node.wire, node.a, 0).unwrap(),
        SHOT
    );
    assert_eq!(
        node.kernel.programs.test(Hook::ToPod, &to_a, node.a, 0, 0).unwrap(),
        PASS,
        "of its own node"
    );
}

#[test]
fn an_address_that_looks_like_a_mark_of_a_slot_is_judged_like_any_other() {
    let name = "an_address_that_looks_like_a_mark_of_a_slot_is_judged_like_any_other";
    let Some(mut node) = Node::new(name) else { return };
    let with_row = compile(&snapshot(&[policy(8080)]), &Names::none());
    let class = with_row.addresses[&IpAddr::from(A).into()];
    let pod = Pod { uid: "b".to_owned(), ..Pod::default() };
    let alike = ["2001:db8::1", "2001:db8::", "2001:db8::ffff:ffff:ffff:ffff", "::"];
    let alike = alike.map(|at| at.parse::<Ipv6Addr>().unwrap());
    let mut port = 40_000;
    let mut actions = |tables: &Tables| {
        node.kernel.write(tables, BTreeMap::from([(node.b, pod.clone())]));
        alike.map(|source| {
            port += 1;
            let packet = frame(0x86dd, &tcp_v6(source, (port, 8080)));
            node.kernel.programs.test(Hook::ToPod, &packet, node.b, node.wire, 0).unwrap()
        })
    };
    for address in alike {
        let mut tables = with_row.clone();
        tables.addresses.insert(IpAddr::from(address).into(), class);
        let expected = alike.map(|of| if of == address { PASS } else { SHOT });
        assert_eq!(actions(&tables), expected, "with a row of {address}");
        assert_eq!(actions(&with_row), [SHOT; 4], "without the row of {address}");
    }
    // A row that was removed keeps its slot for a grace period, and others have the same first half.
    let mut tables = with_row.clone();
    for last in 1..2000 {
        let address = Ipv6Addr::from_bits((0x2001_0db8 << 96) + last);
        tables.addresses.insert(IpAddr::from(address).into(), class);
    }
    assert_eq!(actions(&tables), [PASS, SHOT, SHOT, SHOT]);
    assert_eq!(actions(&with_row), [SHOT; 4]);
}

#[test]
fn an_address_that_comes_and_goes_does_not_fill_the_table_of_classes() {
    let name = "an_address_that_comes_and_goes_does_not_fill_the_table_of_classes";
    let Some(mut node) = Node::new(name) else { return };
    let mut held = node.kernel.programs.read().unwrap();
    let address = IpAddr::from(OUTSIDE).into();
    // More often than a place has slots, with more slots than a grace period needs.
    for _ in 0..300 {
        node.kernel.programs.write(&mut held, [&Write::Class(address, Some([7; 2]))]).unwrap();
        node.kernel.programs.write(&mut held, [&Write::Class(address, None)]).unwrap();
        std::thread::sleep(Duration::from_millis(1));
    }
    node.kernel.programs.write(&mut held, [&Write::Class(address, Some([7; 2]))]).unwrap();
    assert_eq!(node.kernel.programs.read().unwrap().classes, held.classes);
}
