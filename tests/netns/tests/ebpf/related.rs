//! ICMP errors about connections to Services, and datagrams of several fragments.

use crate::{
    hostile::{PASS, SHOT, frame, v4},
    nat::only_a,
    object,
    outside::{CLIENT, EXTERNAL, FAR, NODE, OPEN, node_port, open, v6},
    service::{VIP, any, at, serve, to, vip_v6},
    traffic::{SILENCE, in_pod, ip, v6_of, write},
};
use datapath_ebpf::Hook;
use nix::{
    net::if_::if_nametoindex,
    sys::socket::{AddressFamily, SockFlag, SockProtocol, SockType, socket},
};
use service_core::{Choice, Place};
use service_objects::{Family, Protocol};
use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket},
    process::Command,
    thread,
    time::{Duration, Instant},
};

/// A port at which no process listens.
pub(crate) const CLOSED: u16 = 5999;
/// A port at which a process returns each datagram.
const ECHO: u16 = 5400;
/// More than two frames.
const LONG: usize = 4000;
/// The datagram fits into a frame, but not into one of the small MTU.
const FULL: usize = 1440;
const SMALL_MTU: u32 = 1400;
/// The time for which a datagram may be under way.
const PATIENCE: Duration = Duration::from_secs(20);

fn service(address: IpAddr) -> Place {
    Place::Port(address, 53, Protocol::Udp)
}

/// Another address of a Service.
fn other_vip(last: u8) -> [IpAddr; 2] {
    [[172, 20, 0, last].into(), IpAddr::from([0xfd00, 2, 0, 0, 0, 0, 0, last.into()])]
}

/// Returns each datagram to its sender, until the process ends.
fn echo(namespace: &str) {
    let server = in_pod(namespace, || UdpSocket::bind(("::", ECHO)).unwrap());
    thread::spawn(move || {
        let mut bytes = [0; LONG];
        while let Ok((length, from)) = server.recv_from(&mut bytes) {
            let _ = server.send_to(&bytes[..length], from);
        }
    });
}

fn bytes(length: usize) -> Vec<u8> {
    (0..length).map(|place| u8::try_from(place % 251).unwrap()).collect()
}

/// A client's socket that receives from this address only.
pub(crate) fn client(namespace: &str, to: SocketAddr) -> UdpSocket {
    in_pod(namespace, move || {
        let socket = UdpSocket::bind(any(to, 0)).unwrap();
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        socket.connect(to).unwrap();
        socket
    })
}

/// Receives a datagram, and returns its length and its sender. A read with a time limit ends when the process continues after
/// a stop.
pub(crate) fn receive(socket: &UdpSocket, to: &mut [u8]) -> Result<(usize, SocketAddr), ErrorKind> {
    loop {
        match socket.recv_from(to) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            received => return received.map_err(|error| error.kind()),
        }
    }
}

/// Sends a datagram and waits for the same one.
fn exchange(socket: &UdpSocket, length: usize) -> Result<(), ErrorKind> {
    let sent = bytes(length);
    socket.send(&sent).map_err(|error| error.kind())?;
    let mut found = vec![0; LONG];
    let (length, _) = receive(socket, &mut found)?;
    assert_eq!(&found[..length], &sent);
    Ok(())
}

fn echoed(namespace: &str, to: SocketAddr, length: usize) -> Result<(), ErrorKind> {
    exchange(&client(namespace, to), length)
}

/// Frontends for pods and for clients outside, with one backend of each family.
fn frontends(backends: [IpAddr; 2], port: u16) -> Vec<(Place, Choice)> {
    let [v4, v6] = backends.map(|backend| to(&[at(backend, port)]));
    vec![
        (service(VIP), v4.clone()),
        (Place::Port(EXTERNAL, 53, Protocol::Udp), v4.clone()),
        (node_port(Family::V4, Protocol::Udp), v4),
        (service(vip_v6()), v6.clone()),
        (node_port(Family::V6, Protocol::Udp), v6),
    ]
}

/// The addresses that clients outside ask for.
fn asked_outside() -> [SocketAddr; 4] {
    [at(NODE, 30_080), at(EXTERNAL, 53), at(v6(9, 1), 30_080), at(vip_v6(), 53)]
}

fn b() -> [IpAddr; 2] {
    [[10, 0, 0, 2].into(), v6_of("b").into()]
}

fn far() -> [IpAddr; 2] {
    [FAR.into(), v6(8, 2)]
}

