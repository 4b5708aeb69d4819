//! Links with a queue `ingress`, as the plugin `bandwidth` makes it: programs are attached by TCX.

use crate::{
    connections,
    existing::{desired, enforce},
    nat::{only_8080, outside, vip},
    object,
    repair::drift,
    traffic::{SILENCE, answer, answers, connect_to, in_pod, node},
};
use config_model::KernelVersion;
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Method};
use std::{
    fs::{read_dir, remove_file},
    net::{SocketAddr, TcpListener, UdpSocket},
    path::Path,
    process::Command,
};

/// True if the kernel has TCX.
pub(crate) fn has_tcx() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    KernelVersion::of_release(&release).unwrap() >= KernelVersion::OLDEST_WITH_TCX
}

fn run(command: &str) {
    let mut words = command.split_whitespace();
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{command}");
}

/// Limits both directions of pod a, as the plugin `bandwidth` does for an annotated pod.
fn limit_bandwidth() {
    for command in [
        "ip link add name bwp type ifb",
        "ip link set bwp up",
        "tc qdisc add dev a root tbf rate 1gbit burst 1mb latency 25ms",
        "tc qdisc add dev a ingress",
        "tc filter add dev a parent ffff: protocol all prio 1 u32 match u32 0 0 action mirred egress redirect dev bwp",
        "tc qdisc add dev bwp root tbf rate 1gbit burst 1mb latency 25ms",
    ] {
        run(command);
    }
}

/// The names of the pinned links.
fn pinned(bpffs: &Path) -> Vec<String> {
    let names = read_dir(bpffs.join("links")).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        names.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn filters(link: &str) -> String {
    let mut found = String::new();
    for side in ["ingress", "egress"] {
        let output = Command::new("tc").args(["filter", "show", "dev", link, side]).output();
        found += &String::from_utf8(output.unwrap().stdout).unwrap();
    }
    found
}

/// Fails unless policies are in force: pod a reaches port 8080 of b, also by a Service, and nothing else.
fn ensure_enforced(when: &str) {
    let at_b = |port: u16| SocketAddr::from(([10, 0, 0, 2], port));
    assert!(connect_to(at_b(8080)).is_some_and(|stream| answers(&stream)), "{when}: directly");
    assert!(connect_to(vip(1)).is_some_and(|stream| answers(&stream)), "{when}: by a Service");
    assert!(connect_to(vip(2)).is_some_and(|stream| answers(&stream)), "{when}: to the outside");
    assert!(connect_to(at_b(8081)).is_none(), "{when}: a port that is not allowed");
    assert!(connect_to(vip(3)).is_none(), "{when}: a backend that is not allowed");
}

fn world(bpffs: &Path) {
    node(bpffs);
    outside();
    for (pod, port) in [("b", 8080), ("b", 8081), ("out", 8080), ("out", 9090)] {
        answer(in_pod(pod, move || TcpListener::bind(("0.0.0.0", port)).unwrap()));
    }
}

/// Fails unless the backend refuses TCX by name, as on a kernel older than 6.6.
pub(crate) fn ensure_refused(object: &Path) {
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    let pins = bpffs.path().join("maps");
    let refused = EbpfBackend::open(object, &pins, connections(), Method::Tcx);
    let why = refused.map(drop).unwrap_err().to_string();
    assert!(why.contains("6.6") && why.contains("ENABLE_BANDWIDTH_PLUGIN"), "{why}");
}

#[test]
fn a_pod_whose_bandwidth_is_limited_is_enforced() {
    let name = "a_pod_whose_bandwidth_is_limited_is_enforced";
    let Some(object) = object(name) else { return };
    if !has_tcx() {
        return ensure_refused(&object);
    }
    let bpffs = tempfile::tempdir().unwrap();
    world(bpffs.path());
    let pins = bpffs.path().join("pins");
    let policies = [only_8080(8080)];
    let start = || EbpfBackend::open(&object, &pins, connections(), Method::Tcx).unwrap();
    let mut backend = start();
    enforce(&mut backend, 1, &policies);
    assert_eq!(filters("a") + &filters("b") + &filters("wire"), "", "no link has a filter");
    ensure_enforced("before its bandwidth is limited");
    let open = connect_to(SocketAddr::from(([10, 0, 0, 2], 8080))).unwrap();
    limit_bandwidth();
    assert!(answers(&open), "a connection continues");
    ensure_enforced("with limited bandwidth");
    // The link of the queue appears as a link of the node.
    enforce(&mut backend, 1, &policies);
    ensure_enforced("after a full pass");

    // A restart changes nothing, and a process that is killed leaves everything in force.
    let before = pinned(&pins);
    assert_eq!(before.len(), 5, "{before:?}");
    drop(backend);
    ensure_enforced("without an agent");
    let mut backend = start();
    enforce(&mut backend, 1, &policies);
    assert!(answers(&open), "a connection continues");
    assert_eq!(pinned(&pins), before);
    assert_eq!(drift(&mut backend), None);

    // A removed link is reported within the time of a repair, and attached again.
    for pin in &before {
        remove_file(pins.join("links").join(pin)).unwrap();
        // That of a link to other nodes is repaired at once.
        let drift = drift(&mut backend);
        assert!(drift.as_ref().is_none_or(|why| why.contains("link")), "{drift:?}");
        if drift.is_some() {
            enforce(&mut backend, 1, &policies);
        }
        assert_eq!(pinned(&pins), before);
        ensure_enforced("after a repair");
    }

    // Policies change under the connection.
    enforce(&mut backend, 2, &[only_8080(8081)]);
    assert!(!answers(&open), "it is no longer allowed");
    backend.clear().unwrap();
    assert_eq!(pinned(&pins), Vec::<String>::new());
    assert!(connect_to(vip(3)).is_some(), "enforcement is removed on purpose");
}

#[test]
fn tcx_replaces_filters_without_a_gap() {
    let name = "tcx_replaces_filters_without_a_gap";
    let Some(object) = object(name) else { return };
    if !has_tcx() {
        return ensure_refused(&object);
    }
    let bpffs = tempfile::tempdir().unwrap();
    world(bpffs.path());
    let pins = bpffs.path().join("pins");
    let policies = [only_8080(8080)];
    let open = |method| EbpfBackend::open(&object, &pins, connections(), method).unwrap();
    let mut backend = open(Method::Filters);
    enforce(&mut backend, 1, &policies);
    assert!(filters("a").contains("from_pod"));
    // A denied datagram is sent without a pause while the methods change.
    let received = in_pod("b", || UdpSocket::bind("0.0.0.0:6000").unwrap());
    received.set_read_timeout(Some(SILENCE)).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let socket = in_pod("a", || UdpSocket::bind("0.0.0.0:0").unwrap());
    let sender = std::thread::spawn(move || {
        let mut sent = 0_u64;
        while stopped.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
            let _ = socket.send_to(&[7], "10.0.0.2:6000");
            sent += 1;
        }
        sent
    });
    let connection = connect_to(SocketAddr::from(([10, 0, 0, 2], 8080))).unwrap();
    drop(backend);
    let mut backend = open(Method::Tcx);
    enforce(&mut backend, 1, &policies);
    assert!(!filters("a").contains("from_pod") && !pinned(&pins).is_empty());
    assert!(answers(&connection), "a connection continues");
    // An agent without the setting leaves TCX where it is.
    drop(backend);
    let mut backend = open(Method::Filters);
    enforce(&mut backend, 1, &policies);
    assert!(!filters("a").contains("from_pod"));
    assert!(answers(&connection), "a connection continues");
    stop.send(()).unwrap();
    assert!(sender.join().unwrap() > 1000);
    assert!(received.recv(&mut [0]).is_err(), "a denied datagram has passed");
    let applied = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let whole = desired(2, &policies);
    let applied = applied.block_on(backend.apply(&whole));
    assert!(applied.endpoints.values().all(Result::is_ok), "{applied:?}");
    ensure_enforced("at the end");
}

