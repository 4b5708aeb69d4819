//! SCTP: policies between two pods of a node, and Services.

use crate::{
    Kernel, object,
    outside::{CLIENT, FAR, NODE, OPEN, node_port, open, v6},
    service::{VIP, at, serve, serve_all, to, vip_v6},
    traffic::{SILENCE, answer, answers, attach, in_pod, ip, node, policy, v6_of, write},
};
use nix::{
    errno::Errno,
    sys::{
        socket::{
            AddressFamily, Backlog, SockFlag, SockProtocol, SockType, SockaddrStorage, bind,
            connect, listen, setsockopt, socket, sockopt,
        },
        time::{TimeVal, TimeValLike as _},
    },
};
use serde_json::{Value, json};
use service_core::{Frontend, Index, NodeView, Place, World};
use service_objects::{Family, Protocol, Service, Slice};
use std::{
    collections::BTreeMap,
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    os::fd::{AsRawFd as _, OwnedFd},
    sync::Arc,
    time::Duration,
};

/// The time for which an association may be under way. The kernel sends its first packet again after 3 s.
const PATIENCE: Duration = Duration::from_secs(20);
const POD_A: [u8; 4] = [10, 0, 0, 1];
const POD_B: [u8; 4] = [10, 0, 0, 2];
/// The port of a frontend and of its backend, and another port of a backend.
const PORT: u16 = 30_080;
const OTHER: u16 = 7001;

/// A socket of one-to-one style, which has the calls of TCP, at an address of the present namespace. It has no other address.
fn sctp_socket(at: SocketAddr) -> OwnedFd {
    let family = if at.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let protocol = SockProtocol::Sctp;
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, protocol).unwrap();
    bind(socket.as_raw_fd(), &SockaddrStorage::from(at)).unwrap();
    socket
}

fn listen_in(namespace: &str, at: SocketAddr) -> TcpListener {
    in_pod(namespace, move || {
        let socket = sctp_socket(at);
        listen(&socket, Backlog::new(8).unwrap()).unwrap();
        TcpListener::from(socket)
    })
}

/// Accepts associations in pod b.
fn serve_policies(port: u16) {
    answer(listen_in("b", at(POD_B, port)));
}

/// Connects from an address of a namespace. `None` if nothing answers in this time.
fn associate_by(
    namespace: &str,
    from: SocketAddr,
    to: SocketAddr,
    patience: Duration,
) -> Option<TcpStream> {
    in_pod(namespace, move || {
        let socket = sctp_socket(from);
        let timeout = TimeVal::milliseconds(patience.as_millis().try_into().unwrap());
        setsockopt(&socket, sockopt::SendTimeout, &timeout).unwrap();
        match connect(socket.as_raw_fd(), &SockaddrStorage::from(to)) {
            Ok(()) => {}
            Err(Errno::EINPROGRESS | Errno::EAGAIN) => return None,
            Err(error) => panic!("{to}: {error}"),
        }
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        Some(stream)
    })
}

/// Connects from pod a to pod b. `None` if nothing answers.
fn associate(port: u16) -> Option<TcpStream> {
    associate_by("a", at(POD_A, 0), at(POD_B, port), SILENCE)
}

fn sctp_policy(port: u16) -> Value {
    let mut policy = policy(port);
    policy["spec"]["ingress"][0]["ports"][0]["protocol"] = json!("SCTP");
    policy
}

