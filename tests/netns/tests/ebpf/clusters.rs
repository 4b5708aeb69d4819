//! Random clusters on two nodes with the agent's backend. The naive evaluator of Services judges the connections of clients at
//! each place.
//!
//! The nodes are those of [`beyond`](crate::beyond). The clients are pods and processes of both nodes, and a host beyond them.

use crate::{
    beyond::{C, misplaced, on, place},
    existing::endpoints_at,
    object,
    outside::connect_by,
    service::{any, at, bound, exchange, exchange_with},
    serving::Agent,
    sockets::CGROUP,
    traffic::{NODE, PODS, SILENCE, ip, snapshot_of, v6_of},
};
use datapath_node::{Desired, NodeIdentity};
use nix::errno::Errno;
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use service_core::{Backend, Client as From, DropReason, NodeView, Packet, Route, World};
use service_objects::{ClientAffinity, Endpoint, Protocol, Service, Slice};
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, UdpSocket},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
    thread,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tests_service::{
    naive,
    scenario::{packets, random},
    text::{show_packet, show_route, show_world},
};

/// The environment variable with the seed of the first world.
const SEED: &str = "FERRULE_SEED";
/// Worlds with a backend for some client.
const WORLDS: usize = 15;
/// Most random worlds have none. Among so many are all kinds of routes for each client.
const SEEDS: usize = 4_000;
/// The packets of each kind of route that a client sends in a world.
const PACKETS: usize = 3;
/// The connections of a share, for each backend.
const CONNECTIONS: usize = 40;
/// With a mean of 40 a smaller count has a probability below 1e-11.
const FEWEST: usize = 5;
const AFFINE: usize = 10;
/// The time for an answer that has to come.
const PATIENCE: Duration = Duration::from_secs(20);

/// The ports of endpoints in random worlds.
const PORTS: [u16; 4] = [80, 443, 8_080, 30_080];
/// The port of processes of the first node. No Service has it, so no other node translates packets to it.
const OF_NODE: u16 = 8_080;
/// An endpoint beyond the nodes, which is a client too.
const BEYOND: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 1));
const BEYOND_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x99, 0, 0, 0, 0, 0, 1);
const HOST: [&str; 2] = ["10.90.0.1", "10.92.0.1"];
const HOST_V6: [&str; 2] = ["fd00:90::1", "fd00:92::1"];
/// The addresses of the first node at its second ENI.
const SECOND: &str = "10.91.0.1";
const SECOND_V6: &str = "fd00:91::1";
const NAMES: [&str; 2] = ["n1", "n2"];
const NAMESPACES: [Option<&str>; 2] = [None, Some("n2")];

/// The addresses of random worlds, and those of the fixture in their place.
const PLACES: [(&str, &str); 3] =
    [("10.0.0.1", HOST[0]), ("10.0.0.2", SECOND), ("fd10::1", HOST_V6[0])];
/// The same of source ranges: of both pods of the first node, of one of them, and of the host beyond the nodes.
const RANGES: [(&str, &str); 4] = [
    ("10.9.0.0/24", "10.0.0.0/24"),
    ("10.9.0.2/31", "10.0.0.2/31"),
    ("203.0.113.7/32", "203.0.113.1/32"),
    ("fd99::/64", "fd00:1::/64"),
];

fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// The address of the fixture.
fn placed(of: IpAddr) -> IpAddr {
    let text = of.to_string();
    match PLACES.into_iter().find(|(random, _)| *random == text) {
        Some((_, placed)) => address(placed),
        None => of,
    }
}

