//! The fast path of clients outside that ask for Services with a backend on the node.
//!
//! The nodes are those of [`beyond`](crate::beyond). The client is their router. It asks at the primary ENI of the first node, and
//! pod b is on the second one.

use crate::{
    Kernel,
    beyond::{
        Nodes, PORTS, address, answered, ask_from, connect, forwards, introduce, misplaced, open,
        open_with, pods_of, rejecting,
    },
    connections,
    fast::nft,
    hostile::{SYN, frame, tcp},
    nat::{listen, only_a},
    object,
    outside::node_port,
    service::{self, answer_datagrams, at, serve, to},
    traffic::{PODS, SILENCE, answer, answers, attach, connect_pod, in_pod, ip, write},
};
use aya::maps::{HashMap, Map, MapData};
use config_settings::Connections;
use datapath_conntrack::dump;
use datapath_ebpf::{Hook, Programs};
use nix::net::if_::if_nametoindex;
use service_core::{Choice, Place};
use service_objects::{Family, Protocol};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket},
    path::Path,
    thread,
};

/// The client, and the node's addresses at the link to it.
const CLIENT: &str = "router";
const NODE: [&str; 2] = ["10.90.0.1", "fd00:90::1"];
const CLIENT_AT: [&str; 2] = ["10.90.0.254", "fd00:90::fe"];
/// linux/errno.h
const EMSGSIZE: i32 = 90;

/// The node port at the node's address of a family.
fn asked(is_v6: bool) -> SocketAddr {
    at(NODE[usize::from(is_v6)].parse::<IpAddr>().unwrap(), 30_080)
}

/// Node ports of both families and protocols, with this pod as the backend.
fn to_pod(pod: (&str, &str)) -> Vec<(Place, Choice)> {
    let mut frontends = Vec::new();
    for (family, is_v6) in [(Family::V4, false), (Family::V6, true)] {
        for (protocol, port) in [(Protocol::Tcp, 8080), (Protocol::Udp, 5353)] {
            let backend = at(address(pod, is_v6), port);
            frontends.push((node_port(family, protocol), to(&[backend])));
        }
    }
    frontends
}

/// Node ports of both families with this TCP port of pod b as the backend.
fn to_port_of_b(port: u16) -> [(Place, Choice); 2] {
    [(Family::V4, false), (Family::V6, true)].map(|(family, is_v6)| {
        (node_port(family, Protocol::Tcp), to(&[at(address(PODS[1], is_v6), port)]))
    })
}

/// Both nodes, whose pods have sent packets. The node ports of the first one lead to pod b.
fn serving(object: &Path, bpffs: &Path) -> Nodes {
    let mut nodes = open(object, bpffs);
    introduce();
    serve(&mut nodes.one, &to_pod(PODS[1]));
    nodes
}

/// The packets of the first node's stack meanwhile.
fn by_stack(run: impl FnOnce()) -> u64 {
    forwards(run)[0]
}

fn counter(kernel: &Kernel, reason: &str) -> u64 {
    kernel.programs.counters().unwrap()[reason]
}

/// The connections of the client in the kernel's table.
fn tracked() -> usize {
    let table = dump().unwrap().unwrap();
    let client = CLIENT_AT.map(|at| at.parse::<IpAddr>().unwrap());
    let is_of_client = |at: &IpAddr| client.contains(at);
    table.connections.iter().filter(|of| is_of_client(&of.original.source)).count()
}

fn ask(port: u16, to: SocketAddr) -> Result<String, ErrorKind> {
    ask_from(CLIENT, port, to)
}