/// A process that ends while a map grows has left the earlier maps beside the new ones.
#[test]
fn a_restart_in_a_growth_adds_no_filter_beside_tcx() {
    let Some(object) = object("a_restart_in_a_growth_adds_no_filter_beside_tcx") else { return };
    if !has_tcx() {
        return ensure_refused(&object);
    }
    let bpffs = tempfile::tempdir().unwrap();
    world(bpffs.path());
    let pins = bpffs.path().join("pins");
    let start = || EbpfBackend::open(&object, &pins, connections(), Method::Tcx).unwrap();
    let mut backend = start();
    enforce(&mut backend, 1, &[only_8080(8080)]);
    drop(backend);
    let folders = read_dir(&pins).unwrap().map(|entry| entry.unwrap().path());
    let earlier = folders.into_iter().find(|folder| folder.join("flows").exists()).unwrap();
    let grown = earlier.with_file_name(format!("{}+1", earlier.file_name().unwrap().display()));
    std::fs::create_dir(&grown).unwrap();
    for pin in read_dir(&earlier).unwrap().map(|entry| entry.unwrap()) {
        if !pin.file_type().unwrap().is_dir() {
            std::fs::hard_link(pin.path(), grown.join(pin.file_name())).unwrap();
        }
    }
    run("ip link add name new type veth peer name newer");
    let mut backend = start();
    let queues = Command::new("tc").args(["qdisc", "show"]).output().unwrap();
    let queues = String::from_utf8(queues.stdout).unwrap();
    assert!(!queues.contains("clsact"), "{queues}");
    enforce(&mut backend, 1, &[only_8080(8080)]);
    ensure_enforced("after the restart");
    assert!(!earlier.exists() && grown.exists());
}