/// Places an endpoint in a pod, at the first node, or beyond the nodes. It is on the node that has its address.
fn place_endpoint(endpoint: &Endpoint, ports: &BTreeSet<u16>) -> Endpoint {
    let is_of_node = *ports == BTreeSet::from([OF_NODE]);
    let (at, node) = match endpoint.address.to_string().as_str() {
        "10.1.0.1" => (address(PODS[0].1), Some(0)),
        "10.1.0.2" => (address(PODS[1].1), Some(0)),
        "10.1.0.3" => (address(C.1), Some(1)),
        "10.1.0.4" if is_of_node => (address(HOST[0]), Some(0)),
        "10.1.0.4" => (BEYOND, None),
        "fd11::1" => (v6_of("a").into(), Some(0)),
        "fd11::2" => (v6_of("b").into(), Some(0)),
        "fd11::3" => (v6_of("c").into(), Some(1)),
        other => panic!("{other} has no place"),
    };
    let node = node.map(|number: usize| NAMES[number].to_owned());
    Endpoint { address: at, node, ..endpoint.clone() }
}

fn place_slice(slice: &Slice) -> Slice {
    let ports = slice.ports.iter().map(|port| port.port).collect();
    let endpoints = slice.endpoints.iter().map(|endpoint| place_endpoint(endpoint, &ports));
    Slice { endpoints: endpoints.collect(), ..slice.clone() }
}

fn place_service(service: &Service) -> Service {
    let mut service = service.clone();
    service.external_ips.iter_mut().for_each(|at| *at = placed(*at));
    service.ingress.iter_mut().for_each(|of| of.address = placed(of.address));
    for range in service.source_ranges.iter_mut().flatten() {
        let text = range.to_string();
        if let Some((_, placed)) = RANGES.into_iter().find(|(random, _)| *random == text) {
            *range = placed.parse().unwrap();
        }
    }
    // Longer than the test.
    service.affinity = service.affinity.map(|_| ClientAffinity { timeout_seconds: 86_400 });
    service
}

/// A random world as each node sees it.
fn worlds(seed: u64) -> [World; 2] {
    let World { node, services, slices } = random(seed).0;
    let services: BTreeMap<_, _> =
        services.into_iter().map(|(name, of)| (name, Arc::new(place_service(&of)))).collect();
    let slices: BTreeMap<_, _> =
        slices.into_iter().map(|(name, of)| (name, Arc::new(place_slice(&of)))).collect();
    let zones = [node.zone.clone(), Some("b".to_owned())];
    let addresses = [vec![NODE, HOST[0], SECOND, HOST_V6[0], SECOND_V6], vec![HOST[1], HOST_V6[1]]];
    [0, 1].map(|number| {
        let node = NodeView {
            name: NAMES[number].to_owned(),
            zone: zones[number].clone(),
            addresses: addresses[number].iter().map(|text| address(text)).collect(),
        };
        World { node, services: services.clone(), slices: slices.clone() }
    })
}

/// A client of Services.
struct Client {
    name: &'static str,
    namespace: Option<&'static str>,
    /// The node of the pod or process; `None` beyond the nodes.
    node: Option<usize>,
    is_process: bool,
    /// Of both families.
    addresses: [IpAddr; 2],
    /// A port is used once: a later connection from it may keep its backend.
    next_port: AtomicU16,
}

impl Client {
    fn all() -> Vec<Self> {
        let pod = |node, (name, v4)| Self {
            name,
            namespace: Some(name),
            node: Some(node),
            is_process: false,
            addresses: [address(v4), v6_of(name).into()],
            next_port: AtomicU16::new(FIRST_PORT),
        };
        let process = |node: usize| Self {
            name: ["a process of n1", "a process of n2"][node],
            namespace: NAMESPACES[node],
            is_process: true,
            addresses: [address(HOST[node]), address(HOST_V6[node])],
            ..pod(node, C)
        };
        let outside = Self {
            name: "a host beyond the nodes",
            namespace: Some("router"),
            node: None,
            addresses: [BEYOND, BEYOND_V6.into()],
            ..pod(0, C)
        };
        vec![pod(0, PODS[0]), pod(0, PODS[1]), process(0), process(1), pod(1, C), outside]
    }

