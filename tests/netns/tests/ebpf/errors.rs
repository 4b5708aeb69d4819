//! ICMP errors about connections on the fast path. The stacks of both nodes drop packets of an unknown connection.

use crate::{
    beyond::{Nodes, address, ask, c, forwards, introduce, misplaced, open},
    nat::policy,
    object,
    outside::node_port,
    related::{CLOSED, client, late_answer, raw, receive, unreachable},
    service::{VIP, at, serve, to, vip_v6},
    traffic::{PODS, SILENCE, in_pod, ip, write},
};
use nix::sys::socket::AddressFamily;
use serde_json::json;
use service_core::{Choice, Place};
use service_objects::{Family, Protocol};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::Command,
    thread,
    time::Duration,
};

/// The MTU of the router's links. The pods have 1500.
const SMALL_MTU: u32 = 1300;
const LENGTH: usize = 300_000;
/// A connection that does not learn the MTU sends nothing for longer than this.
const PATIENCE: Duration = Duration::from_secs(10);

/// Receives all bytes of a connection and sends their number, until the process ends.
fn swallow(namespace: &str) {
    let listener = in_pod(namespace, || TcpListener::bind("[::]:9000").unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || {
                let mut left = LENGTH;
                let mut bytes = vec![0; 65_536];
                while left > 0 {
                    let Ok(count @ 1..) = stream.read(&mut bytes) else { return };
                    left -= count;
                }
                let _ = stream.write_all(&[7]);
            });
        }
    });
}

/// True if many full segments of a pod arrive.
fn fills(from: &str, to: SocketAddr) -> bool {
    let mut stream = in_pod(from, move || TcpStream::connect_timeout(&to, SILENCE)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&vec![0; LENGTH]).is_ok()
        && stream.read(&mut [0]).is_ok_and(|count| count == 1)
}

/// Sends many bytes to each client, until the process ends.
fn pour(namespace: &str) {
    let listener = in_pod(namespace, || TcpListener::bind("[::]:9001").unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            thread::spawn(move || stream.write_all(&vec![0; LENGTH]));
        }
    });
}

