//! Reasons, events and uses of rules, of packets that the kernel runs without an attachment.

use crate::{
    hostile::{A, B, Node, OUTSIDE, PASS, SYN, frame, icmp_v6, tcp, v4},
    traffic::{policy, write},
};
use datapath_abi::{Cause, Event};
use policy_core::Decision;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The reasons whose counters have grown, with the difference.
fn grown(
    before: &BTreeMap<&str, u64>,
    after: &BTreeMap<&'static str, u64>,
) -> Vec<(&'static str, u64)> {
    let grown = after.iter().map(|(reason, count)| (*reason, count - before[reason]));
    grown.filter(|(_, count)| *count > 0).collect()
}

fn ipv6(next: u8, rest: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x60, 0, 0, 0, 0, u8::try_from(rest.len()).unwrap(), next, 64];
    for host in [b'a', b'b'] {
        bytes.extend([0xfd, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    bytes.extend(rest);
    bytes
}

#[test]
fn each_drop_counts_for_one_reason() {
    let Some(mut node) = Node::new("each_drop_counts_for_one_reason") else { return };
    node.kernel.programs.want_events(false, 1000).unwrap();
    let open = tcp(A, B, (40_000, 8080), SYN);
    let mut version = open.clone();
    version[0] = 0x65;
    let mut later = open.clone();
    later[7] = 9;
    let tagged = [&[0, 0, 0x81, 0, 0, 0, 8, 0], open.as_slice()].concat();
    let extensions = [[60, 0, 0, 0, 0, 0, 0, 0]; 7].concat();
    let to_b = [
        ("ingress_isolation", frame(0x800, &tcp(A, B, (40_000, 9090), SYN))),
        ("bad_ipv4", frame(0x800, &version)),
        ("bad_ports", frame(0x800, &v4(6, A, B, &[0; 3]))),
        ("bad_icmp", frame(0x800, &v4(1, A, B, &[8; 3]))),
        ("fragment_unknown", frame(0x800, &later)),
        ("bad_extension", frame(0x86dd, &ipv6(0, &[6]))),
        ("extensions_limit", frame(0x86dd, &ipv6(60, &extensions))),
        ("bad_ipv6", {
            let mut odd = frame(0x86dd, &icmp_v6(128, 64));
            odd[14] = 0x40;
            odd
        }),
    ];
    let from_a = [
        ("spoofed_v4", frame(0x800, &tcp(B, OUTSIDE, (40_000, 80), SYN))),
        ("spoofed_v6", frame(0x86dd, &icmp_v6(128, 64))),
        ("tagged", frame(0x8100, &tagged)),
        ("not_ip", frame(0x88cc, &open)),
    ];
    let mut check = |expected: &str, packet: &[u8], is_from_a: bool| {
        let before = node.kernel.programs.counters().unwrap();
        let action = if is_from_a { node.sent_by_a(packet) } else { node.others_to_b(packet) };
        assert_ne!(action, PASS, "{expected}");
        let after = node.kernel.programs.counters().unwrap();
        assert_eq!(grown(&before, &after), [(expected, 1)]);
    };
    for (expected, packet) in &to_b {
        check(expected, packet, false);
    }
    for (expected, packet) in &from_a {
        check(expected, packet, true);
    }
}

#[test]
fn a_packet_that_cannot_be_parsed_passes_and_counts_without_policies() {
    let name = "a_packet_that_cannot_be_parsed_passes_and_counts_without_policies";
    let Some(mut node) = Node::new(name) else { return };
    write(&mut node.kernel, &[]);
    let mut later = tcp(A, B, (40_000, 8080), SYN);
    later[7] = 9;
    for (packet, expected) in [
        (v4(6, A, B, &[0; 3]), [("not_parsed", 1)].as_slice()),
        (later, &[]),
        (tcp(A, B, (40_000, 8080), SYN), &[]),
    ] {
        let before = node.kernel.programs.counters().unwrap();
        assert_eq!(node.others_to_b(&frame(0x800, &packet)), PASS);
        let after = node.kernel.programs.counters().unwrap();
        assert_eq!(grown(&before, &after), expected);
    }
}

/// Pod b rejects TCP 9090 of pod a by a rule that asks for a log.
fn reject() -> Value {
    json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "NetworkPolicy",
        "metadata": {"name": "r", "namespace": "x", "uid": "r"},
        "spec": {
            "priority": 5, "tier": "application",
            "appliedTo": [{"podSelector": {"matchLabels": {"app": "b"}}}],
            "ingress": [{
                "action": "Reject", "enableLogging": true,
                "from": [{"podSelector": {"matchLabels": {"app": "a"}}}],
                "ports": [{"protocol": "TCP", "port": 9090}],
            }],
        },
    })
}