    fn packet(&self, client: From, to: SocketAddr, protocol: Protocol) -> Packet {
        let source = self.addresses[usize::from(to.is_ipv6())];
        Packet { client, source, destination: to.ip(), port: to.port(), protocol }
    }

    /// The node that serves a packet, and the packet as it sees it. A node serves its own clients first. Then the node that
    /// receives the packet serves it.
    fn seen(
        &self,
        worlds: &[World; 2],
        to: SocketAddr,
        protocol: Protocol,
    ) -> Option<(usize, Packet)> {
        if let Some(node) = self.node {
            let packet = self.packet(From::Node, to, protocol);
            if naive::route(&worlds[node], &packet) != Route::NotService {
                return Some((node, packet));
            }
        }
        if to.ip() == address(NODE) {
            // It has no route from other nodes.
            return None;
        }
        let receiver = worlds.iter().position(|world| world.node.addresses.contains(&to.ip()));
        // The router leads virtual addresses to the first node.
        let receiver = receiver.or(self.node.is_none().then_some(0));
        let receiver = receiver.filter(|receiver| Some(*receiver) != self.node)?;
        Some((receiver, self.packet(From::Outside, to, protocol)))
    }
}

/// Behind the node ports.
const FIRST_PORT: u16 = 31_000;
/// Before the source ports of Services.
const LAST_PORT: u16 = 61_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Reached(Backend),
    Refused,
    Silent,
    Unreachable,
    Failed(ErrorKind),
}

impl Outcome {
    /// The server has sent its address.
    fn of_text(text: &str) -> Self {
        let at: SocketAddr = text.parse().unwrap();
        Self::Reached(Backend { address: at.ip(), port: at.port() })
    }

    fn of_error(error: ErrorKind) -> Self {
        let known = [
            (ErrorKind::ConnectionRefused, Self::Refused),
            (ErrorKind::WouldBlock, Self::Silent),
            (ErrorKind::HostUnreachable, Self::Unreachable),
        ];
        let known = known.into_iter().find(|(kind, _)| *kind == error);
        known.map_or(Self::Failed(error), |(_, outcome)| outcome)
    }

    /// True for what a client observes of a route.
    fn is_of(self, route: &Route, is_at_socket: bool) -> bool {
        match (route, self) {
            (Route::To(backends), Self::Reached(backend)) => backends.contains(&backend),
            (Route::Reject(_), of) => of == Self::Refused,
            (Route::Drop(_), of) if is_at_socket => of == Self::Unreachable,
            (Route::Drop(_), of) => of == Self::Silent,
            (Route::NotService, of) => !matches!(of, Self::Reached(_)),
            (Route::To(_), _) => false,
        }
    }
}

fn connect(from: SocketAddr, to: SocketAddr, patience: Duration) -> Outcome {
    let mut stream = match connect_by(from, to, patience) {
        Ok(stream) => stream,
        Err(Errno::EINPROGRESS) => return Outcome::Silent,
        Err(error) => return Outcome::of_error(std::io::Error::from(error).kind()),
    };
    assert_eq!(stream.peer_addr().unwrap(), to);
    let mut text = String::new();
    match stream.read_to_string(&mut text) {
        Ok(_) => Outcome::of_text(&text),
        Err(error) => Outcome::of_error(error.kind()),
    }
}

fn send(from: SocketAddr, to: SocketAddr, patience: Duration) -> Outcome {
    let socket = bound(from);
    socket.set_read_timeout(Some(patience)).unwrap();
    match exchange_with(&socket, to) {
        Ok((sender, text)) => {
            assert_eq!(sender, to, "the sender of the answer");
            Outcome::of_text(&text)
        }
        Err(error) => Outcome::of_error(error),
    }
}

fn send_connected(from: SocketAddr, to: SocketAddr, patience: Duration) -> Outcome {
    let socket = bound(from);
    if let Err(error) = socket.connect(to) {
        return Outcome::of_error(error.kind());
    }
    assert_eq!(socket.peer_addr().unwrap(), to);
    match exchange(&socket, patience) {
        Ok(text) => Outcome::of_text(&text),
        Err(error) => Outcome::of_error(error),
    }
}