#[test]
fn a_client_of_a_node_port_reaches_a_pod_without_the_stack() {
    let name = "a_client_of_a_node_port_reaches_a_pod_without_the_stack";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    let external = IpAddr::from([198, 51, 100, 7]);
    ip("-n router route add 198.51.100.7 via 10.90.0.1 dev eni0");
    let mut events = nodes.one.programs.take_events();
    for pod in PODS {
        let mut frontends = to_pod(pod);
        let backend = at(address(pod, false), 8080);
        frontends.push((Place::Port(external, 80, Protocol::Tcp), to(&[backend])));
        serve(&mut nodes.one, &frontends);
        nodes.one.programs.want_events(true, 1000).unwrap();
        let before = counter(&nodes.one, "fast_path");
        let count = by_stack(|| {
            for is_v6 in [false, true] {
                assert!(answered(CLIENT, asked(is_v6)), "{pod:?}");
                let client = CLIENT_AT[usize::from(is_v6)].to_owned();
                for _ in 0..3 {
                    assert_eq!(ask(40_000, asked(is_v6)).as_ref(), Ok(&client), "{pod:?}");
                }
            }
            assert!(answered(CLIENT, at(external, 80)), "{pod:?}");
        });
        assert_eq!(count, 0, "{pod:?}");
        assert_eq!(tracked(), 0, "{pod:?}");
        assert_eq!(counter(&nodes.one, "fast_path"), before + 5, "{pod:?}");
        let paths: Vec<bool> =
            std::iter::from_fn(|| events.next()).map(|event| event.is_fast).collect();
        assert_eq!(paths, [true; 5], "{pod:?}");
        nodes.one.programs.want_events(false, 1000).unwrap();
        let open = connect(CLIENT, asked(false)).unwrap();
        assert!(answers(&open));
        let paths = nodes.one.programs.paths(if_nametoindex(pod.0).unwrap()).unwrap();
        // The open connection, and the datagrams of each family.
        assert_eq!((paths.nodes, paths.pods), (3, 0), "{pod:?}: {paths:?}");
    }
    assert_eq!(misplaced(), 0, "each answer leaves by the link of its request");
    assert_eq!(counter(&nodes.one, "no_backend"), 0);
}

#[test]
fn policies_judge_a_client_of_a_node_port_on_the_fast_path() {
    let name = "policies_judge_a_client_of_a_node_port_on_the_fast_path";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = serving(&object, bpffs.path());
    let one = &mut nodes.one;
    let count = by_stack(|| {
        for is_v6 in [false, true] {
            let error = || connect(CLIENT, asked(is_v6)).err();
            let open = connect(CLIENT, asked(is_v6)).unwrap();
            assert!(answers(&open) && ask(40_001, asked(is_v6)).is_ok());
            write(one, &[only_a()]);
            assert!(!answers(&open), "it is no longer allowed");
            assert_eq!(ask(40_001, asked(is_v6)), Err(ErrorKind::WouldBlock));
            assert_eq!(error(), Some(ErrorKind::TimedOut));
            // The client accepts an answer from the address only that it asked for.
            write(one, &[rejecting("b", "ingress")]);
            assert_eq!(error(), Some(ErrorKind::ConnectionRefused));
            let refused =
                if is_v6 { ErrorKind::PermissionDenied } else { ErrorKind::HostUnreachable };
            assert_eq!(ask(0, asked(is_v6)), Err(refused));
            write(one, &[]);
            assert_eq!(error(), None);
            assert!(ask(40_001, asked(is_v6)).is_ok());
        }
    });
    assert_eq!(count, 0);
    let counters = one.programs.counters().unwrap();
    assert!(counters["ingress_isolation"] > 0 && counters["ingress_reject"] > 0, "{counters:?}");
    assert!(counters["revoked_ingress"] > 0, "{counters:?}");
    assert_eq!((tracked(), misplaced()), (0, 0));
}

