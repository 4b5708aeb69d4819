//! Bad input through the whole backend: one message with its fix, isolated pods stay isolated, and everything else continues.

use crate::{
    connections,
    existing::{desired, enforce},
    object,
    traffic::{PODS, SILENCE, answer, answers, connect_to, in_pod, node, policy, stream},
};
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Method};
use datapath_node::Applied;
use nix::{
    errno::Errno,
    sys::{
        personality::{self, Persona},
        socket::{
            AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrIn, recv, sendto,
            setsockopt, socket, sockopt::ReceiveTimeout,
        },
        time::TimeVal,
    },
};
use serde_json::{Value, json};
use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd as _, OwnedFd},
    path::Path,
};

pub(crate) fn open(object: &Path, bpffs: &Path) -> EbpfBackend {
    let pins = bpffs.join("maps");
    EbpfBackend::open(object, &pins, connections(), Method::Filters).unwrap()
}

fn apply(backend: &mut EbpfBackend, revision: u64, policies: &[Value]) -> Applied {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(backend.apply(&desired(revision, policies)))
}

/// A policy of pod a: it receives from b at this port only.
fn policy_of_a(port: u16) -> Value {
    let mut policy = policy(port);
    policy["metadata"] = json!({"name": "of-a", "namespace": "x", "uid": "of-a"});
    policy["spec"]["podSelector"]["matchLabels"]["app"] = json!("a");
    policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]["app"] = json!("b");
    policy
}

/// Serves ports 8080 and 8081 of both pods.
fn serve() {
    for (pod, _) in PODS {
        for port in [8080, 8081] {
            answer(in_pod(pod, move || TcpListener::bind(("0.0.0.0", port)).unwrap()));
        }
    }
}

fn at(last: u8, port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], port))
}

fn b_to_a(port: u16) -> Option<TcpStream> {
    stream(in_pod("b", move || TcpStream::connect_timeout(&at(1, port), SILENCE)))
}

#[test]
fn a_table_of_1500_intervals_keeps_the_earlier_policies_of_its_pod_only() {
    let name = "a_table_of_1500_intervals_keeps_the_earlier_policies_of_its_pod_only";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    serve();
    let mut backend = open(&object, bpffs.path());
    enforce(&mut backend, 1, &[policy(8080), policy_of_a(8080)]);
    let connection = connect_to(at(2, 8080)).unwrap();

    // Each second port is allowed: port 8081 among them.
    let ports: Vec<Value> = (0..750).map(|of| json!({"port": 8081 + 2 * of})).collect();
    let mut long = policy(8080);
    long["spec"]["ingress"][0]["ports"] = json!(ports);
    let applied = apply(&mut backend, 2, &[long.clone(), policy_of_a(8081)]);
    let why = applied.endpoints["b"].as_ref().unwrap_err();
    assert!(why.starts_with("cannot encode a table of 15") && why.contains("; use fewer"), "{why}");
    assert_eq!(applied.endpoints["a"], Ok(()));
    assert!(answers(&connection) && connect_to(at(2, 8080)).is_some(), "the earlier state of b");
    assert!(connect_to(at(2, 8081)).is_none(), "b is isolated as before");
    assert!(b_to_a(8081).is_some() && b_to_a(8080).is_none(), "the new state of a");

    // The next process has no earlier state of b in its memory, but in the maps.
    drop(backend);
    let mut backend = open(&object, bpffs.path());
    let applied = apply(&mut backend, 2, &[long, policy_of_a(8080)]);
    assert!(applied.endpoints["b"].is_err() && applied.endpoints["a"].is_ok(), "{applied:?}");
    assert!(answers(&connection) && connect_to(at(2, 8081)).is_none());
    assert!(b_to_a(8080).is_some() && b_to_a(8081).is_none());
    enforce(&mut backend, 3, &[policy(8081), policy_of_a(8080)]);
    assert!(!answers(&connection) && connect_to(at(2, 8081)).is_some());
}

#[test]
fn a_pod_without_an_earlier_state_is_closed_by_a_table_of_1500_intervals() {
    let name = "a_pod_without_an_earlier_state_is_closed_by_a_table_of_1500_intervals";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    serve();
    let mut backend = open(&object, bpffs.path());
    let ports: Vec<Value> = (0..750).map(|of| json!({"port": 8081 + 2 * of})).collect();
    let mut long = policy(8080);
    long["spec"]["ingress"][0]["ports"] = json!(ports);
    let applied = apply(&mut backend, 1, &[long, policy_of_a(8081)]);
    assert!(applied.endpoints["b"].is_err() && applied.endpoints["a"].is_ok(), "{applied:?}");
    assert!(connect_to(at(2, 8080)).is_none() && connect_to(at(2, 8081)).is_none());
    enforce(&mut backend, 2, &[policy(8081), policy_of_a(8081)]);
    assert!(connect_to(at(2, 8081)).is_some() && b_to_a(8081).is_some());
}