#[test]
#[ignore = "needs a kernel with SCTP: cargo xtask test vm"]
fn associations_of_sctp_follow_policies_and_their_changes() {
    let name = "associations_of_sctp_follow_policies_and_their_changes";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    serve_policies(7000);
    serve_policies(7001);
    let mut kernel = Kernel::load(&object, Some(bpffs.path()));
    write(&mut kernel, &[]);
    attach(&mut kernel);
    let stays = associate(7000).expect("a pod without policies is open");
    let ends = associate(7001).expect("a pod without policies is open");
    assert!(answers(&stays) && answers(&ends));

    write(&mut kernel, &[sctp_policy(7000)]);
    assert!(answers(&stays), "the association stays allowed");
    assert!(!answers(&ends), "the association is no longer allowed");
    assert!(associate(7000).is_some_and(|stream| answers(&stream)));
    assert!(associate(7001).is_none(), "no rule allows the port");

    // The number of a port belongs to its protocol.
    write(&mut kernel, &[policy(7000)]);
    assert!(!answers(&stays), "the rule is about TCP");
    assert!(associate(7000).is_none(), "the rule is about TCP");
}

/// A server that a test reads by itself.
struct Backend {
    listener: TcpListener,
}

impl Backend {
    fn start(namespace: &str, at: SocketAddr) -> Self {
        Self { listener: listen_in(namespace, at) }
    }

    /// Connects a client. The peer has to be the address that was asked for, and bytes have to arrive in both directions.
    /// Returns the client as the backend sees it, and the client's association.
    fn reached(
        &self,
        namespace: &str,
        from: SocketAddr,
        to: SocketAddr,
    ) -> (SocketAddr, TcpStream) {
        let client = associate_by(namespace, from, to, PATIENCE);
        let client = client.unwrap_or_else(|| panic!("{from} does not reach {to}"));
        assert_eq!(client.peer_addr().unwrap(), to);
        let (server, seen) = self.listener.accept().unwrap();
        for (sender, receiver) in [(&client, &server), (&server, &client)] {
            receiver.set_read_timeout(Some(PATIENCE)).unwrap();
            transfer(sender, receiver);
        }
        (seen, client)
    }

    /// True if the backend has accepted no association.
    fn is_alone(&self) -> bool {
        self.listener.set_nonblocking(true).unwrap();
        let accepted = self.listener.accept();
        self.listener.set_nonblocking(false).unwrap();
        accepted.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    }
}

fn transfer(mut sender: &TcpStream, mut receiver: &TcpStream) {
    sender.write_all(&[7]).unwrap();
    assert_eq!(receiver.read(&mut [0]).unwrap(), 1);
}

fn sctp(address: IpAddr, port: u16) -> Place {
    Place::Port(address, port, Protocol::Sctp)
}

/// The number of connections that started on the fast path.
fn fast_path(kernel: &Kernel) -> u64 {
    kernel.programs.counters().unwrap()["fast_path"]
}

/// The addresses of both families: of pod a, pod b, and the cluster IP.
fn families() -> [(IpAddr, IpAddr, IpAddr); 2] {
    [(POD_A.into(), POD_B.into(), VIP), (v6_of("a").into(), v6_of("b").into(), vip_v6())]
}

#[test]
#[ignore = "needs a kernel with SCTP: cargo xtask test vm"]
fn a_pod_associates_with_the_backend_of_a_service_at_the_same_port() {
    let name = "a_pod_associates_with_the_backend_of_a_service_at_the_same_port";
    let Some(object) = object(name) else { return };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        let before = fast_path(&kernel);
        for (a, b, vip) in families() {
            let backend = Backend::start("b", at(b, PORT));
            serve(&mut kernel, &[(sctp(vip, PORT), to(&[at(b, PORT)]))]);
            let (seen, _client) = backend.reached("a", at(a, 4000), at(vip, PORT));
            assert_eq!(seen, at(a, 4000), "the backend sees the client");
            // The backend's end is judged.
            write(&mut kernel, &[policy(PORT)]);
            let refused = associate_by("a", at(a, 4001), at(vip, PORT), SILENCE);
            assert!(refused.is_none(), "{vip}: the rule is about TCP");
            write(&mut kernel, &[sctp_policy(PORT)]);
            drop(backend.reached("a", at(a, 4002), at(vip, PORT)));
            write(&mut kernel, &[]);
        }
        // The backend is beyond the node.
        let backend = Backend::start("out", at(CLIENT, PORT));
        serve(&mut kernel, &[(sctp(VIP, PORT), to(&[at(CLIENT, PORT)]))]);
        let (seen, _client) = backend.reached("a", at(POD_A, 4003), at(VIP, PORT));
        assert_eq!(seen, at(POD_A, 4003));
        let counters = kernel.programs.counters().unwrap();
        assert_eq!(counters["no_backend"], 0, "{counters:?}");
        assert_eq!(fast_path(&kernel), before, "SCTP takes the stack");
        assert!(counters["chosen_for_pod"] >= 7, "{counters:?}");
    }
}

