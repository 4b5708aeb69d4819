//! Connections that are older than the enforcement of their pods.

use crate::{
    connections,
    nat::{listen, not_to_node, only_8080, only_a, outside, policy, vip},
    object,
    traffic::{PODS, SILENCE, connect_to, in_pod, node, snapshot, stream},
};
use config_model::{HostEnd, HostLink, Span};
use config_settings::Connections;
use datapath_backend::Backend as _;
use datapath_ebpf::{EbpfBackend, Programs};
use datapath_node::{Desired, Endpoint, Endpoints, LocalPod, PodId};
use nix::net::if_::if_nametoindex;
use serde_json::{Value, json};
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, UdpSocket},
    sync::Arc,
    thread,
    time::{Duration, Instant},
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

    /// Fails unless bytes arrive in both directions, however busy the machine is.
    fn must_continue(&self) {
        let name = self.name;
        let wait = |time| {
            for end in [&self.client, &self.server] {
                end.set_read_timeout(Some(time)).unwrap();
            }
        };
        wait(PATIENCE);
        assert!(self.answers(), "{name}: the server's bytes do not arrive");
        assert!(self.asks(), "{name}: the client's bytes do not arrive");
        wait(SILENCE);
    }
}

/// The time for which a packet may be under way.
const PATIENCE: Duration = Duration::from_secs(20);

fn passes(mut from: &TcpStream, mut to: &TcpStream) -> bool {
    from.write_all(&[7]).unwrap();
    loop {
        match to.read(&mut [0]) {
            Ok(count) => return count == 1,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return false,
            // A read with a limit of time is not continued after a signal.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => panic!("{error}"),
        }
    }
}

/// The pods with their links. The container is that of a pod that the plugin has reported, or empty.
pub(crate) fn endpoints(container: &str) -> Endpoints {
    endpoints_at(&PODS, container, str::to_owned)
}

/// These pods with their links, whose names follow from those of the pods.
pub(crate) fn endpoints_at(
    pods: &[(&str, &str)],
    container: &str,
    link: impl Fn(&str) -> String,
) -> Endpoints {
    let one = |&(pod, address): &(&str, &str)| {
        let name = link(pod);
        let id = PodId { uid: pod.to_owned(), namespace: "x".to_owned(), name: pod.to_owned() };
        let addresses = [address.parse().unwrap()].into();
        let link = HostLink {
            ifindex: if_nametoindex(name.as_str()).unwrap(),
            name,
            mac: None,
            addresses,
            number: 0,
            table: None,
            mark: None,
            eni: None,
            host_end: HostEnd::Routed,
        };
        let addresses = link.addresses.clone();
        let pod = LocalPod { pod: id, container: container.to_owned(), addresses };
        (pod.pod.uid.clone(), Arc::new(Endpoint { pod, links: vec![link] }))
    };
    pods.iter().map(one).collect()
}

/// The state with these policies, for a full pass.
pub(crate) fn desired(revision: u64, policies: &[Value]) -> Desired {
    desired_for(revision, policies, endpoints(""))
}

pub(crate) fn desired_for(revision: u64, policies: &[Value], endpoints: Endpoints) -> Desired {
    Desired {
        revision,
        state: Arc::new(snapshot(policies)),
        node: Arc::default(),
        endpoints: Arc::new(endpoints),
        services: Arc::default(),
        changed: None,
    }
}

/// Puts the policies into force in a full pass, as a process that has just started.
pub(crate) fn enforce(backend: &mut EbpfBackend, revision: u64, policies: &[Value]) {
    enforce_for(backend, revision, policies, endpoints(""));
}

/// The same where the links have other names.
pub(crate) fn enforce_at(
    backend: &mut EbpfBackend,
    revision: u64,
    policies: &[Value],
    link: impl Fn(&str) -> String,
) {
    enforce_for(backend, revision, policies, endpoints_at(&PODS, "", link));
}

fn enforce_for(backend: &mut EbpfBackend, revision: u64, policies: &[Value], endpoints: Endpoints) {
    let desired = desired_for(revision, policies, endpoints);
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().build().unwrap();
    let applied = runtime.block_on(backend.apply(&desired));
    let all = PODS.map(|(pod, _)| (pod.to_owned(), Ok(())));
    assert_eq!(*applied.endpoints, all.into(), "{applied:?}");
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
    let programs = Programs::load(&object, Some(&pins), &connections()).unwrap();
    let mut backend = EbpfBackend::over(programs, &pins, connections()).unwrap();
    enforce(&mut backend, 1, &policies);
    stay.iter().for_each(Connection::must_continue);
    for connection in &end {
        assert!(!connection.answers(), "{}: the server's bytes arrive", connection.name);
        assert!(!connection.asks(), "{}: the client's bytes arrive", connection.name);
    }
    assert!(stream(in_pod("b", move || TcpStream::connect_timeout(&at_a, SILENCE))).is_none());

    // They are connections like others: a change of policies ends them, and the next process leaves them as they are.
    let mut backend = EbpfBackend::over(backend.into_programs(), &pins, connections()).unwrap();
    enforce(&mut backend, 1, &policies);
    stay.iter().for_each(Connection::must_continue);
    enforce(&mut backend, 2, &[only_8080(8081), only_a()]);
    let [direct, service, ..] = &stay;
    assert!([direct, service].iter().all(|connection| !connection.answers()));
}

/// Pod a may send to ports 8080 and 5353 of b only.
pub(crate) fn only_to_b() -> Value {
    policy(
        "a",
        json!({
            "podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Ingress", "Egress"],
            "egress": [{
                "to": [{"podSelector": {"matchLabels": {"app": "b"}}}],
                "ports": [{"port": 8080}, {"port": 5353, "protocol": "UDP"}],
            }],
        }),
    )
}