#[test]
fn no_byte_of_a_revoked_connection_to_a_node_port_arrives() {
    let name = "no_byte_of_a_revoked_connection_to_a_node_port_arrives";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = serving(&object, bpffs.path());
    let listener = in_pod("b", || listen("[::]:9002"));
    serve(&mut nodes.one, &to_port_of_b(9002));
    let send = |mut stream: &TcpStream| stream.write_all(&[7]).unwrap();
    let receive = |mut stream: &TcpStream| {
        let read = stream.read(&mut [0; 8]);
        read.map_err(|error| error.kind())
    };
    for is_v6 in [false, true] {
        let count = by_stack(|| {
            let client = connect(CLIENT, asked(is_v6)).unwrap();
            let (server, _) = listener.accept().unwrap();
            server.set_read_timeout(Some(SILENCE)).unwrap();
            send(&client);
            send(&server);
            assert_eq!((receive(&client), receive(&server)), (Ok(1), Ok(1)), "{is_v6}");
            write(&mut nodes.one, &[only_a()]);
            for (sender, receiver) in [(&client, &server), (&server, &client)] {
                send(sender);
                assert_eq!(receive(receiver), Err(ErrorKind::WouldBlock), "{is_v6}");
            }
            write(&mut nodes.one, &[]);
        });
        assert_eq!(count, 0, "{is_v6}");
    }
}

/// Datagrams of one connection of the client. Returns true if each of them is answered.
fn datagrams(to: SocketAddr) -> impl Fn(usize) -> std::io::Result<()> {
    let any: IpAddr = if to.is_ipv6() { [0; 16].into() } else { [0; 4].into() };
    let socket = in_pod(CLIENT, move || UdpSocket::bind((any, 0)).unwrap());
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket.connect(to).unwrap();
    move |length| {
        socket.send(&vec![7; length])?;
        socket.recv(&mut [0; 64]).map(drop)
    }
}

#[test]
fn a_connection_to_a_node_port_keeps_its_path() {
    let Some(object) = object("a_connection_to_a_node_port_keeps_its_path") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let off = Connections { services: true, fast_path: false, ..connections() };
    let mut nodes = open_with(&object, bpffs.path(), &off);
    introduce();
    serve(&mut nodes.one, &to_pod(PODS[1]));
    let connect = || connect(CLIENT, asked(false)).unwrap();
    let is_by_stack = |stream: &TcpStream| by_stack(|| assert!(answers(stream))) > 0;
    let (early, early_datagrams) = (connect(), datagrams(asked(false)));
    assert!(is_by_stack(&early), "the setting is off");
    assert!(by_stack(|| early_datagrams(1).unwrap()) > 0, "the setting is off");
    let switch = |fast_path: bool| {
        let connections = Connections { services: true, fast_path, ..connections() };
        Programs::load(&object, Some(&bpffs.path().join("maps")), &connections).unwrap()
    };
    drop(switch(true));
    let (late, late_datagrams) = (connect(), datagrams(asked(false)));
    assert!(!is_by_stack(&late));
    assert_eq!(by_stack(|| late_datagrams(1).unwrap()), 0);
    assert!(is_by_stack(&early), "the first packet took the stack");
    assert!(by_stack(|| early_datagrams(1).unwrap()) > 0, "the first packet took the stack");
    // Other programs have the maps of the last ones.
    let mut other = Kernel::over(switch(false));
    attach(&mut other);
    for link in ["eni0", "eni1"] {
        other.attach(Hook::ToWire, link);
        other.attach(Hook::FromWire, link);
    }
    drop(nodes);
    assert!(!is_by_stack(&late), "the first packet took the fast path");
    assert_eq!(by_stack(|| late_datagrams(1).unwrap()), 0, "the first packet took the fast path");
    assert!(is_by_stack(&connect()));
    drop(other);
    assert!(is_by_stack(&early) && !is_by_stack(&late), "without a process");
    assert_eq!(misplaced(), 0);
}