/// Sends the address of each server to its clients, until the process ends.
fn serve() {
    let pod = |name, v4| (Some(name), vec![address(v4), v6_of(name).into()], PORTS.to_vec());
    let servers = [
        pod(PODS[0].0, PODS[0].1),
        pod(PODS[1].0, PODS[1].1),
        pod(C.0, C.1),
        (Some("router"), vec![BEYOND], PORTS.to_vec()),
        (None, vec![address(HOST[0])], vec![OF_NODE]),
    ];
    for (namespace, addresses, ports) in servers {
        let all = addresses.iter().flat_map(|of| ports.iter().map(|port| at(*of, *port)));
        for server in all {
            let (listener, socket) = on(namespace, move || {
                (TcpListener::bind(server).unwrap(), UdpSocket::bind(server).unwrap())
            });
            thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let _ = write!(stream, "{server}");
                }
            });
            thread::spawn(move || {
                while let Ok((_, from)) = socket.recv_from(&mut [0]) {
                    let _ = socket.send_to(server.to_string().as_bytes(), from);
                }
            });
        }
    }
}

/// The nodes with servers, and the ways to virtual addresses.
fn start(object: &Path, bpffs: &Path) -> [Agent; 2] {
    place(bpffs);
    for (family, net, via) in [
        ("-4", "172.20.0.0/24", HOST[0]),
        ("-4", "198.51.100.0/24", HOST[0]),
        ("-6", "fd20::/64", HOST_V6[0]),
        ("-6", "2001:db8::/64", HOST_V6[0]),
    ] {
        ip(&format!("-n router {family} route add {net} via {via} dev eni0"));
        // The node does not return a packet that is of no Service.
        ip(&format!("{family} route add unreachable {net}"));
    }
    ip(&format!("-n router addr add {BEYOND_V6}/128 dev lo nodad"));
    // The node answers by the link of its address.
    ip(&format!("rule add pref 1537 from {SECOND} lookup 2"));
    ip(&format!("-6 rule add pref 1537 from {SECOND_V6} lookup 2"));
    for (namespace, links) in
        [(None, vec!["eni0", "eni1", "a", "b"]), (Some("n2"), vec!["eni2", "c"])]
    {
        on(namespace, move || {
            for link in links {
                let mode = if link.starts_with("eni") { "2" } else { "1" };
                std::fs::write(format!("/proc/sys/net/ipv4/conf/{link}/rp_filter"), mode).unwrap();
            }
        });
    }
    serve();
    let (object, bpffs) = (object.to_owned(), bpffs.to_owned());
    [0, 1].map(|number: usize| {
        let (object, pins) = (object.clone(), bpffs.join(NAMES[number]).join("maps"));
        on(NAMESPACES[number], move || {
            let pods = if number == 0 { PODS.to_vec() } else { vec![C] };
            let node = [HOST[number], HOST_V6[number]];
            let desired = Desired {
                revision: 1,
                state: Arc::new(snapshot_of(&node, &pods, &[])),
                node: Arc::default(),
                endpoints: Arc::new(endpoints_at(&pods, "", str::to_owned)),
                services: Arc::default(),
                changed: None,
            };
            let agent = Agent::of(&object, &pins, desired);
            let mut agent = agent.with_sockets(Path::new(CGROUP));
            agent.apply();
            agent
        })
    })
}

/// Puts the Services of a world into force, as a change of the last ones.
fn put(mut agent: Agent, number: usize, world: &World) -> Agent {
    let world = world.clone();
    on(NAMESPACES[number], move || {
        let World { node, services, slices } = world;
        agent.desired.node = Arc::new(NodeIdentity { name: node.name, zone: node.zone });
        let failing = agent.change(|held, changes| {
            let earlier = std::mem::take(held);
            changes.services = earlier.services.keys().chain(services.keys()).cloned().collect();
            changes.slices = earlier.slices.keys().chain(slices.keys()).cloned().collect();
            held.services.extend(services);
            held.slices.extend(slices);
        });
        assert_eq!(failing, BTreeMap::new());
        agent
    })
}