/// True if a client receives all of them.
fn receives(from: &str, to: SocketAddr) -> bool {
    let mut stream = in_pod(from, move || TcpStream::connect_timeout(&to, SILENCE)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.read_exact(&mut vec![0; LENGTH]).is_ok()
}

/// The route of a pod, with the MTU that it has learned.
fn route(from: &str, to: IpAddr) -> String {
    let output = Command::new("ip").args(["-n", from, "route", "get", &to.to_string()]).output();
    String::from_utf8(output.unwrap().stdout).unwrap()
}

/// Frontends of both families for this port, at these addresses.
fn frontends(protocol: Protocol, backends: [SocketAddr; 2]) -> Vec<(Place, Choice)> {
    let pairs = [VIP, vip_v6()].into_iter().zip(backends);
    pairs.map(|(vip, backend)| (Place::Port(vip, 53, protocol), to(&[backend]))).collect()
}

fn both(of: (&str, &str)) -> [IpAddr; 2] {
    [address(of, false), address(of, true)]
}

const C: (&str, &str) = crate::beyond::C;

/// Neither node has lost a packet of its own programs.
fn check(nodes: &Nodes) {
    for kernel in [&nodes.one, &nodes.two] {
        let counters = kernel.programs.counters().unwrap();
        let lost = ["no_backend", "stray_error", "revoked_error"].map(|reason| counters[reason]);
        assert_eq!(lost, [0; 3], "{counters:?}");
    }
}

#[test]
fn a_small_mtu_beyond_the_node_is_learned_on_the_fast_path() {
    let name = "a_small_mtu_beyond_the_node_is_learned_on_the_fast_path";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    ["b", "c"].into_iter().for_each(swallow);
    for link in ["eni0", "eni1", "eni2"] {
        ip(&format!("-n router link set dev {link} mtu {SMALL_MTU}"));
    }
    serve(&mut nodes.one, &frontends(Protocol::Tcp, both(C).map(|to| at(to, 9000))));
    let expected = format!("mtu {SMALL_MTU}");
    for is_v6 in [false, true] {
        let [b, c] = [address(PODS[1], is_v6), c(is_v6)];
        let vip = if is_v6 { vip_v6() } else { VIP };
        // A receiver that has learned an MTU offers segments of that size.
        for (from, to, port) in [("a", vip, 53), ("a", c, 9000), ("c", b, 9000)] {
            assert!(!route(from, to).contains(&expected), "{from} to {to}");
            let count = forwards(|| assert!(fills(from, at(to, port)), "{from} to {to}"));
            assert_eq!(count, [0, 0], "{from} to {to}");
            assert!(route(from, to).contains(&expected), "{from} to {to}: {}", route(from, to));
        }
    }
    check(&nodes);
}

#[test]
fn a_closed_port_refuses_a_datagram_on_the_fast_path() {
    let Some(object) = object("a_closed_port_refuses_a_datagram_on_the_fast_path") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    let refused = || Err(ErrorKind::ConnectionRefused);
    for is_v6 in [false, true] {
        let vip = if is_v6 { vip_v6() } else { VIP };
        let [a, b, c] = [address(PODS[0], is_v6), address(PODS[1], is_v6), c(is_v6)];
        let count = forwards(|| assert_eq!(ask("a", at(b, CLOSED)), refused(), "{b}"));
        assert_eq!(count, [0, 0], "{b}");
        let count = forwards(|| assert_eq!(ask("a", at(c, CLOSED)), refused(), "{c}"));
        assert!(count[0] == 0 && count[1] > 0, "a first datagram from outside: {count:?}");
        let count = forwards(|| assert_eq!(ask("c", at(a, CLOSED)), refused(), "{a}"));
        assert!(count[0] > 0 && count[1] == 0, "a first datagram from outside: {count:?}");
        for backend in [b, c] {
            serve(&mut nodes.one, &frontends(Protocol::Udp, [at(backend, CLOSED); 2]));
            let count =
                forwards(|| assert_eq!(ask("a", at(vip, 53)), refused(), "{vip} {backend}"));
            assert_eq!(count[0], 0, "{vip} {backend}");
        }
    }
    check(&nodes);
}

#[test]
fn an_error_about_an_answer_reaches_its_sender_by_the_fast_path() {
    let name = "an_error_about_an_answer_reaches_its_sender_by_the_fast_path";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    for is_v6 in [false, true] {
        let vip = if is_v6 { vip_v6() } else { VIP };
        for pod in [PODS[1], C] {
            let server = at(address(pod, is_v6), CLOSED);
            serve(&mut nodes.one, &frontends(Protocol::Udp, [server; 2]));
            for asked in [server, at(vip, 53)] {
                let count = forwards(|| {
                    let error = late_answer(pod.0, server, "a", asked);
                    assert_eq!(error, ErrorKind::ConnectionRefused, "{asked} {server}");
                });
                assert_eq!(count[0], 0, "{asked} {server}");
            }
        }
    }
    check(&nodes);
}

/// The node port of the first node at its primary ENI. Pod b is on the second one.
fn asked(is_v6: bool) -> SocketAddr {
    let node = if is_v6 { "fd00:90::1" } else { "10.90.0.1" };
    at(node.parse::<IpAddr>().unwrap(), 30_080)
}

/// Frontends of the node port, with this port of a pod as the backend.
fn node_ports(protocol: Protocol, pod: (&str, &str), port: u16) -> Vec<(Place, Choice)> {
    let families = [(Family::V4, false), (Family::V6, true)].into_iter();
    let place =
        |(family, is_v6)| (node_port(family, protocol), to(&[at(address(pod, is_v6), port)]));
    families.map(place).collect()
}

#[test]
fn errors_of_backends_and_of_clients_outside_take_the_fast_path() {
    let name = "errors_of_backends_and_of_clients_outside_take_the_fast_path";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    for pod in PODS {
        serve(&mut nodes.one, &node_ports(Protocol::Udp, pod, CLOSED));
        for is_v6 in [false, true] {
            let (to, backend) = (asked(is_v6), at(address(pod, is_v6), CLOSED));
            let count = forwards(|| {
                assert_eq!(ask("router", to), Err(ErrorKind::ConnectionRefused), "{to} {pod:?}");
                let error = late_answer(pod.0, backend, "router", to);
                assert_eq!(error, ErrorKind::ConnectionRefused, "{to} {pod:?}");
            });
            assert_eq!(count[0], 0, "{to} {pod:?}");
        }
    }
    check(&nodes);
    assert_eq!(misplaced(), 0);
    // Pod b is no end of the connection of the client and pod a.
    serve(&mut nodes.one, &node_ports(Protocol::Udp, PODS[0], 5353));
    let open = client("router", asked(false));
    let is_open = || open.send(&[7]).is_ok() && receive(&open, &mut [0; 64]).is_ok();
    assert!(is_open());
    let (outside, a) = (Ipv4Addr::new(10, 90, 0, 254), v4(address(PODS[0], false)));
    let forged = unreachable((outside, port(&open)), (a, 5353));
    raw("b", AddressFamily::Inet).send_to(&forged, (outside, 0)).unwrap();
    assert_eq!(nodes.one.programs.counters().unwrap()["stray_error"], 1);
    assert!(is_open());
}

#[test]
fn a_backend_learns_a_small_mtu_before_its_client_outside() {
    let name = "a_backend_learns_a_small_mtu_before_its_client_outside";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    pour("b");
    ip(&format!("-n router link set dev eni2 mtu {SMALL_MTU}"));
    serve(&mut nodes.one, &node_ports(Protocol::Tcp, PODS[1], 9001));
    for is_v6 in [false, true] {
        let to = asked(is_v6);
        let count = forwards(|| assert!(receives("c", to), "{to}"));
        assert_eq!(count[0], 0, "{to}");
        let learned = route("b", c(is_v6));
        assert!(learned.contains(&format!("mtu {SMALL_MTU}")), "{learned}");
    }
    check(&nodes);
    assert_eq!(misplaced(), 0);
}

fn v4(address: IpAddr) -> Ipv4Addr {
    let IpAddr::V4(address) = address else { panic!("{address}") };
    address
}

fn port(socket: &UdpSocket) -> u16 {
    socket.local_addr().unwrap().port()
}

#[test]
fn a_forged_error_and_one_about_a_revoked_connection_leave_the_fast_path() {
    let name = "a_forged_error_and_one_about_a_revoked_connection_leave_the_fast_path";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    let [a, b] = PODS.map(|pod| v4(address(pod, false)));
    let c = v4(c(false));
    let [near, far] = [b, c].map(|of| client("a", at(of, 5353)));
    let is_open =
        |socket: &UdpSocket| socket.send(&[7]).is_ok() && receive(socket, &mut [0; 64]).is_ok();
    assert!(is_open(&near) && is_open(&far));
    let about = |socket: &UdpSocket, to: Ipv4Addr| unreachable((a, port(socket)), (to, 5353));
    let [of_b, of_c, of_router] =
        ["b", "c", "router"].map(|namespace| raw(namespace, AddressFamily::Inet));
    let send = |socket: &UdpSocket, to: Ipv4Addr, error: &[u8]| {
        socket.send_to(error, (to, 0)).unwrap();
    };
    let counted = |nodes: &Nodes| {
        let counters = nodes.one.programs.counters().unwrap();
        ["stray_error", "revoked_error"].map(|reason| counters[reason])
    };
    let has_error =
        |socket: &UdpSocket| receive(socket, &mut [0; 64]) == Err(ErrorKind::ConnectionRefused);
    // Pod b is no end of the connection between pods a and c.
    let count = forwards(|| {
        send(&of_b, a, &about(&far, c));
        send(&of_b, c, &unreachable((c, 5353), (a, port(&far))));
        assert!(!has_error(&far) && is_open(&far));
    });
    assert_eq!((count[0], counted(&nodes)), (0, [2, 0]));
    // The receivers of the datagrams, and a router.
    for (from, socket, to) in [(&of_b, &near, b), (&of_router, &far, c), (&of_c, &far, c)] {
        let count = forwards(|| {
            send(from, a, &about(socket, to));
            assert!(has_error(socket), "{to}");
        });
        assert_eq!(count[0], 0, "{to}");
    }
    assert!(is_open(&near) && is_open(&far));
    let nothing = policy(
        "a",
        json!({"podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Egress"]}),
    );
    write(&mut nodes.one, &[nothing]);
    let count = forwards(|| {
        for (from, socket, to) in [(&of_b, &near, b), (&of_router, &far, c), (&of_c, &far, c)] {
            send(from, a, &about(socket, to));
            assert!(!has_error(socket), "{to}");
        }
    });
    assert_eq!((count[0], counted(&nodes)), (0, [2, 3]));
    write(&mut nodes.one, &[]);
    assert!(is_open(&near) && is_open(&far));
}