#[test]
fn packets_to_a_node_port_that_need_the_stack_take_it() {
    let name = "packets_to_a_node_port_that_need_the_stack_take_it";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let nodes = serving(&object, bpffs.path());
    let exchange = datagrams(asked(false));
    assert_eq!(by_stack(|| exchange(1).unwrap()), 0);
    assert_eq!(by_stack(|| exchange(1400).unwrap()), 0);
    assert!(by_stack(|| exchange(4000).unwrap()) > 0, "the stack forwards fragments");
    assert_eq!(by_stack(|| exchange(1).unwrap()), 0, "the connection stays on its path");
    // The pod's link is narrower than the ENI.
    ip("link set dev b mtu 1280");
    ip("-n b link set eth0 mtu 1280");
    assert_eq!(exchange(1400).unwrap_err().raw_os_error(), Some(EMSGSIZE));
    assert_eq!(by_stack(|| exchange(1200).unwrap()), 0);
    assert!(by_stack(|| exchange(1400).unwrap()) > 0, "the client makes fragments now");
    assert_eq!(counter(&nodes.one, "no_backend"), 0);
    assert_eq!(misplaced(), 0);
}

#[test]
fn a_pod_that_has_sent_no_packet_is_reached_by_the_stack() {
    let Some(object) = object("a_pod_that_has_sent_no_packet_is_reached_by_the_stack") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = serving(&object, bpffs.path());
    let address_of_b = PODS[1].1;
    ip("link del dev b");
    ip("netns del b");
    ip("netns add b");
    connect_pod("b", address_of_b, "");
    answer(in_pod("b", || listen("0.0.0.0:8080")));
    answer_datagrams("b", 5353);
    write(&mut nodes.one, &[]);
    attach(&mut nodes.one);
    let links = PODS.map(|pod| (if_nametoindex(pod.0).unwrap(), pod));
    nodes.one.programs.set_fast_pods(&pods_of(links)).unwrap();
    let first = connect(CLIENT, asked(false)).unwrap();
    let count = |stream: &TcpStream| by_stack(|| assert!(answers(stream)));
    assert!(count(&first) > 0, "its MAC is not known");
    assert_eq!(count(&connect(CLIENT, asked(false)).unwrap()), 0);
    assert!(count(&first) > 0, "it stays there");
    assert_eq!(misplaced(), 0);
}

#[test]
fn a_client_without_a_route_takes_the_stack() {
    let Some(object) = object("a_client_without_a_route_takes_the_stack") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let nodes = serving(&object, bpffs.path());
    assert!(answered(CLIENT, asked(false)));
    let before = counter(&nodes.one, "fast_path");
    ip("route add blackhole 10.90.0.254 table 2");
    assert_eq!(connect(CLIENT, asked(false)).err(), Some(ErrorKind::TimedOut));
    // The pod would be reached, but the node has no wire to this client.
    ip("route del blackhole 10.90.0.254 table 2");
    ip("route add 10.90.0.254 dev a table 2");
    assert_eq!(connect(CLIENT, asked(false)).err(), Some(ErrorKind::TimedOut));
    assert_eq!(counter(&nodes.one, "fast_path"), before);
    ip("route del 10.90.0.254 dev a table 2");
    assert!(answered(CLIENT, asked(false)));
    assert_eq!(counter(&nodes.one, "fast_path"), before + 1);
}

/// The MAC of a link of the first node.
fn mac_of(link: &str) -> [u8; 6] {
    let text =
        std::process::Command::new("ip").args(["-br", "link", "show", link]).output().unwrap();
    let text = String::from_utf8(text.stdout).unwrap();
    let mac = text.split_whitespace().find(|word| word.matches(':').count() == 5).unwrap();
    let bytes = mac.split(':').map(|byte| u8::from_str_radix(byte, 16).unwrap());
    bytes.collect::<Vec<_>>().try_into().unwrap()
}