#[test]
#[ignore = "needs a kernel with SCTP: cargo xtask test vm"]
fn a_client_outside_associates_by_a_node_port_of_the_same_number() {
    let name = "a_client_outside_associates_by_a_node_port_of_the_same_number";
    let Some(object) = object(name) else { return };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        ip("-n out addr add 10.9.0.3/24 dev eth0");
        let here: [IpAddr; 2] = [POD_B.into(), v6_of("b").into()];
        let there: [IpAddr; 2] = [FAR.into(), v6(8, 2)];
        let clients = [IpAddr::V4(CLIENT), v6(9, 2)];
        let towards_far: [IpAddr; 2] = [[10, 8, 0, 1].into(), v6(8, 1)];
        let asked = [NODE, v6(9, 1)];
        let before = fast_path(&kernel);
        let mut held = Vec::new();
        for (namespace, backends, seen_as, own_port) in
            [("b", here, clients, 5000), ("far", there, towards_far, 5001)]
        {
            for (index, family) in [Family::V4, Family::V6].into_iter().enumerate() {
                let (backend, client) = (at(backends[index], PORT), clients[index]);
                let server = Backend::start(namespace, backend);
                serve(&mut kernel, &[(node_port(family, Protocol::Sctp), to(&[backend]))]);
                let asked = at(asked[index], PORT);
                let (seen, association) = server.reached("out", at(client, own_port), asked);
                assert_eq!(seen, at(seen_as[index], own_port), "{backend}: the port stays");
                held.push((server, association));
            }
        }
        // Toward a backend on another node two clients need two ports.
        let backend = at(FAR, PORT);
        serve(&mut kernel, &[(node_port(Family::V4, Protocol::Sctp), to(&[backend]))]);
        let counters = kernel.programs.counters().unwrap();
        assert_eq!((counters["no_source_port"], counters["no_backend"]), (0, 0), "{counters:?}");
        assert_eq!(fast_path(&kernel), before, "SCTP takes the stack");
        let second = |port| associate_by("out", at([10, 9, 0, 3], port), at(NODE, PORT), SILENCE);
        assert!(second(5001).is_none(), "the port is that of the first client");
        assert!(kernel.programs.counters().unwrap()["no_source_port"] > 0);
        assert!(second(5002).is_some(), "another port is free");
    }
}

/// The frontends of a Service, as the agent computes them. Each of its SCTP ports is a port of the cluster IP, a node port,
/// and the port of the endpoint in pod b.
fn frontends(ports: &[(u16, u16, u16)]) -> BTreeMap<Place, Frontend> {
    let name = |port: u16| format!("p{port}");
    let of_service = ports.iter().map(|(port, node_port, _)| {
        let name = name(*port);
        json!({"name": name, "protocol": "SCTP", "port": port, "nodePort": node_port})
    });
    let service = json!({
        "metadata": {"namespace": "x", "name": "s"},
        "spec": {
            "type": "NodePort", "clusterIPs": [VIP.to_string(), vip_v6().to_string()],
            "ipFamilies": ["IPv4", "IPv6"], "ports": of_service.collect::<Vec<_>>(),
        },
    });
    let of_slice = ports
        .iter()
        .map(|(port, _, of_pod)| json!({"name": name(*port), "protocol": "SCTP", "port": of_pod}));
    let of_slice: Vec<_> = of_slice.collect();
    let slice = |(kind, address): (&str, IpAddr)| {
        let slice = json!({
            "metadata": {
                "namespace": "x", "name": format!("s-{}", kind.to_lowercase()),
                "labels": {"kubernetes.io/service-name": "s"},
            },
            "addressType": kind, "ports": &of_slice,
            "endpoints": [{"addresses": [address.to_string()]}],
        });
        let slice = Slice::read(&slice).unwrap();
        (slice.name.clone(), Arc::new(slice))
    };
    let service = Service::read(&service).unwrap();
    let slices = [("IPv4", POD_B.into()), ("IPv6", v6_of("b").into())].map(slice);
    let mut index = Index::of(World {
        node: NodeView::default(),
        services: [(service.name.clone(), Arc::new(service))].into(),
        slices: slices.into(),
    });
    index.take_changes();
    index.frontends().clone()
}

