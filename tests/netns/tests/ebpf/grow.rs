//! Maps that would be full.

use crate::{
    connections,
    existing::{desired, enforce},
    object,
    traffic::{SILENCE, answer, answers, connect_to, in_pod, node, policy},
};
use config_settings::Connections;
use datapath_backend::Backend as _;
use datapath_ebpf::EbpfBackend;
use datapath_node::BackendEvent;
use serde_json::{Value, json};
use std::{
    net::{SocketAddr, TcpListener, UdpSocket},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};
use tokio::runtime::{Builder, Runtime};

/// Pod a and this number of other addresses may connect to port 8080 of b.
fn from_peers(peers: u32) -> Value {
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
        EbpfBackend::open(&object, &pins, connections).unwrap()
    };

    // Without the memory for it the earlier state stays in force.
    let mut backend = open(54);
    enforce(&mut backend, 1, &[policy(8080)]);
    let connection = connect_to(at_b).unwrap();
    let before = folders(&pins);
    let refused = runtime().block_on(backend.apply(&desired(2, &[from_peers(70_000)])));
    let why = format!("{refused:?}");
    assert!(why.contains("the map prefixes") && why.contains("FERRULE_AGENT_MAP_MEMORY"), "{why}");
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
    let mut backend = EbpfBackend::open(&object, &pins, connections).unwrap();
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
    let mut backend = EbpfBackend::open(&object, &pins, connections()).unwrap();
    enforce(&mut backend, 1, &[policy(8080)]);
    let connection = connect_to(at_b(8080)).unwrap();
    // More addresses of the node than `own_addresses` has rows.
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