#[test]
fn a_closed_port_of_a_backend_refuses_the_client_of_its_service() {
    let name = "a_closed_port_of_a_backend_refuses_the_client_of_its_service";
    let Some(object) = object(name) else { return };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        settle();
        let refused = Err(ErrorKind::ConnectionRefused);
        let itself = [[10, 0, 0, 1].into(), v6_of("a").into()];
        for backends in [b(), [CLIENT.into(), v6(9, 2)], itself] {
            serve(&mut kernel, &frontends(backends, CLOSED));
            for address in [VIP, vip_v6()] {
                assert_eq!(echoed("a", at(address, 53), 1), refused, "{address} {backends:?}");
            }
        }
        for backends in [b(), far()] {
            serve(&mut kernel, &frontends(backends, CLOSED));
            for to in asked_outside() {
                assert_eq!(echoed("out", to, 1), refused, "{to} {backends:?}");
            }
        }
        let counters = kernel.programs.counters().unwrap();
        assert_eq!((counters["no_backend"], counters["stray_error"]), (0, 0), "{counters:?}");
    }
}

/// The error of a server that answers after the client has closed its socket.
pub(crate) fn late_answer(
    server: &str,
    backend: SocketAddr,
    client_in: &str,
    to: SocketAddr,
) -> ErrorKind {
    let server = in_pod(server, move || UdpSocket::bind(backend).unwrap());
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    let client = client(client_in, to);
    client.send(&[7]).unwrap();
    let (_, from) = receive(&server, &mut [0]).unwrap();
    drop(client);
    server.connect(from).unwrap();
    server.set_read_timeout(Some(SILENCE)).unwrap();
    // A process that another test starts has the client's socket for a moment, and the socket receives an answer.
    for _ in 0..3 {
        server.send(&[7]).unwrap();
        let error = receive(&server, &mut [0]).unwrap_err();
        if error != ErrorKind::WouldBlock {
            return error;
        }
    }
    ErrorKind::WouldBlock
}

#[test]
fn an_error_of_a_client_about_an_answer_reaches_the_backend() {
    let name = "an_error_of_a_client_about_an_answer_reaches_the_backend";
    let Some(object) = object(name) else { return };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        settle();
        let outside = [CLIENT.into(), v6(9, 2)];
        let itself = [[10, 0, 0, 1].into(), v6_of("a").into()];
        for (namespace, backends) in [("b", b()), ("out", outside), ("a", itself)] {
            serve(&mut kernel, &frontends(backends, CLOSED));
            for (address, backend) in [VIP, vip_v6()].into_iter().zip(backends) {
                let error = late_answer(namespace, at(backend, CLOSED), "a", at(address, 53));
                assert_eq!(error, ErrorKind::ConnectionRefused, "{address} {backends:?}");
            }
        }
        for (namespace, [v4, v6]) in [("b", b()), ("far", far())] {
            serve(&mut kernel, &frontends([v4, v6], CLOSED));
            for (to, backend) in asked_outside().into_iter().zip([v4, v4, v6, v6]) {
                let error = late_answer(namespace, at(backend, CLOSED), "out", to);
                assert_eq!(error, ErrorKind::ConnectionRefused, "{to} {backend}");
            }
        }
        let counters = kernel.programs.counters().unwrap();
        assert_eq!((counters["no_backend"], counters["stray_error"]), (0, 0), "{counters:?}");
    }
}

/// Lets backends on another node answer pods.
fn lead_back() {
    ip("-n far route add default via 10.8.0.1");
}