/// The packets of a client to one destination.
struct Case<'a> {
    client: &'a Client,
    to: SocketAddr,
    protocol: Protocol,
    /// The node that decides, and the packet as it sees it; `None` if no node does.
    seen: Option<(&'a World, Packet)>,
    route: Route,
    is_affine: bool,
}

const KINDS: [&str; 7] = [
    "one backend",
    "shares",
    "affinity",
    "reject",
    "source range",
    "no local endpoints",
    "not a Service",
];

impl<'a> Case<'a> {
    fn new(client: &'a Client, worlds: &'a [World; 2], to: SocketAddr, protocol: Protocol) -> Self {
        let seen = client.seen(worlds, to, protocol).map(|(node, packet)| (&worlds[node], packet));
        let route = seen.map_or(Route::NotService, |(world, packet)| naive::route(world, &packet));
        let is_affine = seen.is_some_and(|(world, packet)| naive::is_affine(world, &packet));
        Self { client, to, protocol, seen, route, is_affine }
    }

    /// Some packets of a client, of each kind.
    fn draw(client: &'a Client, worlds: &'a [World; 2], rng: &mut TestRng) -> Vec<Self> {
        let all: BTreeSet<(SocketAddr, Protocol)> = worlds
            .iter()
            .flat_map(packets)
            .filter(|packet| packet.protocol != Protocol::Sctp)
            .filter(|packet| !packet.destination.is_loopback() || client.is_process)
            .map(|packet| (at(packet.destination, packet.port), packet.protocol))
            .collect();
        let cases = all.into_iter().map(|(to, protocol)| Self::new(client, worlds, to, protocol));
        let mut cases: Vec<_> = cases.map(|case| (rng.next_u64(), case)).collect();
        cases.sort_by_key(|(order, _)| *order);
        let mut left = KINDS.map(|kind| (kind, PACKETS));
        let is_drawn = |case: &Self| {
            let of_kind = left.iter_mut().find(|(kind, _)| *kind == case.kind());
            of_kind.is_some_and(|(_, left)| {
                let is_left = *left > 0;
                *left = left.saturating_sub(1);
                is_left
            })
        };
        cases.into_iter().map(|(_, case)| case).filter(is_drawn).collect()
    }