/// The connections of two pods before their enforcement, on a node whose kernel tracks none.
struct Untracked {
    /// Policies allow its direction.
    allowed: Connection,
    /// Policies allow its direction, and it is idle.
    idle: Connection,
    from_node: Connection,
    denied: [Connection; 2],
    /// Of b, connected to `receiver`.
    answering: UdpSocket,
    /// As `answering`, from a port to which a may not send.
    asking: UdpSocket,
    receiver: UdpSocket,
}

fn untracked() -> Untracked {
    let [b, b_other] =
        [8080, 8081].map(|port| in_pod("b", move || listen(&format!("0.0.0.0:{port}"))));
    let a = in_pod("a", || listen("0.0.0.0:8080"));
    let at_a = SocketAddr::from(([10, 0, 0, 1], 8080));
    let at_b = |port: u16| SocketAddr::from(([10, 0, 0, 2], port));
    let from_a = |at| connect_to(at).unwrap();
    let from_b = in_pod("b", move || stream(TcpStream::connect_timeout(&at_a, SILENCE)));
    let denied = Connection::open("b to a", from_b.unwrap(), &a);
    let from_node = stream(TcpStream::connect_timeout(&at_a, SILENCE)).unwrap();
    let receiver = in_pod("a", || UdpSocket::bind("0.0.0.0:4000").unwrap());
    receiver.set_read_timeout(Some(SILENCE)).unwrap();
    let [answering, asking] = [5353, 6000].map(|port: u16| {
        let socket = in_pod("b", move || UdpSocket::bind(("0.0.0.0", port)).unwrap());
        socket.connect(("10.0.0.1", 4000)).unwrap();
        socket
    });
    let untracked = Untracked {
        allowed: Connection::open("a to b", from_a(at_b(8080)), &b),
        idle: Connection::open("a to b, idle", from_a(at_b(8080)), &b),
        from_node: Connection::open("the node to a", from_node, &a),
        denied: [denied, Connection::open("a to another port of b", from_a(at_b(8081)), &b_other)],
        answering,
        asking,
        receiver,
    };
    // The kernel delays acknowledgments by up to 200 ms. The idle connection has none left after that.
    thread::sleep(SILENCE);
    untracked
}

impl Untracked {
    /// True if a datagram arrives.
    fn arrives(&self, from: &UdpSocket) -> bool {
        from.send(&[7]).unwrap();
        self.receiver.recv(&mut [0]).is_ok()
    }
}

/// A window is long enough for a few packets.
const WINDOW: Span = Span::seconds(6);

#[test]
fn where_the_kernel_tracks_no_connections_those_of_older_pods_continue() {
    let name = "where_the_kernel_tracks_no_connections_those_of_older_pods_continue";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    let untracked = untracked();
    let pins = bpffs.path().join("maps");
    let connections = Connections { untracked_window: WINDOW, ..connections() };
    let programs = Programs::load(&object, Some(&pins), &connections).unwrap();
    let mut backend = EbpfBackend::over(programs, &pins, connections).unwrap();
    let policies = [only_to_b(), only_a(), not_to_node()];
    enforce(&mut backend, 1, &policies);
    let end = Instant::now() + Duration::from_millis(WINDOW.0);

    // The server's packet comes first, and is an answer.
    assert!(untracked.allowed.answers() && untracked.allowed.asks());
    assert!(untracked.from_node.asks() && untracked.from_node.answers());
    assert!(untracked.arrives(&untracked.answering), "a may send to its port");
    assert!(!untracked.arrives(&untracked.asking), "a may not send to its port");
    for connection in &untracked.denied {
        assert!(!connection.answers() && !connection.asks(), "{}", connection.name);
    }
    let at_a = SocketAddr::from(([10, 0, 0, 1], 8080));
    let begun = in_pod("b", move || TcpStream::connect_timeout(&at_a, SILENCE));
    assert!(stream(begun).is_none(), "a first packet has its direction");
    let counted = backend.figures().packets["window"];
    assert!(counted >= 3, "{counted}");
    assert!(Instant::now() < end, "the packets were sent too late to show anything");

    // The next process does not open it again.
    let mut backend = EbpfBackend::over(backend.into_programs(), &pins, connections).unwrap();
    enforce(&mut backend, 1, &policies);
    // The clock of the programs is some milliseconds late.
    thread::sleep(end.saturating_duration_since(Instant::now()) + SILENCE);
    assert!(untracked.allowed.answers() && untracked.allowed.asks());
    assert!(untracked.from_node.asks() && untracked.from_node.answers());
    assert!(!untracked.idle.answers(), "it had no packet in the window");
    assert!(!untracked.arrives(&untracked.answering));
}

#[test]
fn a_pod_that_the_plugin_has_reported_has_no_window() {
    let name = "a_pod_that_the_plugin_has_reported_has_no_window";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    let untracked = untracked();
    let pins = bpffs.path().join("maps");
    let programs = Programs::load(&object, Some(&pins), &connections()).unwrap();
    let mut backend = EbpfBackend::over(programs, &pins, connections()).unwrap();
    enforce_for(&mut backend, 1, &[only_to_b(), only_a(), not_to_node()], endpoints("container"));
    assert!(!untracked.allowed.answers() && !untracked.from_node.answers());
    assert!(!untracked.arrives(&untracked.answering));
    assert_eq!(backend.figures().packets["window"], 0);
}
