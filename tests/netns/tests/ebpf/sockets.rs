//! Services: clients are processes of the node.

use crate::{
    Kernel, connections, object,
    service::{
        VIP, answer_datagrams, at, exchange_with, for_sources, serve, serve_all, start, to, vip_v6,
    },
    traffic::{NODE, SILENCE, answers, in_pod, ip, v6_of, write},
};
use config_settings::Connections;
use datapath_ebpf::Programs;
use service_core::{Choice, Place};
use service_objects::{Family, Protocol};
use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream, UdpSocket},
    path::Path,
};

/// The folder with the cgroup trees. The programs act in the network namespace of the test only.
pub(crate) const CGROUP: &str = "/sys/fs/cgroup";

const NODE_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 3, 0, 0, 0, 0, 0, 1);

/// A node whose processes use Services. The calling thread is one of them.
fn start_sockets(object: &Path, bpffs: &Path) -> Kernel {
    let mut kernel = start(object, bpffs);
    ip(&format!("addr add {NODE_V6}/128 dev lo"));
    kernel.own.addresses.insert(IpAddr::from(NODE_V6).into());
    write(&mut kernel, &[]);
    assert_eq!(kernel.programs.attach_sockets(Path::new(CGROUP)).unwrap(), 8);
    assert_eq!(kernel.programs.attach_sockets(Path::new(CGROUP)).unwrap(), 0, "they are attached");
    kernel
}

fn tcp(address: IpAddr) -> Place {
    Place::Port(address, 80, Protocol::Tcp)
}

fn udp(address: IpAddr) -> Place {
    Place::Port(address, 53, Protocol::Udp)
}

fn b(port: u16) -> SocketAddr {
    at([10, 0, 0, 2], port)
}

/// Connects from the calling thread. The peer has to be the address that was asked for.
fn connected(to: SocketAddr) -> Result<TcpStream, ErrorKind> {
    let stream = TcpStream::connect_timeout(&to, SILENCE).map_err(|error| error.kind())?;
    assert_eq!(stream.peer_addr().unwrap(), to);
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    Ok(stream)
}

fn is_answered(to: SocketAddr) -> bool {
    connected(to).is_ok_and(|stream| answers(&stream))
}

/// A socket of the node for datagrams.
fn datagrams(of: SocketAddr) -> UdpSocket {
    let any: IpAddr = if of.is_ipv6() { [0; 16].into() } else { [0; 4].into() };
    let socket = UdpSocket::bind((any, 0)).unwrap();
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket
}

/// Sends a datagram of a socket without a peer. Returns the sender of the answer.
fn ask(socket: &UdpSocket, to: SocketAddr) -> Result<SocketAddr, ErrorKind> {
    exchange_with(socket, to).map(|(from, _)| from)
}

#[test]
fn processes_of_the_node_reach_the_backends_of_a_service() {
    let Some(object) = object("processes_of_the_node_reach_the_backends_of_a_service") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start_sockets(&object, bpffs.path());
    serve(
        &mut kernel,
        &[
            (tcp(VIP), to(&[b(8080), at([10, 9, 0, 2], 8080)])),
            (tcp(vip_v6()), to(&[at(v6_of("b"), 8080)])),
            (udp(VIP), to(&[b(5353)])),
            (udp(vip_v6()), to(&[at(v6_of("b"), 5353)])),
        ],
    );
    for _ in 0..20 {
        assert!(is_answered(at(VIP, 80)));
    }
    assert!(is_answered(at(vip_v6(), 80)));
    // A socket of both families.
    let IpAddr::V4(vip) = VIP else { panic!("it is an IPv4 address") };
    assert!(is_answered(at(vip.to_ipv6_mapped(), 80)));
    for to in [at(VIP, 53), at(vip_v6(), 53)] {
        let socket = datagrams(to);
        for _ in 0..3 {
            assert_eq!(
                ask(&socket, to),
                Ok(to),
                "the answer comes from the address that was asked for"
            );
        }
        let socket = datagrams(to);
        socket.connect(to).unwrap();
        assert_eq!(socket.peer_addr().unwrap(), to);
        socket.send(&[7]).unwrap();
        assert!(socket.recv(&mut [0; 64]).is_ok(), "{to}");
    }
    // The same socket asks for the Service, for the backend, and for the Service.
    let socket = datagrams(at(VIP, 53));
    assert_eq!(ask(&socket, at(VIP, 53)), Ok(at(VIP, 53)));
    std::thread::sleep(SILENCE);
    for to in [b(5353), at(VIP, 53)] {
        assert_eq!(ask(&socket, to), Ok(to));
    }
    let counters = kernel.programs.counters().unwrap();
    assert_eq!((counters["no_backend"], counters["chosen_for_pod"]), (0, 0), "{counters:?}");
    assert!(counters["chosen_for_process"] >= 22, "{counters:?}");
}