    fn kind(&self) -> &'static str {
        match &self.route {
            Route::To(backends) if backends.len() == 1 => "one backend",
            Route::To(_) if self.is_affine => "affinity",
            Route::To(_) => "shares",
            Route::Reject(_) => "reject",
            Route::Drop(DropReason::SourceRange) => "source range",
            Route::Drop(DropReason::NoLocalEndpoints) => "no local endpoints",
            Route::NotService => "not a Service",
        }
    }

    /// True if the node decides at a call of the process.
    fn is_at_socket(&self) -> bool {
        let is_own = |(_, packet): (&World, Packet)| packet.client == From::Node;
        self.client.is_process && self.seen.is_some_and(is_own)
    }

    /// Connects once, or sends a datagram. The answer has to come from the address that was asked for.
    fn ask(&self, patience: Duration) -> Outcome {
        let Self { client, to, protocol, .. } = *self;
        let port = client.next_port.fetch_add(1, Ordering::Relaxed);
        assert!((FIRST_PORT..LAST_PORT).contains(&port), "{} has no port left", client.name);
        let from = match client.is_process {
            true => any(to, port),
            false => at(client.addresses[usize::from(to.is_ipv6())], port),
        };
        // A process can send by a socket without a peer, which receives no errors of other nodes.
        let has_peer = !self.is_at_socket() || port.is_multiple_of(2);
        on(client.namespace, move || match (protocol, has_peer) {
            (Protocol::Tcp, _) => connect(from, to, patience),
            (_, false) => send(from, to, patience),
            (_, true) => send_connected(from, to, patience),
        })
    }

    /// Sends the packets.
    ///
    /// # Errors
    /// The difference from the reference.
    fn judge(&self) -> Result<(), String> {
        let Route::To(backends) = &self.route else {
            return self.expect(&self.ask(SILENCE));
        };
        let count = match self.kind() {
            "shares" => backends.len() * CONNECTIONS,
            "affinity" => AFFINE,
            _ => 1,
        };
        let mut reached = BTreeMap::<Backend, usize>::new();
        for _ in 0..count {
            let outcome = self.ask(PATIENCE);
            self.expect(&outcome)?;
            if let Outcome::Reached(backend) = outcome {
                *reached.entry(backend).or_default() += 1;
            }
        }
        let is_right = match self.kind() {
            "shares" => backends.iter().all(|of| reached.get(of).is_some_and(|of| *of >= FEWEST)),
            _ => reached.len() == 1,
        };
        is_right.then_some(()).ok_or_else(|| self.fault(&reached))
    }

    fn expect(&self, outcome: &Outcome) -> Result<(), String> {
        let is_right = outcome.is_of(&self.route, self.is_at_socket());
        is_right.then_some(()).ok_or_else(|| self.fault(outcome))
    }

    fn fault(&self, found: &dyn Debug) -> String {
        let Self { client, to, protocol, .. } = self;
        let (kind, route) = (self.kind(), show_route(&self.route));
        let seen = self.seen.map(|(world, packet)| show_world(world) + &show_packet(&packet));
        let seen = seen.unwrap_or_default();
        format!("{seen} = {route}\n  but {} at {to} {protocol} ({kind}): {found:?}", client.name)
    }
}

fn seed() -> u64 {
    match std::env::var(SEED) {
        Ok(text) => text.parse().unwrap(),
        Err(_) => SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs(),
    }
}

#[test]
fn random_clusters_are_served_as_the_reference_routes_their_packets() {
    let test = "random_clusters_are_served_as_the_reference_routes_their_packets";
    let Some(object) = object(test) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut agents = start(&object, bpffs.path());
    let clients = Client::all();
    let mut missing: BTreeSet<_> =
        clients.iter().flat_map(|client| KINDS.map(|kind| (client.name, kind))).collect();
    let mut left = WORLDS;
    for seed in (seed()..).take(SEEDS) {
        if left == 0 && missing.is_empty() {
            break;
        }
        let worlds = worlds(seed);
        let mut rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
        let cases: Vec<_> =
            clients.iter().flat_map(|client| Case::draw(client, &worlds, &mut rng)).collect();
        let has_backends = cases.iter().any(|case| matches!(case.route, Route::To(_)));
        let found = cases.iter().filter(|case| missing.remove(&(case.client.name, case.kind())));
        if found.count() == 0 && (left == 0 || !has_backends) {
            continue;
        }
        println!("{SEED}={seed}");
        left -= usize::from(has_backends && left > 0);
        let [one, two] = agents;
        agents = [put(one, 0, &worlds[0]), put(two, 1, &worlds[1])];
        let faults: Vec<String> = thread::scope(|scope| {
            let judges: Vec<_> = cases.iter().map(|case| scope.spawn(|| case.judge())).collect();
            judges.into_iter().filter_map(|judge| judge.join().unwrap().err()).collect()
        });
        assert!(faults.is_empty(), "{SEED}={seed}\n{}", faults.join("\n"));
        // Each packet leaves by the ENI of its source.
        assert_eq!(misplaced(), 0, "{SEED}={seed}\n{}", show_world(&worlds[0]));
    }
    assert!(missing.is_empty(), "no world has these: {missing:?}");
}