#[test]
fn a_range_without_10000_others_is_exact() {
    let Some(object) = object("a_range_without_10000_others_is_exact") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    serve();
    let mut backend = open(&object, bpffs.path());
    // Neighbors would be one range. The excepted addresses are those of no pod, and then also that of a.
    let first = u32::from(Ipv4Addr::new(10, 64, 0, 0));
    let others = |count: u32| (0..count).map(move |of| Ipv4Addr::from(first + 2 * of));
    let from = |except: Vec<Ipv4Addr>| {
        let except: Vec<String> = except.iter().map(|of| format!("{of}/32")).collect();
        let mut policy = policy(8080);
        policy["spec"]["ingress"][0]["from"] =
            json!([{"ipBlock": {"cidr": "10.0.0.0/8", "except": except}}]);
        policy
    };
    enforce(&mut backend, 1, &[from(others(10_000).collect())]);
    let connection = connect_to(at(2, 8080)).unwrap();
    assert!(answers(&connection) && connect_to(at(2, 8081)).is_none());
    let all = others(9_999).chain([Ipv4Addr::new(10, 0, 0, 1)]).collect();
    enforce(&mut backend, 2, &[from(all)]);
    assert!(!answers(&connection) && connect_to(at(2, 8080)).is_none(), "a is excepted");
    let held = backend.into_programs().read().unwrap();
    assert!(held.prefixes.len() > 10_000, "{}", held.prefixes.len());
}

/// A raw socket of a pod for this protocol.
fn raw(pod: &str, protocol: SockProtocol) -> OwnedFd {
    in_pod(pod, move || {
        let socket =
            socket(AddressFamily::Inet, SockType::Raw, SockFlag::empty(), protocol).unwrap();
        let silence = TimeVal::new(0, i64::try_from(SILENCE.as_micros()).unwrap());
        setsockopt(&socket, ReceiveTimeout, &silence).unwrap();
        socket
    })
}

#[test]
fn a_packet_without_whole_ports_reaches_only_pods_that_are_not_isolated() {
    let name = "a_packet_without_whole_ports_reaches_only_pods_that_are_not_isolated";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    serve();
    let mut backend = open(&object, bpffs.path());
    enforce(&mut backend, 1, &[policy(8080)]);
    let connection = connect_to(at(2, 8080)).unwrap();
    // The longest ones lack a byte that is judged.
    for (protocol, lengths) in [(SockProtocol::Tcp, 0..14), (SockProtocol::Udp, 0..4)] {
        let [a, b] = ["a", "b"].map(|pod| raw(pod, protocol));
        for length in lengths {
            // The destination port would be 8080.
            let bytes = [0x1f, 0x90, 0x1f, 0x90, 0, 8, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 0, 0, 0, 0, 0];
            for (from, to, last, is_isolated) in [(&a, &b, 2, true), (&b, &a, 1, false)] {
                let before = counted(&mut backend);
                let to_pod = SockaddrIn::new(10, 0, 0, last, 0);
                sendto(from.as_raw_fd(), &bytes[..length], &to_pod, MsgFlags::empty()).unwrap();
                let mut space = [0; 128];
                let received = loop {
                    match recv(to.as_raw_fd(), &mut space, MsgFlags::empty()) {
                        // A read with a time limit ends when the process continues after a stop.
                        Err(Errno::EINTR) => {}
                        received => break received,
                    }
                };
                let case = format!("{protocol:?}, {length} bytes, to 10.0.0.{last}: {received:?}");
                if is_isolated {
                    assert_eq!(received, Err(Errno::EAGAIN), "{case}");
                    assert!(counted(&mut backend) > before, "{case}");
                } else {
                    assert_eq!(received, Ok(20 + length), "{case}");
                }
            }
        }
    }
    assert!(answers(&connection), "a connection continues");
}

/// The packets that could not be parsed.
fn counted(backend: &mut EbpfBackend) -> u64 {
    backend.figures().packets["bad_ports"]
}

/// Linux shows such a process version 2.6.
#[test]
fn an_old_kernel_is_refused_by_name_before_anything_is_loaded() {
    let name = "an_old_kernel_is_refused_by_name_before_anything_is_loaded";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    serve();
    let earlier = personality::get().unwrap();
    personality::set(earlier | Persona::UNAME26).unwrap();
    let pins = bpffs.path().join("maps");
    let refused = EbpfBackend::open(&object, &pins, connections(), Method::Filters);
    let why = refused.map(drop).unwrap_err().to_string();
    assert!(why.starts_with("cannot load the eBPF programs: kernel 2.6."), "{why}");
    assert!(why.contains("; use kernel 6.1 or later"), "{why}");
    assert!(!pins.exists(), "nothing was pinned");

    // The state of an earlier process stays in force.
    personality::set(earlier).unwrap();
    enforce(&mut open(&object, bpffs.path()), 1, &[policy(8080)]);
    personality::set(earlier | Persona::UNAME26).unwrap();
    assert!(EbpfBackend::open(&object, &pins, connections(), Method::Filters).is_err());
    assert!(connect_to(at(2, 8080)).is_some() && connect_to(at(2, 8081)).is_none());
}
