//! Malformed packets to and of an isolated pod: a packet passes only if another parser finds it allowed.

use crate::{
    hostile::{A, B, Node, OUTSIDE, PASS, SYN, frame, icmp_v6, tcp, v4},
    traffic::write,
};
use proptest::{collection::vec, prelude::*, sample::select, test_runner::TestRunner};
use serde_json::json;
use std::{cell::RefCell, net::Ipv4Addr};
use tests_policy::cases;

/// Packets from one address to another that are changed at random.
fn bases(from: Ipv4Addr, to: Ipv4Addr) -> Vec<Vec<u8>> {
    let ipv6 = |next: u8, rest: &[u8]| {
        let mut bytes = vec![0x60, 0, 0, 0, 0, u8::try_from(rest.len()).unwrap(), next, 64];
        for host in [1, 2] {
            bytes.extend([0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
        }
        bytes.extend(rest);
        bytes
    };
    let segment = [&[0x9c, 0x40, 0x1f, 0x90], [0; 9].as_slice(), &[SYN, 0, 0, 0, 0, 0, 0]].concat();
    let mut fragment = tcp(from, to, (40_000, 8080), SYN);
    fragment[6] = 0x20;
    let mut later = tcp(from, to, (40_000, 8080), SYN);
    later[7] = 9;
    let quoted = tcp(to, from, (8080, 40_000), SYN);
    vec![
        frame(0x800, &tcp(from, to, (40_000, 8080), SYN)),
        frame(0x800, &tcp(from, to, (40_000, 9090), SYN)),
        frame(0x800, &tcp(from, to, (40_000, 8080), 16)),
        frame(0x800, &fragment),
        frame(0x800, &later),
        frame(0x800, &v4(17, from, to, &[0x9c, 0x40, 0x1f, 0x90, 0, 8, 0, 0])),
        frame(0x800, &v4(1, from, to, &[&[3, 3, 0, 0, 0, 0, 0, 0], quoted.as_slice()].concat())),
        frame(0x800, &v4(47, from, to, &[0; 8])),
        frame(0x86dd, &ipv6(6, &segment)),
        frame(
            0x86dd,
            &ipv6(
                0,
                &[&[60, 0, 0, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0], segment.as_slice()].concat(),
            ),
        ),
        frame(0x86dd, &ipv6(44, &[&[6, 0, 0, 1, 0, 0, 0, 7], segment.as_slice()].concat())),
        frame(0x86dd, &icmp_v6(135, 255)),
    ]
}

/// True if the packet may pass. The rule allows TCP 8080 if the four bytes of the IPv4 header at `place` are `address`, and
/// neighbor discovery is exempt. A packet that is not IP is not judged.
fn may_pass(bytes: &[u8], place: usize, address: Ipv4Addr) -> bool {
    let at = |index: usize| bytes.get(14 + index).copied();
    match bytes.get(12..14) {
        Some([8, 0]) => {
            let words = at(0).unwrap_or(0);
            let length = usize::from(words & 15) * 4;
            let is_whole = words >> 4 == 4 && length >= 20;
            let is_later = at(6).unwrap_or(0) & 0x1f != 0 || at(7) != Some(0);
            let end = (place..place + 4).map(at).collect::<Option<Vec<u8>>>();
            let is_end = end.as_deref() == Some(address.octets().as_slice());
            let port = (at(length + 2), at(length + 3));
            let is_open = at(9) == Some(6) && port == (Some(0x1f), Some(0x90));
            // A later part of a packet follows the first one, which another case may have sent.
            is_whole && is_end && ((is_later && at(9) == Some(6)) || (!is_later && is_open))
        }
        // No rule allows IPv6.
        Some([0x86, 0xdd]) => {
            let kind = at(40).unwrap_or(0);
            at(0).is_some_and(|version| version >> 4 == 6)
                && (at(6), at(7)) == (Some(58), Some(255))
                && (133..=137).contains(&kind)
        }
        _ => true,
    }
}

/// Changes packets from one address to another at random, and compares the action with [`may_pass`].
fn judge_changed(
    node: Node,
    ends: [Ipv4Addr; 2],
    judge: impl Fn(&mut Node, &[u8]) -> i32,
    may_pass: impl Fn(&[u8]) -> bool,
) {
    let node = RefCell::new(node);
    let (passed, dropped) = (RefCell::new(0), RefCell::new(0));
    let change = (12_usize..110, any::<u8>());
    // The first byte of the frame can be that of an IP header. Then the Ethernet header may be none.
    let first = select(vec![2_u8, 0x45, 0x60]);
    let length = prop::option::weighted(0.3, 14_usize..100);
    let input = (select(bases(ends[0], ends[1])), first, vec(change, 0..4), length);
    let config = cases(4000);
    let least = config.cases / 40;
    let mut runner = TestRunner::new(config);
    let run = runner.run(&input, |(mut bytes, first, changes, length)| {
        bytes[0] = first;
        for (index, value) in changes {
            if let Some(byte) = bytes.get_mut(index) {
                *byte = value;
            }
        }
        bytes.truncate(length.unwrap_or(usize::MAX));
        let mut node = node.borrow_mut();
        // A test run needs a whole IP header.
        let header = match bytes.get(12..14) {
            Some([8, 0]) => 20,
            Some([0x86, 0xdd]) => 40,
            _ => 1,
        };
        if bytes.len() < 14 + header {
            return Ok(());
        }
        match judge(&mut node, &bytes) {
            PASS => {
                prop_assert!(may_pass(&bytes), "{:02x?}", bytes);
                node.kernel.programs.clear_flows().unwrap();
                *passed.borrow_mut() += 1;
            }
            _ => *dropped.borrow_mut() += 1,
        }
        // The program ends for each packet of a pod.
        node.sent_by_a(&bytes);
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
    assert!(
        passed.into_inner() >= least && dropped.into_inner() >= least,
        "the packets are all alike"
    );
}

#[test]
fn a_malformed_packet_to_an_isolated_pod_does_not_pass() {
    let name = "a_malformed_packet_to_an_isolated_pod_does_not_pass";
    let Some(node) = Node::new(name) else { return };
    judge_changed(node, [A, B], Node::others_to_b, |bytes| may_pass(bytes, 12, A));
}

#[test]
fn a_malformed_packet_of_an_isolated_pod_does_not_leave_the_node() {
    let name = "a_malformed_packet_of_an_isolated_pod_does_not_leave_the_node";
    let Some(mut node) = Node::new(name) else { return };
    write(
        &mut node.kernel,
        &[json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
            "metadata": {"name": "p", "namespace": "x", "uid": "p"},
            "spec": {
                "podSelector": {"matchLabels": {"app": "a"}},
                "policyTypes": ["Egress"],
                "egress": [{
                    "to": [{"ipBlock": {"cidr": format!("{OUTSIDE}/32")}}],
                    "ports": [{"port": 8080}],
                }],
            },
        })],
    );
    judge_changed(node, [A, OUTSIDE], Node::a_to_wire, |bytes| may_pass(bytes, 16, OUTSIDE));
}