#[test]
fn datagrams_of_a_process_keep_a_backend_of_their_service_only() {
    let name = "datagrams_of_a_process_keep_a_backend_of_their_service_only";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start_sockets(&object, bpffs.path());
    answer_datagrams("b", 5354);
    let other = udp([172, 20, 0, 2].into());
    let socket = datagrams(at(VIP, 53));
    for port in [5353, 5354] {
        serve(&mut kernel, &[(udp(VIP), to(&[b(port)])), (other, to(&[b(5353)]))]);
        for _ in 0..3 {
            assert_eq!(ask(&socket, at(VIP, 53)), Ok(at(VIP, 53)));
        }
    }
    assert_eq!(kernel.programs.counters().unwrap()["chosen_for_process"], 2);
}

#[test]
fn processes_of_the_node_reach_node_ports() {
    let Some(object) = object("processes_of_the_node_reach_node_ports") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start_sockets(&object, bpffs.path());
    let port = |family, protocol| Place::NodePort(family, 30_080, protocol);
    serve(
        &mut kernel,
        &[
            (port(Family::V4, Protocol::Tcp), to(&[b(8080)])),
            (port(Family::V6, Protocol::Tcp), to(&[at(v6_of("b"), 8080)])),
            (port(Family::V4, Protocol::Udp), to(&[b(5353)])),
        ],
    );
    let node: IpAddr = NODE.parse().unwrap();
    let own = [node, NODE_V6.into(), Ipv4Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()];
    for address in own {
        assert!(is_answered(at(address, 30_080)), "{address}");
    }
    assert_eq!(ask(&datagrams(at(node, 30_080)), at(node, 30_080)), Ok(at(node, 30_080)));
    // The port of another address, and another port of the node.
    assert!(!is_answered(at([10, 0, 0, 2], 30_080)));
    assert_eq!(connected(at(node, 30_081)).err(), Some(ErrorKind::ConnectionRefused));
    // A process of the node that listens at another port is reached.
    let listener = std::net::TcpListener::bind((node, 30_082)).unwrap();
    assert!(connected(listener.local_addr().unwrap()).is_ok());
}

#[test]
fn processes_of_the_node_are_refused_without_endpoints() {
    let Some(object) = object("processes_of_the_node_are_refused_without_endpoints") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start_sockets(&object, bpffs.path());
    let local = IpAddr::from([172, 20, 0, 2]);
    serve(
        &mut kernel,
        &[
            (tcp(VIP), Choice::NoEndpoints),
            (udp(VIP), Choice::NoEndpoints),
            (Place::OtherPorts(VIP), Choice::NoSuchPort),
            (Place::OtherPorts(vip_v6()), Choice::NoSuchPort),
            (tcp(local), Choice::NoLocalEndpoints),
        ],
    );
    for refused in [at(VIP, 80), at(VIP, 81), at(vip_v6(), 80)] {
        assert_eq!(connected(refused).err(), Some(ErrorKind::ConnectionRefused), "{refused}");
    }
    for refused in [at(VIP, 53), at(VIP, 54), at(vip_v6(), 53)] {
        let answer = ask(&datagrams(refused), refused);
        assert_eq!(answer, Err(ErrorKind::ConnectionRefused), "{refused}");
    }
    assert_eq!(connected(at(local, 80)).err(), Some(ErrorKind::HostUnreachable));
    let counters = kernel.programs.counters().unwrap();
    assert_eq!((counters["no_endpoints"], counters["no_such_port"]), (2, 4), "{counters:?}");
    assert_eq!(counters["no_local_endpoints"], 1, "{counters:?}");
}