#[test]
#[ignore = "needs a kernel with SCTP: cargo xtask test vm"]
fn an_association_to_a_service_with_another_port_is_refused_and_counted() {
    let name = "an_association_to_a_service_with_another_port_is_refused_and_counted";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let backends: Vec<_> = [(POD_B.into(), PORT), (POD_B.into(), OTHER)]
        .into_iter()
        .chain([(v6_of("b").into(), PORT), (v6_of("b").into(), OTHER)])
        .map(|(address, port): (IpAddr, u16)| Backend::start("b", at(address, port)))
        .collect();
    // The first port has its number at every place. The second one has an endpoint with another number. The endpoint of the
    // third one has the number of the cluster IP's port, and the node port has another one.
    serve_all(
        &mut kernel,
        &frontends(&[(PORT, PORT, PORT), (80, 30_081, OTHER), (OTHER, 30_082, OTHER)]),
    );
    let clients = [(at(POD_A, 0), at(CLIENT, 0)), (at(v6_of("a"), 0), at(v6(9, 2), 0))];
    let asked = [(VIP, NODE), (vip_v6(), v6(9, 1))];
    for (index, ((a, client), (vip, at_node))) in clients.into_iter().zip(asked).enumerate() {
        let [same, other] = [&backends[index * 2], &backends[index * 2 + 1]];
        drop(same.reached("a", a, at(vip, PORT)));
        drop(same.reached("out", client, at(at_node, PORT)));
        drop(other.reached("a", a, at(vip, OTHER)));
        for (from, client, to) in [
            ("a", a, at(vip, 80)),
            ("out", client, at(at_node, 30_081)),
            ("out", client, at(at_node, 30_082)),
        ] {
            let before = kernel.programs.counters().unwrap();
            assert!(associate_by(from, client, to, SILENCE).is_none(), "{to}");
            let after = kernel.programs.counters().unwrap();
            for reason in ["no_endpoints", "rejected"] {
                assert!(after[reason] > before[reason], "{to} {reason}: {after:?}");
            }
        }
    }
    assert_eq!(kernel.programs.counters().unwrap()["no_backend"], 0);
    // Tables that the agent does not write: the checksum of a packet with another port would be wrong.
    for (index, (b, (vip, at_node))) in
        [IpAddr::from(POD_B), v6_of("b").into()].into_iter().zip(asked).enumerate()
    {
        let family = if b.is_ipv6() { Family::V6 } else { Family::V4 };
        let choice = to(&[at(b, OTHER)]);
        serve(
            &mut kernel,
            &[(sctp(vip, PORT), choice.clone()), (node_port(family, Protocol::Sctp), choice)],
        );
        let (a, client) = clients[index];
        for (from, client, to) in [("a", a, at(vip, PORT)), ("out", client, at(at_node, PORT))] {
            let before = kernel.programs.counters().unwrap()["no_backend"];
            assert!(associate_by(from, client, to, SILENCE).is_none(), "{to}");
            assert!(kernel.programs.counters().unwrap()["no_backend"] > before, "{to}");
        }
    }
    assert!(backends.iter().all(Backend::is_alone), "no other association was accepted");
}
