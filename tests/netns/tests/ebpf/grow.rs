//! Maps that would be full.

use crate::{
    connections,
    existing::{desired, enforce, enforce_at},
    object,
    repair::drift,
    tcx::{ensure_refused, has_tcx},
    traffic::{SILENCE, answer, answers, connect_to, in_pod, node, policy},
};
use config_settings::Connections;
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Method};
use datapath_node::BackendEvent;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use serde_json::{Value, json};
use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};

/// Pod a and this number of other addresses may connect to port 8080 of b.
pub(crate) fn from_peers(peers: u32) -> Value {
    let first = u32::from_be_bytes([100, 64, 0, 0]);
    // Neighbors would be one range.
    let address = |peer: u32| std::net::Ipv4Addr::from(first + 2 * peer);
    let block = |peer| json!({"ipBlock": {"cidr": format!("{}/32", address(peer))}});
    let mut policy = policy(8080);
    let from = policy["spec"]["ingress"][0]["from"].as_array_mut().unwrap();
    from.extend((0..peers).map(block));
    policy
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

/// The folders of maps.
fn folders(pins: &Path) -> Vec<PathBuf> {
    let folders = std::fs::read_dir(pins).unwrap().map(|entry| entry.unwrap().path());
    folders.filter(|folder| folder.join("flows").exists()).collect()
}

#[test]
fn a_full_map_grows_within_its_budget_and_connections_continue() {
    let Some(object) = object("a_full_map_grows_within_its_budget_and_connections_continue") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    answer(in_pod("b", || TcpListener::bind("0.0.0.0:8080").unwrap()));
    let at_b = SocketAddr::from(([10, 0, 0, 2], 8080));
    let pins = bpffs.path().join("maps");
    let open = |map_memory: u64| {
        let connections = Connections { map_memory: map_memory << 20, ..connections() };
        EbpfBackend::open(&object, &pins, connections, Method::Filters).unwrap()
    };

    // Without the memory for it the earlier state stays in force.
    let mut backend = open(44);
    enforce(&mut backend, 1, &[policy(8080)]);
    let connection = connect_to(at_b).unwrap();
    let before = folders(&pins);
    let refused = runtime().block_on(backend.apply(&desired(2, &[from_peers(70_000)])));
    let why = format!("{refused:?}");
    assert!(why.contains("the map set_rows") && why.contains("FERRULE_AGENT_MAP_MEMORY"), "{why}");
    assert!(answers(&connection) && connect_to(at_b).is_some());
    assert_eq!(folders(&pins), before);
    drop(backend);

    let mut backend = open(128);
    enforce(&mut backend, 2, &[from_peers(70_000)]);
    let grown = folders(&pins);
    assert!(grown.len() == 1 && grown != before, "{before:?} {grown:?}");
    assert!(answers(&connection), "the connection continues");
    assert!(connect_to(at_b).is_some_and(|stream| answers(&stream)));
    assert_eq!(backend.into_programs().read().unwrap().prefixes.len(), 70_000);

    // The next process uses the same maps. They are as large for a smaller state.
    let mut backend = open(128);
    enforce(&mut backend, 2, &[from_peers(70_000)]);
    assert_eq!(folders(&pins), grown);
    enforce(&mut backend, 3, &[policy(8081)]);
    assert!(!answers(&connection) && connect_to(at_b).is_none(), "the next state is in force");
    assert_eq!(folders(&pins), grown);
}

#[test]
fn a_first_state_replaces_each_full_map_once() {
    let Some(object) = object("a_first_state_replaces_each_full_map_once") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    let pins = bpffs.path().join("maps");
    let connections = Connections { map_memory: 128 << 20, ..connections() };
    let mut backend = EbpfBackend::open(&object, &pins, connections, Method::Filters).unwrap();
    // Each rule has a table of its own. The first maps have room for a quarter of the tables, and for most of the rules.
    let mut policy = from_peers(RULES);
    let rules = policy["spec"]["ingress"][0]["from"].as_array().unwrap().iter().zip(1..=RULES);
    let rules = rules.map(|(peer, port)| json!({"from": [peer], "ports": [{"port": port}]}));
    policy["spec"]["ingress"] = rules.collect();
    enforce(&mut backend, 1, &[policy]);
    let of = folders(&pins);
    let [folder] = of.as_slice() else { panic!("{of:?}") };
    assert!(folder.to_string_lossy().ends_with("+2"), "two maps have grown: {folder:?}");
    let programs = backend.into_programs();
    let rows = ["small_tables", "rules"].map(|map| programs.rows(map).unwrap());
    assert_eq!(rows, [16_384; 2]);
    let held = programs.read().unwrap();
    assert!(held.small_tables.len() >= 9000 && held.rules.len() == 9000, "all rows are written");
}

/// More than the first map of rules has.
const RULES: u32 = 9000;

/// Answers each datagram at a port of b, until the process ends.
fn echo(port: u16) {
    let socket = in_pod("b", move || UdpSocket::bind(("0.0.0.0", port)).unwrap());
    thread::spawn(move || {
        while let Ok((_, from)) = socket.recv_from(&mut [0]) {
            let _ = socket.send_to(&[7], from);
        }
    });
}

#[test]
fn the_map_of_connections_grows_up_to_its_limit() {
    let Some(object) = object("the_map_of_connections_grows_up_to_its_limit") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    answer(in_pod("b", || TcpListener::bind("0.0.0.0:8080").unwrap()));
    let ports = 5000..5003;
    ports.clone().for_each(echo);
    let pins = bpffs.path().join("maps");
    let mut connections = Connections { limit: 262_144, share: 100, ..connections() };
    connections.sweep = config_model::Span::seconds(1);
    let mut backend = EbpfBackend::open(&object, &pins, connections, Method::Filters).unwrap();
    enforce(&mut backend, 1, &[]);
    let open = connect_to(SocketAddr::from(([10, 0, 0, 2], 8080))).unwrap();
    assert!(answers(&open));
    let before = folders(&pins);
    let answered = in_pod("a", move || {
        let mut answered = 0;
        for source in 10_000..50_000_u16 {
            let Ok(socket) = UdpSocket::bind(("0.0.0.0", source)) else { continue };
            socket.set_read_timeout(Some(SILENCE)).unwrap();
            for port in ports.clone() {
                let sent = socket.send_to(&[7], ("10.0.0.2", port));
                answered += u32::from(sent.is_ok() && socket.recv(&mut [0]).is_ok());
            }
        }
        answered
    });
    assert!(answered > 131_072 / 4 * 3, "{answered}");
    let deadline = Instant::now() + Duration::from_secs(30);
    while folders(&pins) == before && Instant::now() < deadline {
        let wait = async { tokio::time::timeout(Duration::from_secs(2), backend.event()).await };
        let _ = runtime().block_on(wait);
    }
    let grown = folders(&pins);
    assert!(grown.len() == 1 && grown != before, "{before:?} {grown:?}");
    assert!(answers(&open), "the connection continues");
    let left = backend.into_programs().sweep().unwrap();
    assert!(left > 131_072 / 4 * 3, "{left} connections were copied");

    // The map of a release with other layouts has room for them from the start.
    std::fs::rename(&grown[0], pins.join("maps-0")).unwrap();
    let open_again = |limit| {
        let connections = Connections { limit, ..connections };
        EbpfBackend::open(&object, &pins, connections, Method::Filters).unwrap()
    };
    let mut backend = open_again(262_144);
    let own = folders(&pins).into_iter().find(|folder| !folder.ends_with("maps-0")).unwrap();
    enforce(&mut backend, 1, &[]);
    assert!(answers(&open), "the connection continues");
    let mut programs = backend.into_programs();
    assert_eq!(programs.rows("flows"), Some(262_144));
    assert!(programs.sweep().unwrap() > 131_072 / 4 * 3);
    drop(programs);

    // The others are judged again where the setting has no room for them.
    std::fs::rename(&own, pins.join("maps-0")).unwrap();
    let mut backend = open_again(65_536);
    enforce(&mut backend, 1, &[]);
    assert_eq!(backend.into_programs().sweep().unwrap(), 65_536);
}

/// A folder of TCX links that cannot be used: links keep the programs that they have.
fn hide_links(pins: &Path) {
    let folder = pins.join("links");
    std::fs::create_dir_all(&folder).unwrap();
    mount(Some("tmpfs"), &folder, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
}

/// Fails unless both pods are reported as failed.
fn ensure_failed(backend: &mut EbpfBackend, revision: u64, policies: &[Value]) {
    let applied = runtime().block_on(backend.apply(&desired(revision, policies)));
    assert!(applied.endpoints.len() == 2, "{applied:?}");
    assert!(applied.endpoints.values().all(Result::is_err), "{applied:?}");
}

#[test]
fn a_link_that_keeps_programs_with_an_earlier_map_is_closed_and_reported() {
    let name = "a_link_that_keeps_programs_with_an_earlier_map_is_closed_and_reported";
    let Some(object) = object(name) else { return };
    if !has_tcx() {
        return ensure_refused(&object);
    }
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    answer(in_pod("b", || TcpListener::bind("0.0.0.0:8080").unwrap()));
    let at_b = SocketAddr::from(([10, 0, 0, 2], 8080));
    let pins = bpffs.path().join("maps");
    let open = |method| EbpfBackend::open(&object, &pins, connections(), method).unwrap();
    let mut backend = open(Method::Filters);
    enforce(&mut backend, 1, &[policy(8080)]);
    drop(backend);
    hide_links(&pins);
    let mut backend = open(Method::Tcx);
    ensure_failed(&mut backend, 2, &[policy(8080)]);
    assert!(connect_to(at_b).is_some(), "the filters have the same maps");
    ensure_failed(&mut backend, 3, &[from_peers(70_000)]);
    assert!(connect_to(at_b).is_none(), "the filters have the earlier map: the pod is closed");

    // Also for the next process.
    drop(backend);
    let mut backend = open(Method::Tcx);
    ensure_failed(&mut backend, 3, &[from_peers(70_000)]);
    assert!(connect_to(at_b).is_none(), "the pod is closed");
    umount2(&pins.join("links"), MntFlags::MNT_DETACH).unwrap();
    enforce(&mut backend, 3, &[from_peers(70_000)]);
    assert!(connect_to(at_b).is_some_and(|stream| answers(&stream)));
    assert_eq!(folders(&pins).len(), 1);
}

#[test]
fn a_growth_of_connections_that_a_link_does_not_follow_starts_a_full_pass() {
    let name = "a_growth_of_connections_that_a_link_does_not_follow_starts_a_full_pass";
    let Some(object) = object(name) else { return };
    if !has_tcx() {
        return ensure_refused(&object);
    }
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    echo(5000);
    let pins = bpffs.path().join("maps");
    let open = |limit, method| {
        let mut connections = Connections { limit, share: 100, ..connections() };
        connections.sweep = config_model::Span::seconds(1);
        EbpfBackend::open(&object, &pins, connections, method).unwrap()
    };
    let mut backend = open(256, Method::Filters);
    enforce(&mut backend, 1, &[]);
    drop(backend);
    hide_links(&pins);
    let mut backend = open(1024, Method::Tcx);
    ensure_failed(&mut backend, 1, &[]);
    let answered = in_pod("a", || {
        let sockets = (0..250).map(|_| UdpSocket::bind("0.0.0.0:0").unwrap());
        let answered = sockets.filter(|socket| {
            socket.set_read_timeout(Some(SILENCE)).unwrap();
            socket.send_to(&[7], "10.0.0.2:5000").unwrap();
            socket.recv(&mut [0]).is_ok()
        });
        answered.count()
    });
    assert!(answered > 200, "{answered}");
    let why = drift(&mut backend).unwrap();
    assert!(why.contains("the map of connections is larger"), "{why}");
    ensure_failed(&mut backend, 1, &[]);
    umount2(&pins.join("links"), MntFlags::MNT_DETACH).unwrap();
    enforce(&mut backend, 1, &[]);
    assert_eq!(drift(&mut backend), None);
    assert_eq!(folders(&pins).len(), 1);
}

/// Filters of another owner have the first priority, and one that is before ours.
#[test]
fn a_pod_behind_the_program_of_another_owner_is_enforced_and_reported() {
    let name = "a_pod_behind_the_program_of_another_owner_is_enforced_and_reported";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    for port in [8080, 8081] {
        answer(in_pod("b", move || TcpListener::bind(("0.0.0.0", port)).unwrap()));
    }
    let at_b = |port| SocketAddr::from(([10, 0, 0, 2], port));
    // Neither matches a packet.
    for command in [
        "qdisc add dev b clsact",
        "filter add dev b egress protocol all prio 1 u32 match u32 0 0xffffffff classid 1:1",
        "filter add dev b egress protocol all prio 10 bpf bytecode 1,6\u{a0}0\u{a0}0\u{a0}0",
    ] {
        let words = command.split(' ').map(|word| word.replace('\u{a0}', " "));
        assert!(std::process::Command::new("tc").args(words).status().unwrap().success());
    }
    let pins = bpffs.path().join("maps");
    let mut backend = EbpfBackend::open(&object, &pins, connections(), Method::Filters).unwrap();
    for (revision, allowed, denied) in [(1, 8080, 8081), (2, 8081, 8080)] {
        let wanted = desired(revision, &[policy(allowed)]);
        let applied = runtime().block_on(backend.apply(&wanted));
        let why = applied.endpoints["b"].as_ref().unwrap_err();
        assert!(why.contains("another owner") && why.contains("remove"), "{why}");
        assert!(applied.endpoints["a"].is_ok(), "{applied:?}");
        assert!(connect_to(at_b(allowed)).is_some_and(|stream| answers(&stream)));
        assert!(connect_to(at_b(denied)).is_none(), "{denied}");
    }
}

/// The next sandbox of a pod has the same UID and another link.
#[test]
fn a_link_of_an_ended_sandbox_does_not_fail_the_next_one() {
    let Some(object) = object("a_link_of_an_ended_sandbox_does_not_fail_the_next_one") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    for (program, words) in [
        ("tc", "qdisc add dev b clsact"),
        (
            "tc",
            "filter add dev b egress protocol all prio 1 u32 match u32 0 0xffffffff classid 1:1",
        ),
        ("ip", "link add next type veth peer name peer"),
    ] {
        let status = std::process::Command::new(program).args(words.split(' ')).status();
        assert!(status.unwrap().success());
    }
    let pins = bpffs.path().join("maps");
    let mut backend = EbpfBackend::open(&object, &pins, connections(), Method::Filters).unwrap();
    let applied = runtime().block_on(backend.apply(&desired(1, &[policy(8080)])));
    assert!(applied.endpoints["b"].is_err(), "{applied:?}");
    let next = |pod: &str| if pod == "b" { "next" } else { pod }.to_owned();
    enforce_at(&mut backend, 2, &[policy(8080)], next);
}

/// Gives the node more addresses than the map `own_addresses` has rows.
pub(crate) fn fill_own_addresses() {
    let mut batch = std::process::Command::new("ip")
        .args(["-batch", "-"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = (0..4200_u32).map(|number| {
        let [_, _, third, last] = number.to_be_bytes();
        format!("addr add 10.99.{third}.{last}/32 dev lo\n")
    });
    let input = batch.stdin.as_mut().unwrap();
    std::io::Write::write_all(input, lines.collect::<String>().as_bytes()).unwrap();
    drop(batch.stdin.take());
    assert!(batch.wait().unwrap().success());
}

#[test]
fn a_full_map_of_fixed_size_refuses_the_state_and_pods_stay_enforced() {
    let name = "a_full_map_of_fixed_size_refuses_the_state_and_pods_stay_enforced";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    answer(in_pod("b", || TcpListener::bind("0.0.0.0:8080").unwrap()));
    answer(in_pod("b", || TcpListener::bind("0.0.0.0:8081").unwrap()));
    let at_b = |port| SocketAddr::from(([10, 0, 0, 2], port));
    let pins = bpffs.path().join("maps");
    let mut backend = EbpfBackend::open(&object, &pins, connections(), Method::Filters).unwrap();
    enforce(&mut backend, 1, &[policy(8080)]);
    let connection = connect_to(at_b(8080)).unwrap();
    fill_own_addresses();
    let refused = runtime().block_on(backend.apply(&desired(2, &[policy(8081)])));
    let why = format!("{refused:?}");
    assert!(why.contains("own_addresses"), "{why}");
    assert!(answers(&connection) && connect_to(at_b(8080)).is_some(), "the earlier state stays");

    // A removed filter is repaired without a state that could be applied.
    crate::detach(datapath_ebpf::Hook::ToPod, "b");
    crate::detach(datapath_ebpf::Hook::FromPod, "a");
    let events = async { while !matches!(backend.event().await, BackendEvent::Trace(_)) {} };
    let wait = async { tokio::time::timeout(Duration::from_secs(2), events).await };
    let _ = runtime().block_on(wait);
    assert!(connect_to(at_b(8081)).is_none() && connect_to(at_b(8080)).is_some());
    let filters = std::process::Command::new("tc")
        .args(["filter", "show", "dev", "b", "egress"])
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&filters.stdout).contains("to_pod"));
}
