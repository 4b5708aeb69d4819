//! Connections of one port of a pod to two addresses of Services that have the same backend.

use crate::{
    fast::reach,
    object,
    outside::{open, v6},
    service::{VIP, any, at, bound, serve, to, vip_v6},
    traffic::{SILENCE, answers, in_pod, v6_of},
};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket, sockopt,
};
use service_core::{Choice, Place};
use service_objects::Protocol;
use std::{
    collections::BTreeSet,
    io::ErrorKind,
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    os::fd::{AsRawFd as _, OwnedFd},
    time::Duration,
};

/// The port of the pod.
const PORT: u16 = 45_000;
/// No process has it.
const CLOSED: u16 = 9;
/// The answers of a server to a client that has ended.
const TRIES: u32 = 20;
/// The time for which a datagram may be under way.
const PATIENCE: Duration = Duration::from_secs(20);

/// Two addresses of each family.
fn addresses() -> [[IpAddr; 2]; 2] {
    let other = IpAddr::from([0xfd00, 2, 0, 0, 0, 0, 0, 2]);
    [[VIP, [172, 20, 0, 2].into()], [vip_v6(), other]]
}

/// A backend of each family: another pod, a host beyond the node, and the client itself.
fn backends() -> [[IpAddr; 2]; 3] {
    [
        [[10, 0, 0, 2].into(), v6_of("b").into()],
        [[10, 9, 0, 2].into(), v6(9, 2)],
        [[10, 0, 0, 1].into(), v6_of("a").into()],
    ]
}

/// Both addresses of each family lead to its backend: TCP to port 8080, UDP to this port.
fn frontends(backends: [IpAddr; 2], port: u16) -> Vec<(Place, Choice)> {
    let mut frontends = Vec::new();
    for (addresses, backend) in addresses().into_iter().zip(backends) {
        for address in addresses {
            frontends.extend([
                (Place::Port(address, 80, Protocol::Tcp), to(&[at(backend, 8080)])),
                (Place::Port(address, 53, Protocol::Udp), to(&[at(backend, port)])),
            ]);
        }
    }
    frontends
}

/// A connected socket of pod a at this port. Several sockets have the same port.
pub(crate) fn connected(kind: SockType, port: u16, to: SocketAddr) -> OwnedFd {
    in_pod("a", move || {
        let family = if to.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
        let socket = socket(family, kind, SockFlag::SOCK_CLOEXEC, None).unwrap();
        setsockopt(&socket, sockopt::ReuseAddr, &true).unwrap();
        bind(socket.as_raw_fd(), &SockaddrStorage::from(any(to, port))).unwrap();
        connect(socket.as_raw_fd(), &SockaddrStorage::from(to)).unwrap();
        socket
    })
}

/// A connected socket for datagrams.
fn client(to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::from(connected(SockType::Datagram, PORT, to));
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket
}

/// Sends a datagram from the port to each address at once. Returns the senders of the answers.
fn asked(to: &[SocketAddr]) -> BTreeSet<SocketAddr> {
    let from = any(to[0], PORT);
    let socket = in_pod("a", move || bound(from));
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    for address in to {
        socket.send_to(&[7], address).unwrap();
    }
    to.iter().filter_map(|_| Some(socket.recv_from(&mut [0; 64]).ok()?.1)).collect()
}

#[test]
fn two_addresses_of_one_backend_have_connections_of_their_own() {
    let test = "two_addresses_of_one_backend_have_connections_of_their_own";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    // The ends of a closed connection stay in use for a while.
    let mut ports = PORT..;
    for is_fast in [false, true] {
        if is_fast {
            reach(&mut kernel);
        }
        for backends in backends() {
            serve(&mut kernel, &frontends(backends, 5353));
            for addresses in addresses() {
                let port = ports.next().unwrap();
                let web = addresses.map(|address| at(address, 80));
                let opened = web.map(|to| TcpStream::from(connected(SockType::Stream, port, to)));
                opened.iter().for_each(|of| of.set_read_timeout(Some(SILENCE)).unwrap());
                for _ in 0..3 {
                    assert!(opened.iter().all(answers), "{web:?} {backends:?} {is_fast}");
                }
                let dns = addresses.map(|address| at(address, 53));
                for _ in 0..3 {
                    assert_eq!(asked(&dns), dns.into(), "{backends:?} {is_fast}");
                }
            }
        }
    }
    let counters = kernel.programs.counters().unwrap();
    assert_eq!(counters["no_backend"], 0, "{counters:?}");
}

#[test]
fn errors_reach_the_connection_that_they_are_about() {
    let test = "errors_reach_the_connection_that_they_are_about";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    // ICMP errors of the pods have no limit.
    for pod in ["a", "b", "out"] {
        in_pod(pod, || {
            std::fs::write("/proc/sys/net/ipv4/icmp_ratelimit", "0").unwrap();
            std::fs::write("/proc/sys/net/ipv6/icmp/ratelimit", "0").unwrap();
        });
    }
    for (namespace, backends) in ["b", "out", "a"].into_iter().zip(backends()) {
        serve(&mut kernel, &frontends(backends, CLOSED));
        for (addresses, backend) in addresses().into_iter().zip(backends) {
            let dns = addresses.map(|address| at(address, 53));
            let clients = dns.map(client);
            // No process has the port of the backend.
            for client in clients.iter().rev() {
                client.send(&[7]).unwrap();
                let error = client.recv(&mut [0]).map_err(|error| error.kind());
                assert_eq!(error, Err(ErrorKind::ConnectionRefused), "{dns:?} {backend}");
            }
            // The clients end before the answers.
            let server = in_pod(namespace, move || UdpSocket::bind(at(backend, CLOSED)).unwrap());
            server.set_read_timeout(Some(PATIENCE)).unwrap();
            let from = clients.map(|client| {
                client.send(&[7]).unwrap();
                server.recv_from(&mut [0]).unwrap().1
            });
            assert_ne!(from[0], from[1], "the connections have the same ends");
            for from in from {
                let server = server.try_clone().unwrap();
                let is_refused = in_pod(namespace, move || {
                    server.connect(from).unwrap();
                    server.set_read_timeout(Some(SILENCE)).unwrap();
                    // A process that another test starts may have the client's socket until its `exec`.
                    (0..TRIES).any(|_| {
                        server.send(&[7]).unwrap();
                        let error = server.recv(&mut [0]).map_err(|error| error.kind());
                        error == Err(ErrorKind::ConnectionRefused)
                    })
                });
                assert!(is_refused, "{from} {backend}");
            }
        }
    }
    let counters = kernel.programs.counters().unwrap();
    assert_eq!((counters["no_backend"], counters["stray_error"]), (0, 0), "{counters:?}");
}
