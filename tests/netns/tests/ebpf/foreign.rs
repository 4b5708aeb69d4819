//! Filters of other kinds than BPF, of another owner, on the link of a pod.

use crate::{
    connections,
    existing::{desired, enforce},
    grow::from_peers,
    object,
    repair::drift,
    tcx::filters,
    traffic::{answer, answers, connect_to, in_pod, node, policy},
};
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Method};
use datapath_node::Applied;
use serde_json::Value;
use std::{
    net::{SocketAddr, TcpListener},
    process::Command,
};

/// The arguments of a filter that matches no packet of the test.
const KINDS: [(&str, &str); 2] = [
    ("u32", "protocol all u32 match u32 0 0xffffffff classid 1:1"),
    ("flower", "protocol ip flower dst_ip 192.0.2.1 classid 1:1"),
];

/// Adds a filter to the egress of b. Returns false if the kernel has no filters of this kind.
fn add(arguments: &str, priority: u16) -> bool {
    let words = format!("filter add dev b egress prio {priority} {arguments}");
    Command::new("tc").args(words.split(' ')).status().unwrap().success()
}

fn connects(port: u16) -> bool {
    connect_to(SocketAddr::from(([10, 0, 0, 2], port))).is_some_and(|stream| answers(&stream))
}

fn apply(backend: &mut EbpfBackend, revision: u64, policies: &[Value]) -> Applied {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(backend.apply(&desired(revision, policies)))
}

#[test]
fn a_filter_of_another_kind_before_ours_is_reported_and_ours_enforces_behind_it() {
    let name = "a_filter_of_another_kind_before_ours_is_reported_and_ours_enforces_behind_it";
    let Some(object) = object(name) else { return };
    let mut tried = Vec::new();
    for (kind, arguments) in KINDS {
        let bpffs = tempfile::tempdir().unwrap();
        node(bpffs.path());
        for port in [8080, 8081] {
            answer(in_pod("b", move || TcpListener::bind(("0.0.0.0", port)).unwrap()));
        }
        let words = "qdisc add dev b clsact".split(' ');
        assert!(Command::new("tc").args(words).status().unwrap().success());
        if !add(arguments, 1) {
            println!("{name}: this kernel has no filters of kind {kind}");
            continue;
        }
        tried.push(kind);
        let pins = bpffs.path().join("maps");
        let mut backend =
            EbpfBackend::open(&object, &pins, connections(), Method::Filters).unwrap();
        // The second state needs larger maps: the link has the new programs too, and is not closed.
        for (revision, policy) in [(1, policy(8080)), (2, from_peers(5_000))] {
            let applied = apply(&mut backend, revision, &[policy]);
            let why = applied.endpoints["b"].as_ref().unwrap_err();
            assert!(why.contains(&format!("the {kind} filter of priority 1 of another")), "{why}");
            assert!(why.contains("; remove the filters of priority 1"), "{why}");
            assert!(applied.endpoints["a"].is_ok(), "{applied:?}");
            assert!(connects(8080) && !connects(8081), "ours enforces behind it");
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let observed = runtime.block_on(backend.observe()).unwrap();
        assert_eq!(observed.endpoints, ["a".to_owned()].into());

        // A later priority is behind ours.
        let words = "filter del dev b egress prio 1".split(' ');
        assert!(Command::new("tc").args(words).status().unwrap().success());
        assert!(add(arguments, 10));
        enforce(&mut backend, 3, &[policy(8081)]);
        assert!(connects(8081) && !connects(8080));
        let listed = filters("b");
        let place = |words: &str| listed.find(words).unwrap_or_else(|| panic!("{words}: {listed}"));
        assert!(place("pref 1 bpf") < place(&format!("pref 10 {kind}")), "{listed}");
        assert!(!listed.contains("pref 50"), "{listed}");
        assert_eq!(drift(&mut backend), None);
    }
    assert_eq!(tried.first(), Some(&"u32"));
}