/// Waits until each link has its link-local address. A router asks for neighbors from there.
fn settle() {
    let end = Instant::now() + PATIENCE;
    let is_tentative = || {
        let shown = Command::new("ip").args(["-6", "addr", "show", "tentative"]).output().unwrap();
        !shown.stdout.is_empty()
    };
    while is_tentative() || ["out", "far"].into_iter().any(|of| in_pod(of, is_tentative)) {
        assert!(Instant::now() < end, "a link has no address");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Adds a namespace that only small packets reach, behind a neighbor of the node.
fn add_behind(router: &'static str, link: &str, name: &str, net: u16) {
    in_pod(router, || {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    });
    let (v4, neighbor) = (format!("10.{net}.0"), if router == "out" { 9 } else { 8 });
    ip(&format!("netns add {name}"));
    ip(&format!("-n {router} link add name behind type veth peer name eth0 netns {name}"));
    for (namespace, dev, host) in [(router, "behind", 1), (name, "eth0", 2)] {
        ip(&format!("-n {namespace} link set {dev} up"));
        ip(&format!("-n {namespace} addr add {v4}.{host}/24 dev {dev}"));
        ip(&format!("-n {namespace} addr add {}/64 dev {dev} nodad", v6(net, host)));
    }
    ip(&format!("-n {name} link set lo up"));
    ip(&format!("-n {name} route add default via {v4}.1"));
    ip(&format!("-n {name} route add default via {}", v6(net, 1)));
    ip(&format!("-n {router} route add {v4}.2/32 dev behind mtu lock {SMALL_MTU}"));
    ip(&format!("-n {router} route add {}/128 dev behind mtu lock {SMALL_MTU}", v6(net, 2)));
    ip(&format!("route add {v4}.0/24 via 10.{neighbor}.0.2 dev {link}"));
    ip(&format!("route add {}/64 via {} dev {link}", v6(net, 0), v6(neighbor, 2)));
}

/// Frontends of these addresses only, with one backend each.
fn served(asked: [IpAddr; 2], backends: [IpAddr; 2]) -> Vec<(Place, Choice)> {
    let pairs = asked.into_iter().zip(backends);
    pairs.map(|(address, backend)| (service(address), to(&[at(backend, ECHO)]))).collect()
}

#[test]
fn a_small_mtu_of_the_path_is_learned_through_a_service() {
    let Some(object) = object("a_small_mtu_of_the_path_is_learned_through_a_service") else {
        return;
    };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        lead_back();
        add_behind("far", "other", "deep", 7);
        add_behind("out", "wire", "beyond", 6);
        settle();
        ["b", "far", "deep"].into_iter().for_each(echo);
        let deep = [[10, 7, 0, 2].into(), v6(7, 2)];
        // A datagram is lost. The next one has fragments that are small enough.
        let learns = |namespace: &str, to: SocketAddr, place: &str| {
            let results = [(); 2].map(|()| echoed(namespace, to, FULL));
            let is_learned = results[0].is_err() && results[1].is_ok();
            assert!(is_learned, "{place}: {namespace} asks {to}: {results:?}");
        };
        serve(&mut kernel, &frontends(deep, ECHO));
        for address in [VIP, vip_v6()] {
            learns("a", at(address, 53), "a router before the backend");
        }
        // A router applies an MTU that it has learned itself, so each case has addresses of its own.
        for address in [EXTERNAL, vip_v6()] {
            learns("out", at(address, 53), "a router before the backend");
        }
        serve(&mut kernel, &frontends(b(), ECHO));
        for address in [NODE, v6(9, 1)] {
            learns("beyond", at(address, 30_080), "a router before the client, and a backend here");
        }
        serve(&mut kernel, &frontends(far(), ECHO));
        for address in [NODE, v6(9, 1)] {
            learns("beyond", at(address, 30_080), "a router before the client, and a far backend");
        }
        // The node itself is the router.
        ip(&format!("route add 10.8.0.2/32 dev other mtu lock {SMALL_MTU}"));
        ip(&format!("route add {}/128 dev other mtu lock {SMALL_MTU}", v6(8, 2)));
        let asked = other_vip(2);
        serve(&mut kernel, &served(asked, far()));
        for address in asked {
            learns("a", at(address, 53), "the node");
        }
        ip(&format!("link set dev b mtu {SMALL_MTU}"));
        ip(&format!("-n b link set dev eth0 mtu {SMALL_MTU}"));
        let asked = other_vip(3);
        serve(&mut kernel, &served(asked, b()));
        for address in asked {
            learns("out", at(address, 53), "the node");
        }
        assert_eq!(kernel.programs.counters().unwrap()["no_backend"], 0);
    }
}

#[test]
fn datagrams_of_several_fragments_pass_through_services() {
    let Some(object) = object("datagrams_of_several_fragments_pass_through_services") else {
        return;
    };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        settle();
        ["a", "b", "out", "far"].into_iter().for_each(echo);
        let itself = [[10, 0, 0, 1].into(), v6_of("a").into()];
        for policies in [&[][..], &[only_a()]] {
            write(&mut kernel, policies);
            for backends in [b(), [CLIENT.into(), v6(9, 2)], itself] {
                serve(&mut kernel, &frontends(backends, ECHO));
                for address in [VIP, vip_v6()] {
                    let socket = client("a", at(address, 53));
                    for _ in 0..3 {
                        assert_eq!(exchange(&socket, LONG), Ok(()), "{address} {backends:?}");
                    }
                }
            }
        }
        write(&mut kernel, &[]);
        for backends in [b(), far()] {
            serve(&mut kernel, &frontends(backends, ECHO));
            for to in asked_outside() {
                let socket = client("out", to);
                for _ in 0..3 {
                    assert_eq!(exchange(&socket, LONG), Ok(()), "{to} {backends:?}");
                }
            }
        }
        let counters = kernel.programs.counters().unwrap();
        let lost =
            ["no_backend", "fragment_unknown", "fragment_late"].map(|reason| counters[reason]);
        assert_eq!(lost, [0; 3], "{counters:?}");
    }
}