#[test]
fn a_packet_with_a_forged_source_takes_the_stack() {
    let Some(object) = object("a_packet_with_a_forged_source_takes_the_stack") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = serving(&object, bpffs.path());
    let link = if_nametoindex("eni0").unwrap();
    let mac = mac_of("eni0");
    let mut takes_fast_path = |source: &str| {
        let to = Ipv4Addr::new(10, 90, 0, 1);
        let mut frame = frame(0x800, &tcp(source.parse().unwrap(), to, (40_000, 30_080), SYN));
        frame[..6].copy_from_slice(&mac);
        let programs = &mut nodes.one.programs;
        let before = programs.counters().unwrap()["fast_path"];
        programs.test(Hook::FromWire, &frame, link, link, 0).unwrap();
        programs.counters().unwrap()["fast_path"] > before
    };
    assert!(takes_fast_path(CLIENT_AT[0]) && takes_fast_path("198.51.100.1"));
    let own = ["10.90.0.1", "10.91.0.1", PODS[0].1, PODS[1].1];
    for source in ["0.0.0.1", "127.0.0.1", "224.0.0.1", "255.255.255.255"].into_iter().chain(own) {
        assert!(!takes_fast_path(source), "{source}");
    }
}

#[test]
fn an_open_connection_to_a_node_port_keeps_its_backend() {
    let Some(object) = object("an_open_connection_to_a_node_port_keeps_its_backend") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = serving(&object, bpffs.path());
    let open = connect(CLIENT, asked(false)).unwrap();
    let exchange = datagrams(asked(false));
    let links = PODS.map(|pod| if_nametoindex(pod.0).unwrap());
    let count = by_stack(|| {
        assert!(answers(&open));
        exchange(1).unwrap();
        serve(&mut nodes.one, &to_pod(PODS[0]));
        assert!(answers(&open));
        exchange(1).unwrap();
        assert!(answered(CLIENT, asked(false)));
    });
    assert_eq!(count, 0);
    let [of_a, of_b] = links.map(|link| nodes.one.programs.paths(link).unwrap());
    // Datagrams do not stay with a backend that has left.
    assert_eq!((of_a.nodes, of_b.nodes), (1, 2), "{of_a:?} {of_b:?}");
}

/// The kernel's rows of connections of clients outside.
fn outside_rows(bpffs: &Path) -> HashMap<MapData, [u8; 40], [u8; 64]> {
    let map = MapData::from_pin(bpffs.join("maps/outside_flows")).unwrap();
    HashMap::try_from(Map::LruHashMap(map)).unwrap()
}

/// The byte `is_open` of such a row.
const IS_OPEN: usize = 62;

#[test]
fn a_client_whose_row_was_displaced_is_answered() {
    let Some(object) = object("a_client_whose_row_was_displaced_is_answered") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let _nodes = serving(&object, bpffs.path());
    for is_v6 in [false, true] {
        let open = connect(CLIENT, asked(is_v6)).unwrap();
        assert!(answers(&open));
        let mut rows = outside_rows(bpffs.path());
        let keys: Vec<_> = rows.keys().map(Result::unwrap).collect();
        assert!(!keys.is_empty());
        for key in &keys {
            rows.remove(key).unwrap();
        }
        for round in 0..3 {
            assert_eq!(by_stack(|| assert!(answers(&open), "{is_v6} {round}")), 0, "{is_v6}");
        }
        let states: Vec<u8> = rows.iter().map(|row| row.unwrap().1[IS_OPEN]).collect();
        assert_eq!(states, [1], "{is_v6}: the time of an open connection counts");
    }
    assert_eq!(misplaced(), 0);
}

/// As kube-proxy serves the node port.
const PROXY: &str = "
table ip proxy {
    chain pre {
        type nat hook prerouting priority dstnat;
        ip daddr 10.90.0.1 tcp dport 30080 dnat to 10.0.0.2:8080
    }
}";