#[test]
fn a_rule_counts_its_connections_and_denied_packets() {
    let Some(mut node) = Node::new("a_rule_counts_its_connections_and_denied_packets") else {
        return;
    };
    node.kernel.programs.want_events(false, 1000).unwrap();
    let mut events = node.kernel.programs.take_events();
    write(&mut node.kernel, &[policy(8080), reject()]);
    for port in 0..5 {
        assert_eq!(node.others_to_b(&frame(0x800, &tcp(A, B, (40_000 + port, 8080), SYN))), PASS);
    }
    assert_eq!(events.next(), None, "there is no listener");
    let denied = frame(0x800, &tcp(A, B, (40_000, 9090), SYN));
    for _ in 0..3 {
        assert_ne!(node.others_to_b(&denied), PASS);
    }
    let sent: Vec<Event> = std::iter::from_fn(|| events.next()).collect();
    assert_eq!(sent.len(), 3);
    for event in &sent {
        let verdict = event.denial();
        assert_eq!((verdict.decision, verdict.is_logged), (Decision::Reject, true), "{event:?}");
        assert_eq!(event.length as usize, denied.len());
    }
    let Cause::Rule(rejecting) = sent[0].ingress.cause else { panic!("{sent:?}") };
    let uses = node.kernel.programs.uses().unwrap();
    let of = uses[&rejecting];
    assert_eq!((of.flows, of.packets), (0, 3));
    assert_eq!(of.bytes, 3 * u64::try_from(denied.len()).unwrap());
    assert!(of.last > 0);
    let (other, of) = uses.iter().find(|(number, _)| **number != rejecting).unwrap();
    assert_eq!((of.flows, of.packets), (5, 0));

    // A listener receives connections too.
    node.kernel.programs.want_events(true, 1000).unwrap();
    assert_eq!(node.others_to_b(&frame(0x800, &tcp(A, B, (41_000, 8080), SYN))), PASS);
    let event = events.next().unwrap();
    assert_eq!(event.ingress.cause, Cause::Rule(*other));
    assert_eq!(event.ingress.decision, Decision::Allow);

    // The counters of a rule end with it.
    write(&mut node.kernel, &[]);
    write(&mut node.kernel, &[]);
    assert!(node.kernel.programs.uses().unwrap().is_empty());
}

#[test]
fn a_pod_that_floods_has_its_share_of_events_only() {
    let Some(mut node) = Node::new("a_pod_that_floods_has_its_share_of_events_only") else {
        return;
    };
    let mut events = node.kernel.programs.take_events();
    node.kernel.programs.want_events(true, 20).unwrap();
    let spoofed = frame(0x800, &tcp(B, OUTSIDE, (40_000, 80), SYN));
    for _ in 0..500 {
        node.sent_by_a(&spoofed);
    }
    let counters = node.kernel.programs.counters().unwrap();
    let sent = std::iter::from_fn(|| events.next()).count();
    assert_eq!(counters["spoofed_v4"], 500);
    assert_eq!(counters["event_limit"] + u64::try_from(sent).unwrap(), 500);
    // More than one second has passed.
    assert!((20..400).contains(&sent), "{sent} events");
    // Another pod has its own share.
    assert_ne!(node.others_to_b(&frame(0x800, &tcp(A, B, (40_000, 9090), SYN))), PASS);
    assert_eq!(std::iter::from_fn(|| events.next()).count(), 1);

    // The programs count events that do not fit into the ring.
    node.kernel.programs.want_events(true, u32::MAX).unwrap();
    for _ in 0..20_000 {
        node.sent_by_a(&spoofed);
    }
    let counters = node.kernel.programs.counters().unwrap();
    let sent = std::iter::from_fn(|| events.next()).count();
    assert!(counters["event_lost"] > 0, "the ring has room for {sent} events");
    assert_eq!(counters["event_lost"] + u64::try_from(sent).unwrap(), 20_000);
}