/// A fragment of pod a's datagram with this number. Only the first one has ports.
fn fragment_v4(to: Ipv4Addr, number: u16, is_first: bool) -> Vec<u8> {
    let mut payload = vec![0; 32];
    if is_first {
        payload[..4].copy_from_slice(&[0x9c, 0x40, 0, 53]);
        payload[4..6].copy_from_slice(&1000_u16.to_be_bytes());
    }
    let mut packet = v4(17, Ipv4Addr::new(10, 0, 0, 1), to, &payload);
    packet[4..6].copy_from_slice(&number.to_be_bytes());
    packet[6..8].copy_from_slice(if is_first { &[0x20, 0] } else { &[0, 4] });
    frame(0x800, &packet)
}

fn fragment_v6(to: IpAddr, number: u32, is_first: bool) -> Vec<u8> {
    let IpAddr::V6(to) = to else { panic!("{to}") };
    let mut packet = vec![0x60, 0, 0, 0, 0, 40, 44, 64];
    packet.extend(v6_of("a").octets());
    packet.extend(to.octets());
    packet.extend([17, 0, 0, if is_first { 1 } else { 32 }]);
    packet.extend(number.to_be_bytes());
    packet.resize(80, 0);
    if is_first {
        packet[48..52].copy_from_slice(&[0x9c, 0x40, 0, 53]);
        packet[52..54].copy_from_slice(&1000_u16.to_be_bytes());
    }
    frame(0x86dd, &packet)
}

#[test]
fn a_later_fragment_to_a_service_needs_its_first_one() {
    let Some(object) = object("a_later_fragment_to_a_service_needs_its_first_one") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let mut all = frontends(b(), ECHO);
    all.extend([VIP, vip_v6()].map(|address| (Place::OtherPorts(address), Choice::NoSuchPort)));
    serve(&mut kernel, &all);
    let a = if_nametoindex("a").unwrap();
    let IpAddr::V4(vip) = VIP else { panic!("{VIP}") };
    let outside = Ipv4Addr::from(FAR);
    let cases = [
        (fragment_v4(vip, 1, false), SHOT),
        (fragment_v4(vip, 1, true), PASS),
        (fragment_v4(vip, 1, false), PASS),
        (fragment_v4(vip, 2, false), SHOT),
        (fragment_v6(vip_v6(), 1, false), SHOT),
        (fragment_v6(vip_v6(), 1, true), PASS),
        (fragment_v6(vip_v6(), 1, false), PASS),
        (fragment_v6(vip_v6(), 2, false), SHOT),
        (fragment_v4(outside, 3, false), PASS),
    ];
    for (number, (packet, action)) in cases.iter().enumerate() {
        let found = kernel.programs.test(Hook::FromPod, packet, a, a, 0).unwrap();
        assert_eq!(found, *action, "case {number}");
    }
    assert_eq!(kernel.programs.counters().unwrap()["fragment_unknown"], 4);
}

/// A raw socket of ICMP.
pub(crate) fn raw(namespace: &str, family: AddressFamily) -> UdpSocket {
    let protocol =
        if family == AddressFamily::Inet { SockProtocol::Icmp } else { SockProtocol::IcmpV6 };
    let socket = in_pod(namespace, move || {
        socket(family, SockType::Raw, SockFlag::SOCK_CLOEXEC, protocol).unwrap()
    });
    let socket = UdpSocket::from(socket);
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket
}

/// The checksum over bytes, which has not changed if they have the right one.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let sum: u32 = words
        .map(|word| u32::from(u16::from_be_bytes([word[0], word.get(1).copied().unwrap_or(0)])))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap()
}

fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    }
}

