//! Connections that are older than the enforcement of their pods.

use crate::{
    nat::{listen, only_8080, only_a, outside, vip},
    object,
    traffic::{PODS, SILENCE, connect_to, in_pod, node, snapshot, stream},
};
use config_model::{HostEnd, HostLink};
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Programs};
use datapath_node::{Desired, Endpoint, Endpoints, LocalPod, PodId};
use nix::net::if_::if_nametoindex;
use serde_json::Value;
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::Arc,
};

/// The client's end and the server's end of a connection.
struct Connection {
    name: &'static str,
    client: TcpStream,
    server: TcpStream,
}

impl Connection {
    fn open(name: &'static str, client: TcpStream, at: &TcpListener) -> Self {
        let (server, _) = at.accept().unwrap();
        server.set_read_timeout(Some(SILENCE)).unwrap();
        let connection = Self { name, client, server };
        assert!(connection.answers() && connection.asks(), "{name} is open");
        connection
    }

    /// True if a byte of the client arrives.
    fn asks(&self) -> bool {
        passes(&self.client, &self.server)
    }

    /// True if a byte of the server arrives.
    fn answers(&self) -> bool {
        passes(&self.server, &self.client)
    }
}

fn passes(mut from: &TcpStream, mut to: &TcpStream) -> bool {
    from.write_all(&[7]).unwrap();
    match to.read(&mut [0]) {
        Ok(count) => count == 1,
        Err(error) if error.kind() == ErrorKind::WouldBlock => false,
        Err(error) => panic!("{error}"),
    }
}

/// The pods with their links.
fn endpoints() -> Endpoints {
    let one = |(pod, address): (&str, &str)| {
        let id = PodId { uid: pod.to_owned(), namespace: "x".to_owned(), name: pod.to_owned() };
        let addresses = [address.parse().unwrap()].into();
        let link = HostLink {
            name: pod.to_owned(),
            ifindex: if_nametoindex(pod).unwrap(),
            mac: None,
            addresses,
            number: 0,
            table: None,
            mark: None,
            eni: None,
            host_end: HostEnd::Routed,
        };
        let addresses = link.addresses.clone();
        let pod = LocalPod { pod: id, container: String::new(), addresses };
        (pod.pod.uid.clone(), Arc::new(Endpoint { pod, links: vec![link] }))
    };
    PODS.into_iter().map(one).collect()
}

/// Puts the policies into force in a full pass, as a process that has just started.
fn enforce(backend: &mut EbpfBackend, revision: u64, policies: &[Value]) {
    let desired = Desired {
        revision,
        state: Arc::new(snapshot(policies)),
        endpoints: Arc::new(endpoints()),
        services: Arc::default(),
        changed: None,
    };
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let applied = runtime.block_on(backend.apply(&desired));
    let all = PODS.map(|(pod, _)| (pod.to_owned(), Ok(())));
    assert_eq!(applied.endpoints, all.into(), "{applied:?}");
}

#[test]
fn connections_that_are_older_than_their_enforcement_are_judged_in_their_direction() {
    let name = "connections_that_are_older_than_their_enforcement_are_judged_in_their_direction";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    outside();
    let [b, b_other] =
        [8080, 8081].map(|port| in_pod("b", move || listen(&format!("0.0.0.0:{port}"))));
    let a = in_pod("a", || listen("0.0.0.0:8080"));
    let out = in_pod("out", || listen("0.0.0.0:8080"));
    let from_a = |at| connect_to(at).unwrap();
    let from_b =
        |at| in_pod("b", move || stream(TcpStream::connect_timeout(&at, SILENCE))).unwrap();
    let from_out =
        |at| in_pod("out", move || stream(TcpStream::connect_timeout(&at, SILENCE))).unwrap();
    let from_node = |at| stream(TcpStream::connect_timeout(&at, SILENCE)).unwrap();
    let at_a = SocketAddr::from(([10, 0, 0, 1], 8080));
    let at_b = |port: u16| SocketAddr::from(([10, 0, 0, 2], port));
    let port_of_node = SocketAddr::from(([10, 9, 0, 1], 30080));

    // The kernel does not have the programs yet.
    let stay = [
        Connection::open("a to b", from_a(at_b(8080)), &b),
        Connection::open("a to b by a virtual address", from_a(vip(1)), &b),
        // A little-endian machine has the ends in the order opposite to that of the network.
        Connection::open("a to b by a low virtual address", from_a(vip(0)), &b),
        Connection::open("a to b by a virtual address, masqueraded", from_a(vip(4)), &b),
        Connection::open("a to the outside by a virtual address", from_a(vip(2)), &out),
        Connection::open("a to itself by a virtual address", from_a(vip(5)), &a),
        Connection::open("the node to a", from_node(at_a), &a),
    ];
    let end = [
        Connection::open("a to another port of b", from_a(at_b(8081)), &b_other),
        Connection::open("b to a", from_b(at_a), &a),
        Connection::open("the outside to b by a port of the node", from_out(port_of_node), &b),
        Connection::open("the outside to a", from_out(at_a), &a),
    ];

    // Only a may connect to b and to the outside, and only to their ports 8080.
    let policies = [only_8080(8080), only_a()];
    let pins = bpffs.path().join("maps");
    let programs = Programs::load(&object, Some(&pins)).unwrap();
    let mut backend = EbpfBackend::over(programs, &pins).unwrap();
    enforce(&mut backend, 1, &policies);
    for connection in &stay {
        assert!(connection.answers(), "{}: the server's bytes do not arrive", connection.name);
        assert!(connection.asks(), "{}: the client's bytes do not arrive", connection.name);
    }
    for connection in &end {
        assert!(!connection.answers(), "{}: the server's bytes arrive", connection.name);
        assert!(!connection.asks(), "{}: the client's bytes arrive", connection.name);
    }
    assert!(stream(in_pod("b", move || TcpStream::connect_timeout(&at_a, SILENCE))).is_none());

    // They are connections like others: a change of policies ends them, and the next process leaves them as they are.
    let mut backend = EbpfBackend::over(backend.into_programs(), &pins).unwrap();
    enforce(&mut backend, 1, &policies);
    assert!(stay.iter().all(|connection| connection.answers() && connection.asks()));
    enforce(&mut backend, 2, &[only_8080(8081), only_a()]);
    let [direct, service, ..] = &stay;
    assert!([direct, service].iter().all(|connection| !connection.answers()));
}