#[test]
fn a_service_refuses_processes_if_its_source_ranges_exclude_the_node() {
    let name = "a_service_refuses_processes_if_its_source_ranges_exclude_the_node";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start_sockets(&object, bpffs.path());
    kernel.own.node = [NODE.parse::<IpAddr>().unwrap(), NODE_V6.into()].map(Into::into);
    write(&mut kernel, &[]);
    let mut with = |ranges: &[&str]| {
        let frontends = [
            for_sources(tcp(VIP), &to(&[b(8080)]), ranges),
            for_sources(tcp(vip_v6()), &to(&[at(v6_of("b"), 8080)]), ranges),
            for_sources(udp(VIP), &to(&[b(5353)]), ranges),
            for_sources(udp(vip_v6()), &to(&[at(v6_of("b"), 5353)]), ranges),
        ];
        serve_all(&mut kernel, &frontends.into());
    };
    let node_v4 = format!("{NODE}/32");
    let node_v6 = format!("{NODE_V6}/128");
    with(&[&node_v4, &node_v6]);
    let open = [at(VIP, 80), at(vip_v6(), 80)].map(|to| connected(to).unwrap());
    assert!(open.iter().all(answers));
    let sockets = [at(VIP, 53), at(vip_v6(), 53)].map(|to| (datagrams(to), to));
    for (socket, to) in &sockets {
        assert_eq!(ask(socket, *to), Ok(*to));
    }
    // Each family by itself, and the addresses of pods.
    for (ranges, is_served) in [
        (vec![node_v4.as_str(), "::/1"], [true, false]),
        (vec!["192.168.0.0/32", &node_v6], [false, true]),
        (vec!["10.0.0.0/8", "fd00:1::/32"], [false, false]),
        (vec![], [false, false]),
    ] {
        with(&ranges);
        for (vip, is_served) in [VIP, vip_v6()].into_iter().zip(is_served) {
            let expected = (!is_served).then_some(ErrorKind::HostUnreachable);
            assert_eq!(connected(at(vip, 80)).err(), expected, "{vip} {ranges:?}");
            let to = at(vip, 53);
            assert_eq!(ask(&datagrams(to), to).err(), expected, "{to} {ranges:?}");
        }
        assert!(open.iter().all(answers), "an open connection stays");
    }
    let counters = kernel.programs.counters().unwrap();
    assert_eq!((counters["source_range"], counters["no_backend"]), (12, 0), "{counters:?}");
}

#[test]
fn the_programs_of_sockets_act_in_the_namespace_of_the_node_only() {
    let Some(object) = object("the_programs_of_sockets_act_in_the_namespace_of_the_node_only")
    else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start_sockets(&object, bpffs.path());
    let outside = at([10, 9, 0, 1], 80);
    serve(&mut kernel, &[(tcp(VIP), to(&[b(8080)])), (tcp(outside.ip()), Choice::NoEndpoints)]);
    assert!(is_answered(at(VIP, 80)));
    // No program is at the link of this namespace, whose process is in the same cgroup.
    assert!(in_pod("out", || connected(at(VIP, 80)).is_err()));
    assert!(in_pod("out", move || connected(outside).is_err()));
    assert_eq!(kernel.programs.counters().unwrap()["no_endpoints"], 0);
}

#[test]
fn sockets_keep_their_services_while_the_programs_are_replaced() {
    let Some(object) = object("sockets_keep_their_services_while_the_programs_are_replaced") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start_sockets(&object, bpffs.path());
    serve(&mut kernel, &[(tcp(VIP), to(&[b(8080)])), (udp(VIP), to(&[b(5353)]))]);
    let open = connected(at(VIP, 80)).unwrap();
    let socket = datagrams(at(VIP, 53));
    assert_eq!(ask(&socket, at(VIP, 53)), Ok(at(VIP, 53)));
    let connections = Connections { services: true, ..connections() };
    for _ in 0..10 {
        let mut next =
            Programs::load(&object, Some(&bpffs.path().join("maps")), &connections).unwrap();
        assert_eq!(next.attach_sockets(Path::new(CGROUP)).unwrap(), 8);
        assert_eq!(ask(&socket, at(VIP, 53)), Ok(at(VIP, 53)));
        assert_eq!(open.peer_addr().unwrap(), at(VIP, 80));
        assert!(is_answered(at(VIP, 80)) && answers(&open));
    }
}

#[test]
fn a_socket_without_a_peer_leaves_a_removed_backend() {
    let Some(object) = object("a_socket_without_a_peer_leaves_a_removed_backend") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start_sockets(&object, bpffs.path());
    let (first, second) = (b(5353), at([10, 0, 0, 1], 5353));
    serve(&mut kernel, &[(udp(VIP), to(&[first]))]);
    let socket = datagrams(at(VIP, 53));
    assert_eq!(ask(&socket, at(VIP, 53)), Ok(at(VIP, 53)));
    // Pod b answers no longer.
    ip("route replace blackhole 10.0.0.2/32");
    serve(&mut kernel, &[(udp(VIP), to(&[second]))]);
    assert_eq!(ask(&socket, at(VIP, 53)), Ok(at(VIP, 53)), "the next datagram has the new backend");
}