/// A datagram of several fragments has its checksum before it leaves the client.
#[test]
fn the_packet_in_an_error_has_the_checksums_of_the_packet_that_the_client_has_sent() {
    let name = "the_packet_in_an_error_has_the_checksums_of_the_packet_that_the_client_has_sent";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    settle();
    let pod = [[10, 0, 0, 1].into(), v6_of("a").into()];
    let outside = [CLIENT.into(), v6(9, 2)];
    let node = [NODE, v6(9, 1)];
    for (namespace, clients, asked, port, backends) in [
        ("a", pod, [VIP, vip_v6()], 53, b()),
        ("a", pod, [VIP, vip_v6()], 53, outside),
        ("out", outside, node, 30_080, b()),
        ("out", outside, node, 30_080, far()),
    ] {
        serve(&mut kernel, &frontends(backends, CLOSED));
        for (own, to) in clients.into_iter().zip(asked) {
            let is_v4 = own.is_ipv4();
            let case = format!("{own} asks {to} of {backends:?}");
            let raw =
                raw(namespace, if is_v4 { AddressFamily::Inet } else { AddressFamily::Inet6 });
            let socket = client(namespace, at(to, port));
            let from_port = socket.local_addr().unwrap().port();
            let refused = exchange(&socket, LONG);
            assert_eq!(refused, Err(ErrorKind::ConnectionRefused), "{case}");
            // ICMP over IPv4 has the IP header before it. Neighbor discovery is no error.
            let mut packet = vec![0; 2048];
            let quoted = loop {
                let (length, _) = receive(&raw, &mut packet).unwrap();
                let start = if is_v4 { 20 } else { 0 };
                if packet[start] == if is_v4 { 3 } else { 1 } {
                    break packet[start + 8..length].to_vec();
                }
            };
            let (header, ends) = if is_v4 { (20, 12) } else { (40, 8) };
            let addresses = [octets(own), octets(to)].concat();
            assert_eq!(quoted[ends..header], addresses, "{case}");
            if is_v4 {
                assert_eq!(checksum(&[&quoted[..header]]), 0, "{case}");
            }
            let segment = &quoted[header..header + 8];
            assert_eq!(segment[..2], from_port.to_be_bytes(), "{case}");
            assert_eq!(segment[2..4], port.to_be_bytes(), "{case}");
            let pseudo = [&addresses[..], &[0, 17], &segment[4..6]].concat();
            assert_eq!(checksum(&[&pseudo, segment, &bytes(LONG)]), 0, "{case}");
        }
    }
}

/// "Port unreachable" about a datagram.
pub(crate) fn unreachable(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Vec<u8> {
    let segment = [from.1.to_be_bytes(), to.1.to_be_bytes(), [0, 9], [0, 0]].concat();
    let mut quoted = v4(17, from.0, to.0, &segment);
    let sum = checksum(&[&quoted]);
    quoted[10..12].copy_from_slice(&sum.to_be_bytes());
    let mut bytes = [&[3, 3, 0, 0, 0, 0, 0, 0], quoted.as_slice()].concat();
    let sum = checksum(&[&bytes]);
    bytes[2..4].copy_from_slice(&sum.to_be_bytes());
    bytes
}

#[test]
fn a_forged_error_changes_no_connection_to_a_service() {
    let Some(object) = object("a_forged_error_changes_no_connection_to_a_service") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    settle();
    lead_back();
    echo("far");
    serve(&mut kernel, &frontends(far(), ECHO));
    let (IpAddr::V4(vip), IpAddr::V4(node)) = (VIP, NODE) else { panic!("{VIP} {NODE}") };
    let (a, far) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::from(FAR));
    let of_pod = client("a", at(VIP, 53));
    let outside = client("out", at(NODE, 30_080));
    assert_eq!([exchange(&of_pod, 1), exchange(&outside, 1)], [Ok(()), Ok(())]);
    let port = of_pod.local_addr().unwrap().port();
    let [hostile, neighbor] = ["b", "out"].map(|namespace| raw(namespace, AddressFamily::Inet));
    let send = |socket: &UdpSocket, to: Ipv4Addr, error: &[u8]| {
        socket.send_to(error, (to, 0)).unwrap();
    };
    // No packet to the asked address leaves the pod's link, and another pod is no router.
    for socket in [&hostile, &neighbor] {
        send(socket, a, &unreachable((a, port), (vip, 53)));
    }
    send(&hostile, a, &unreachable((a, port), (far, ECHO)));
    assert_eq!(exchange(&of_pod, 1), Ok(()));
    assert_eq!(kernel.programs.counters().unwrap()["stray_error"], 3);
    // A packet from the node to the backend does not pass the link of the client.
    let towards_far = Ipv4Addr::new(10, 8, 0, 1);
    for source_port in 61_000..=65_535 {
        send(&neighbor, towards_far, &unreachable((towards_far, source_port), (far, ECHO)));
    }
    // Another client has no part in the connection.
    let port = outside.local_addr().unwrap().port();
    send(&hostile, CLIENT, &unreachable((CLIENT, port), (far, ECHO)));
    send(&neighbor, node, &unreachable((node, 30_080), (CLIENT, port ^ 1)));
    assert_eq!(exchange(&outside, 1), Ok(()));
    assert_eq!(exchange(&of_pod, 1), Ok(()));
}