#[test]
fn a_connection_that_kube_proxy_began_stays_with_the_stack() {
    let Some(object) = object("a_connection_that_kube_proxy_began_stays_with_the_stack") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    nft(PROXY);
    // Answers leave by the link of the request, as kube-proxy's nodes have it.
    ip("rule add pref 1000 from 10.0.0.2 to 10.90.0.254 lookup main");
    let earlier = connect(CLIENT, asked(false)).unwrap();
    let count = |stream: &TcpStream| by_stack(|| assert!(answers(stream)));
    assert!(count(&earlier) > 0);
    serve(&mut nodes.one, &to_pod(PODS[1]));
    assert!(count(&earlier) > 0);
    assert_eq!(count(&connect(CLIENT, asked(false)).unwrap()), 0);
    // The connections of the programs do not reach kube-proxy's rules.
    let later = connect(CLIENT, asked(false)).unwrap();
    serve(&mut nodes.one, &[]);
    assert_eq!(count(&later), 0);
    assert!(count(&earlier) > 0 && count(&connect(CLIENT, asked(false)).unwrap()) > 0);
    assert_eq!(misplaced(), 0);
}

#[test]
fn one_port_of_a_client_asks_for_a_node_port_a_host_port_and_the_pod() {
    let name = "one_port_of_a_client_asks_for_a_node_port_a_host_port_and_the_pod";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let _nodes = serving(&object, bpffs.path());
    nft(PORTS);
    ip("rule add pref 1024 fwmark 0x80/0x80 lookup main");
    // The client is at one address, whatever link leads to the node.
    let ask = |port, to| service::ask_from(CLIENT, at([10, 90, 0, 254], port), to);
    let node: IpAddr = NODE[0].parse().unwrap();
    let client = Ok(CLIENT_AT[0].to_owned());
    let places = [asked(false), at(node, 30_053), at(address(PODS[1], false), 5353)];
    assert_eq!(by_stack(|| assert_eq!(ask(40_053, places[0]), client)), 0);
    assert_eq!(tracked(), 0);
    // Connection tracking receives the request too.
    assert!(by_stack(|| assert_eq!(ask(40_053, places[2]), client)) >= 2);
    assert_eq!(tracked(), 1);
    for round in 0..3 {
        for place in places {
            for _ in 0..2 {
                assert_eq!(ask(40_053, place), client, "{place} in round {round}");
            }
        }
    }
    // Another port of the client is on the fast path.
    assert_eq!(by_stack(|| assert_eq!(ask(40_054, places[0]), client)), 0);
}

/// Sends this many bytes of a pod to each client of a port.
fn send_to_clients(pod: &str, port: u16, length: usize) {
    let listener = in_pod(pod, move || listen(&format!("[::]:{port}")));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || stream.write_all(&vec![7; length]));
        }
    });
}

#[test]
fn a_pod_learns_the_mtu_of_the_path_to_a_client() {
    let Some(object) = object("a_pod_learns_the_mtu_of_the_path_to_a_client") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = serving(&object, bpffs.path());
    let length = 1_000_000;
    send_to_clients("b", 9000, length);
    serve(&mut nodes.one, &to_port_of_b(9000));
    // The link of the other node is narrower than both ends know.
    ip("-n router link set dev eni2 mtu 1300");
    for is_v6 in [false, true] {
        let count = by_stack(|| {
            let mut stream = connect("c", asked(is_v6)).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            assert_eq!(received.len(), length, "{is_v6}");
        });
        assert_eq!(count, 0, "{is_v6}");
    }
    assert_eq!((counter(&nodes.one, "no_backend"), misplaced()), (0, 0));
}

#[test]
fn large_segments_arrive_at_a_node_port_as_they_were_sent() {
    let name = "large_segments_arrive_at_a_node_port_as_they_were_sent";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = serving(&object, bpffs.path());
    let listener = in_pod("b", || listen("[::]:9001"));
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        }
    });
    serve(&mut nodes.one, &to_port_of_b(9001));
    let sent: Vec<u8> = (0..2_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    for is_v6 in [false, true] {
        let count = by_stack(|| {
            let mut stream = connect(CLIENT, asked(is_v6)).unwrap();
            stream.set_read_timeout(None).unwrap();
            stream.write_all(&sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            assert!(received == sent, "{is_v6}: {} bytes", received.len());
        });
        assert_eq!(count, 0, "{is_v6}");
    }
    assert_eq!((counter(&nodes.one, "no_backend"), misplaced()), (0, 0));
}
