//! The connected UDP sockets that the real kernel lists and closes, in a new namespace.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::print_stdout, reason = "a lane reads the skips of its tests")]

use datapath_sockets::{Connected, DiagError, Listener, Sockets, Transport};
use nix::{
    sched::{CloneFlags, unshare},
    unistd::Uid,
};
use std::{
    io::ErrorKind,
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::Command,
    thread,
    time::Duration,
};

const PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 5353);

/// Runs `body` on a thread that is alone in a new namespace. Skips the test if the kernel or the machine lacks something.
fn in_namespace(test: &str, body: impl FnOnce() + Send + 'static) {
    if !Uid::effective().is_root() {
        println!("SKIP {test}: needs root");
        return;
    }
    let test = test.to_owned();
    let body = move || {
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap().success());
        let socket = connected("0.0.0.0:0", PEER);
        match listed().map(|found| Sockets::open().unwrap().close(&found[0])) {
            Err(DiagError::NoList) | Ok(Err(DiagError::NoClose)) => {
                println!("SKIP {test}: the kernel closes no UDP sockets");
                return;
            }
            closed => assert!(closed.unwrap().unwrap()),
        }
        drop(socket);
        body();
    };
    if let Err(panic) = thread::spawn(body).join() {
        std::panic::resume_unwind(panic);
    }
}

fn connected(from: &str, to: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(from).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.connect(to).unwrap();
    socket
}

/// The sockets of the namespace, by their local ports.
fn listed() -> Result<Vec<Connected>, DiagError> {
    let mut found = Sockets::open()?.connected(|_| true)?;
    found.sort_by_key(|socket| socket.local.port());
    Ok(found)
}

#[test]
fn connected_sockets_of_both_families_are_listed_and_closed() {
    in_namespace("connected_sockets_of_both_families_are_listed_and_closed", || {
        let mapped = SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), PEER.port()));
        let v6 = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, PEER.port()));
        let sockets = [
            connected("0.0.0.0:4001", PEER),
            connected("[::]:4002", mapped),
            connected("[::]:4003", v6),
        ];
        let _without_peer = UdpSocket::bind("0.0.0.0:4004").unwrap();
        let found = listed().unwrap();
        let ends = found.iter().map(|socket| (socket.local.port(), socket.peer));
        assert_eq!(ends.collect::<Vec<_>>(), [(4001, PEER), (4002, mapped), (4003, v6)]);
        assert_eq!(found[1].canonical_peer(), PEER);
        let mut kernel = Sockets::open().unwrap();
        for socket in &found {
            assert!(kernel.close(socket).unwrap(), "{socket:?}");
        }
        for socket in &sockets {
            let error = socket.recv(&mut [0]).map_err(|error| error.kind());
            assert_eq!(error, Err(ErrorKind::ConnectionAborted));
        }
        assert_eq!(listed().unwrap(), []);
        // The same socket connects again, with the same cookie.
        sockets[0].connect(PEER).unwrap();
        let again = listed().unwrap();
        assert_eq!(again.iter().map(|socket| socket.cookie).collect::<Vec<_>>(), [found[0].cookie]);
    });
}

#[test]
fn a_socket_with_another_cookie_or_another_peer_stays_open() {
    in_namespace("a_socket_with_another_cookie_or_another_peer_stays_open", || {
        let socket = connected("0.0.0.0:4001", PEER);
        let found = listed().unwrap()[0];
        let mut kernel = Sockets::open().unwrap();
        assert!(!kernel.close(&Connected { cookie: found.cookie + 1, ..found }).unwrap());
        let other = SocketAddr::new(PEER.ip(), 5354);
        socket.connect(other).unwrap();
        assert!(!kernel.close(&found).unwrap());
        assert_eq!(socket.peer_addr().unwrap(), other);
    });
}

#[test]
fn hundreds_of_sockets_are_one_list() {
    in_namespace("hundreds_of_sockets_are_one_list", || {
        // Each socket is an open file, of which a process can have 1024 by default.
        let sockets: Vec<UdpSocket> = (0..700).map(|_| connected("0.0.0.0:0", PEER)).collect();
        assert_eq!(listed().unwrap().len(), sockets.len());
    });
}

#[test]
fn sockets_that_wait_for_any_peer_are_listed() {
    in_namespace("sockets_that_wait_for_any_peer_are_listed", || {
        let ends = ["0.0.0.0:61500", "[::1]:61501"];
        let _tcp = ends.map(|at| TcpListener::bind(at).unwrap());
        let _udp = UdpSocket::bind("127.0.0.1:61502").unwrap();
        let _other = TcpListener::bind("127.0.0.1:8080").unwrap();
        let _with_peer = connected("0.0.0.0:61503", PEER);
        let _client = TcpStream::connect("127.0.0.1:61500").unwrap();
        let found = Sockets::open().unwrap().listeners(|local| local.port() >= 61_000);
        let mut found = found.unwrap();
        found.sort_unstable();
        let expected = [
            (Transport::Tcp, "0.0.0.0:61500"),
            (Transport::Tcp, "[::1]:61501"),
            (Transport::Udp, "127.0.0.1:61502"),
        ];
        let expected =
            expected.map(|(transport, at)| Listener { transport, local: at.parse().unwrap() });
        assert_eq!(found, expected);
    });
}
