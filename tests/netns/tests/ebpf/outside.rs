//! Traffic from outside: clients beyond the node, and backends on it and on another node.

use crate::{
    Kernel,
    beyond::COHERENT,
    fast::{introduce, nft},
    nat::{listen, only_a},
    object,
    service::{
        answer_datagrams, any, ask_from, at, for_sources, serve, serve_all, serve_with, start, to,
        vip_v6,
    },
    traffic::{SILENCE, answer, answers, in_pod, ip, v6_of, write},
};
use datapath_ebpf::{Hook, Wire, Wires};
use nix::{
    errno::Errno,
    net::if_::if_nametoindex,
    sys::{
        socket::{
            AddressFamily, SockFlag, SockType, SockaddrStorage, bind, connect, setsockopt, socket,
            sockopt,
        },
        time::{TimeVal, TimeValLike as _},
    },
};
use service_core::{Choice, Frontend, Place};
use service_objects::{Family, Protocol};
use std::{
    io::ErrorKind,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd as _,
    path::Path,
    time::Duration,
};

/// The address of the node at the link of the client.
pub(crate) const NODE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 9, 0, 1));
pub(crate) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// The backend on another node, and the node's address at the link to it.
pub(crate) const FAR: [u8; 4] = [10, 8, 0, 2];
const TOWARDS_FAR: &str = "10.8.0.1";
/// An address of no link.
pub(crate) const EXTERNAL: IpAddr = IpAddr::V4(Ipv4Addr::new(203, 0, 113, 7));

pub(crate) fn v6(net: u16, host: u16) -> IpAddr {
    IpAddr::from([0xfd00, net, 0, 0, 0, 0, 0, host])
}

/// The node of other tests of Services, with a link to another node. Clients in `out` ask for Services.
pub(crate) fn open(object: &Path, bpffs: &Path) -> Kernel {
    let mut kernel = start(object, bpffs);
    ip("netns add far");
    ip("link add name other type veth peer name eth0 netns far");
    ip("link set other up");
    for (link, namespace, v4, net) in [("wire", "out", "10.9.0", 9), ("other", "far", "10.8.0", 8)]
    {
        ip(&format!("-n {namespace} link set lo up"));
        ip(&format!("-n {namespace} link set eth0 up"));
        if link == "other" {
            ip(&format!("addr add {v4}.1/24 dev {link}"));
            ip(&format!("-n {namespace} addr add {v4}.2/24 dev eth0"));
        }
        ip(&format!("addr add {}/64 dev {link} nodad", v6(net, 1)));
        ip(&format!("-n {namespace} addr add {}/64 dev eth0 nodad", v6(net, 2)));
        ip(&format!("-n {namespace} route add default via {} dev eth0", v6(net, 1)));
    }
    answer(in_pod("far", || listen("[::]:8080")));
    answer_datagrams("far", 5353);
    kernel.own.addresses = [NODE, TOWARDS_FAR.parse().unwrap(), v6(9, 1), v6(8, 1)]
        .map(|address: IpAddr| address.into())
        .into();
    write(&mut kernel, &[]);
    let wires = [("wire", NODE, 9), ("other", TOWARDS_FAR.parse().unwrap(), 8)];
    let wires = wires.map(|(link, v4, net)| {
        let addresses = [Some(v4), Some(v6(net, 1))];
        (if_nametoindex(link).unwrap(), Wire { addresses, ..Wire::default() })
    });
    kernel.programs.set_wires(&Wires::from(wires)).unwrap();
    kernel.attach(Hook::ToWire, "other");
    kernel.attach(Hook::FromWire, "wire");
    kernel.attach(Hook::FromWire, "other");
    kernel
}

/// The same node, whose pods are on the fast path. Its stack drops packets of connections that it has not started.
pub(crate) fn open_fast(object: &Path, bpffs: &Path) -> Kernel {
    let mut kernel = open(object, bpffs);
    introduce(&mut kernel);
    nft(COHERENT);
    kernel
}

/// The node without the fast path, and with it.
pub(crate) const OPEN: [fn(&Path, &Path) -> Kernel; 2] = [open, open_fast];

pub(crate) fn node_port(family: Family, protocol: Protocol) -> Place {
    Place::NodePort(family, 30_080, protocol)
}

/// The result of a connection of the client: the address that it asked for has to answer.
fn connected(to: SocketAddr) -> Result<(), ErrorKind> {
    let stream = in_pod("out", move || TcpStream::connect_timeout(&to, SILENCE));
    let stream = stream.map_err(|error| error.kind())?;
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), to);
    if answers(&stream) { Ok(()) } else { Err(ErrorKind::WouldBlock) }
}

/// Sends a datagram of the client, from an address or any. Returns the client's address as the backend sees it.
fn ask(from: SocketAddr, to: SocketAddr) -> Result<String, ErrorKind> {
    ask_from("out", from, to)
}

#[test]
fn a_client_outside_reaches_backends_on_the_node_and_on_another_one() {
    let name = "a_client_outside_reaches_backends_on_the_node_and_on_another_one";
    let Some(object) = object(name) else { return };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        let here: [IpAddr; 2] = [[10, 0, 0, 2].into(), v6_of("b").into()];
        let there: [IpAddr; 2] = [FAR.into(), v6(8, 2)];
        let client = [IpAddr::V4(CLIENT), v6(9, 2)];
        let towards_far = [TOWARDS_FAR.parse().unwrap(), v6(8, 1)];
        let asked = [[NODE, EXTERNAL], [v6(9, 1), vip_v6()]];
        for (backends, seen) in [(here, client), (there, towards_far)] {
            let mut frontends = Vec::new();
            for (family, backend) in [Family::V4, Family::V6].into_iter().zip(backends) {
                let external = asked[usize::from(backend.is_ipv6())][1];
                for (protocol, port) in [(Protocol::Tcp, 8080), (Protocol::Udp, 5353)] {
                    let choice = to(&[at(backend, port)]);
                    frontends.push((node_port(family, protocol), choice.clone()));
                    frontends.push((Place::Port(external, 80, protocol), choice));
                }
            }
            serve(&mut kernel, &frontends);
            for ([at_node, external], seen) in asked.into_iter().zip(seen) {
                for to in [at(at_node, 30_080), at(external, 80)] {
                    for _ in 0..3 {
                        assert_eq!(connected(to), Ok(()), "{to} {backends:?}");
                        assert_eq!(ask(any(to, 0), to), Ok(seen.to_string()), "{to} {backends:?}");
                    }
                }
            }
        }
        let counters = kernel.programs.counters().unwrap();
        assert_eq!((counters["no_backend"], counters["no_source_port"]), (0, 0), "{counters:?}");
        // Each connection has a choice, unless the kernel has repeated a port.
        assert!((40..=48).contains(&counters["chosen_for_outside"]), "{counters:?}");
        assert!((20..=24).contains(&counters["source_port_taken"]), "{counters:?}");
    }
}

#[test]
fn answers_leave_by_the_link_of_the_request() {
    let Some(object) = object("answers_leave_by_the_link_of_the_request") else { return };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        // Packets of the pod leave by another link, as those of a pod on a later ENI.
        ip("rule add from 10.0.0.2 table 7");
        ip("route add default via 10.8.0.2 dev other table 7");
        for dev in ["all", "wire", "other"] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{dev}/rp_filter"), "2").unwrap();
        }
        let tcp = node_port(Family::V4, Protocol::Tcp);
        serve(&mut kernel, &[(tcp, to(&[at([10, 0, 0, 2], 8080)]))]);
        for _ in 0..5 {
            assert_eq!(connected(at(NODE, 30_080)), Ok(()));
        }
        assert_eq!(
            connected(at([10, 0, 0, 2], 8080)),
            Err(ErrorKind::TimedOut),
            "without a Service"
        );
    }
}

#[test]
fn clients_with_one_port_have_different_source_ports() {
    let Some(object) = object("clients_with_one_port_have_different_source_ports") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    ip("-n out addr add 10.9.0.3/24 dev eth0");
    let udp = node_port(Family::V4, Protocol::Udp);
    let tcp = node_port(Family::V4, Protocol::Tcp);
    serve(&mut kernel, &[(udp, to(&[at(FAR, 5353)])), (tcp, to(&[at(FAR, 8080)]))]);
    for _ in 0..3 {
        for last in [2, 3] {
            let from = at([10, 9, 0, last], 4000);
            assert_eq!(ask(from, at(NODE, 30_080)), Ok(TOWARDS_FAR.to_owned()), "{from}");
        }
    }
    // More clients than ports: the others are refused by name, and the node serves other backends.
    in_pod("out", || {
        for port in 10_000..16_000 {
            let socket = UdpSocket::bind((CLIENT, port)).unwrap();
            socket.send_to(&[7], at(NODE, 30_080)).unwrap();
        }
    });
    let counters = kernel.programs.counters().unwrap();
    let refused = counters["no_source_port"];
    // Each refusal follows 16 tries.
    assert!(refused > 0 && counters["source_port_busy"] >= 16 * refused, "{counters:?}");
    assert_eq!(connected(at(NODE, 30_080)), Ok(()));
}

#[test]
fn a_client_outside_is_refused_or_dropped_by_the_kind_of_its_service() {
    let name = "a_client_outside_is_refused_or_dropped_by_the_kind_of_its_service";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let mut frontends = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        for (family, external) in [(Family::V4, EXTERNAL), (Family::V6, vip_v6())] {
            frontends.push((node_port(family, protocol), Choice::NoEndpoints));
            frontends.push((Place::Port(external, 80, protocol), Choice::NoLocalEndpoints));
        }
    }
    serve(&mut kernel, &frontends);
    for (at_node, external) in [(NODE, EXTERNAL), (v6(9, 1), vip_v6())] {
        let to = at(at_node, 30_080);
        assert_eq!(connected(to), Err(ErrorKind::ConnectionRefused), "{to}");
        assert_eq!(ask(any(to, 0), to), Err(ErrorKind::ConnectionRefused), "{to}");
        let to = at(external, 80);
        assert_eq!(connected(to), Err(ErrorKind::TimedOut), "{to}");
        assert_eq!(ask(any(to, 0), to), Err(ErrorKind::WouldBlock), "{to}");
    }
    let counters = kernel.programs.counters().unwrap();
    assert!(counters["no_endpoints"] >= 4 && counters["rejected"] >= 4, "{counters:?}");
    assert!(counters["no_local_endpoints"] >= 4, "{counters:?}");
}

#[test]
fn a_service_drops_clients_outside_its_source_ranges() {
    let Some(object) = object("a_service_drops_clients_outside_its_source_ranges") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    ip("-n out addr add 10.9.0.3/24 dev eth0");
    ip(&format!("-n out addr add {}/64 dev eth0 nodad", v6(9, 3)));
    let clients = [[CLIENT.into(), v6(9, 2)], [IpAddr::from([10, 9, 0, 3]), v6(9, 3)]];
    let external = [EXTERNAL, vip_v6()];
    let mut with = |backends: [IpAddr; 2], ranges: &[&str]| {
        let mut frontends = Vec::new();
        for (external, backend) in external.into_iter().zip(backends) {
            for (protocol, port) in [(Protocol::Tcp, 8080), (Protocol::Udp, 5353)] {
                let choice = to(&[at(backend, port)]);
                let place = Place::Port(external, 80, protocol);
                frontends.push(for_sources(place, &choice, ranges));
            }
        }
        // A node port of the same Service serves every client.
        let node_port = node_port(Family::V4, Protocol::Tcp);
        let (_, open) = for_sources(node_port, &to(&[at([10, 0, 0, 2], 8080)]), &[]);
        frontends.push((node_port, Frontend { sources: None, ..open }));
        serve_all(&mut kernel, &frontends.into_iter().collect());
    };
    let connect = |client: IpAddr, to: IpAddr| {
        let answer = ask(at(client, 0), at(to, 80));
        answer.map(drop)
    };
    let (here, there) = ([[10, 0, 0, 2].into(), v6_of("b").into()], [FAR.into(), v6(8, 2)]);
    for backends in [here, there] {
        with(backends, &["10.9.0.3/32", "fd00:9::2/128", "fd00:9::3/128"]);
        assert_eq!(connected(at(EXTERNAL, 80)), Err(ErrorKind::TimedOut));
        assert_eq!(connected(at(vip_v6(), 80)), Ok(()));
        assert_eq!(connected(at(NODE, 30_080)), Ok(()));
        with(backends, &["10.9.0.2/32", "fd00:9::3/128"]);
        assert_eq!(connected(at(EXTERNAL, 80)), Ok(()));
        let expected = [[Ok(()), Err(ErrorKind::WouldBlock)], [Err(ErrorKind::WouldBlock), Ok(())]];
        for (of_client, expected) in clients.into_iter().zip(expected) {
            for ((client, external), expected) in of_client.into_iter().zip(external).zip(expected)
            {
                assert_eq!(connect(client, external), expected, "{client} {backends:?}");
            }
        }
        let to = at(EXTERNAL, 80);
        let earlier = in_pod("out", move || TcpStream::connect_timeout(&to, SILENCE)).unwrap();
        earlier.set_read_timeout(Some(SILENCE)).unwrap();
        assert!(answers(&earlier));
        with(backends, &[]);
        assert!(answers(&earlier), "an open connection stays");
        assert_eq!(connected(at(vip_v6(), 80)), Err(ErrorKind::TimedOut));
    }
    let counters = kernel.programs.counters().unwrap();
    assert!(counters["source_range"] >= 8 && counters["no_backend"] == 0, "{counters:?}");
}

#[test]
fn policies_judge_clients_outside_at_the_backend() {
    let Some(object) = object("policies_judge_clients_outside_at_the_backend") else { return };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        let tcp = node_port(Family::V4, Protocol::Tcp);
        serve(&mut kernel, &[(tcp, to(&[at([10, 0, 0, 2], 8080)]))]);
        let to = at(NODE, 30_080);
        let open = in_pod("out", move || TcpStream::connect_timeout(&to, SILENCE)).unwrap();
        open.set_read_timeout(Some(SILENCE)).unwrap();
        assert!(answers(&open));
        write(&mut kernel, &[only_a()]);
        assert!(!answers(&open), "the open connection is revoked");
        assert_eq!(connected(to), Err(ErrorKind::TimedOut));
        write(&mut kernel, &[]);
        assert_eq!(connected(to), Ok(()));
    }
}

#[test]
fn connections_of_the_host_stay_with_the_host() {
    let Some(object) = object("connections_of_the_host_stay_with_the_host") else { return };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        // A process of the node, and a proxy in its stack, have connections before the frontend exists.
        answer(TcpListener::bind((NODE, 30_080)).unwrap());
        let to_node = at(NODE, 30_080);
        let earlier = in_pod("out", move || TcpStream::connect_timeout(&to_node, SILENCE)).unwrap();
        earlier.set_read_timeout(Some(SILENCE)).unwrap();
        assert!(answers(&earlier));
        let tcp = node_port(Family::V4, Protocol::Tcp);
        serve(&mut kernel, &[(tcp, to(&[at(FAR, 8080)]))]);
        assert!(answers(&earlier), "it stays with the process that has it");
        assert_eq!(connected(to_node), Ok(()), "a new one has a backend");
        // The node's own connections, from a port that is a node port too.
        let own = TcpStream::connect((CLIENT, 8080)).unwrap();
        own.set_read_timeout(Some(SILENCE)).unwrap();
        assert!(answers(&own));
        serve(&mut kernel, &[]);
        assert!(answers(&earlier) && answers(&own));
    }
}

#[test]
fn a_client_that_asks_for_the_backend_itself_has_answers_of_the_backend() {
    let name = "a_client_that_asks_for_the_backend_itself_has_answers_of_the_backend";
    let Some(object) = object(name) else { return };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        let udp = node_port(Family::V4, Protocol::Udp);
        let backend = at([10, 0, 0, 2], 5353);
        serve(&mut kernel, &[(udp, to(&[backend]))]);
        // The same port of the client asks for the Service, the backend and the Service.
        for to in [at(NODE, 30_080), backend, at(NODE, 30_080)] {
            assert_eq!(ask(at([0; 4], 4000), to), Ok(CLIENT.to_string()), "{to}");
        }
    }
}

/// A connection from this address of the present namespace, which is reset at its end. Without an answer for this time the
/// error is `EINPROGRESS`.
pub(crate) fn connect_by(
    from: SocketAddr,
    to: SocketAddr,
    patience: Duration,
) -> Result<TcpStream, Errno> {
    let family = if to.is_ipv6() { AddressFamily::Inet6 } else { AddressFamily::Inet };
    let socket = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None).unwrap();
    setsockopt(&socket, sockopt::ReuseAddr, &true).unwrap();
    let patience = TimeVal::milliseconds(patience.as_millis().try_into().unwrap());
    setsockopt(&socket, sockopt::SendTimeout, &patience).unwrap();
    setsockopt(&socket, sockopt::ReceiveTimeout, &patience).unwrap();
    // No end is left in a state in which it waits.
    let reset = nix::libc::linger { l_onoff: 1, l_linger: 0 };
    setsockopt(&socket, sockopt::Linger, &reset).unwrap();
    bind(socket.as_raw_fd(), &SockaddrStorage::from(from)).unwrap();
    connect(socket.as_raw_fd(), &SockaddrStorage::from(to))?;
    Ok(TcpStream::from(socket))
}

/// The error of a TCP connection of the client from this port. `None` if it is established.
fn connect_from(port: u16, to: SocketAddr) -> Option<Errno> {
    in_pod("out", move || connect_by(at(CLIENT, port), to, SILENCE).err())
}

#[test]
fn a_new_connection_of_the_same_ends_needs_the_service() {
    let Some(object) = object("a_new_connection_of_the_same_ends_needs_the_service") else {
        return;
    };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        let tcp = node_port(Family::V4, Protocol::Tcp);
        for backend in [at([10, 0, 0, 2], 8080), at(FAR, 8080)] {
            // Another frontend keeps the backend.
            let other = Place::Port(EXTERNAL, 80, Protocol::Tcp);
            serve(&mut kernel, &[(tcp, to(&[backend])), (other, to(&[backend]))]);
            for _ in 0..2 {
                assert_eq!(connect_from(4001, at(NODE, 30_080)), None, "{backend}");
            }
            serve(&mut kernel, &[(tcp, Choice::NoEndpoints), (other, to(&[backend]))]);
            assert_eq!(
                connect_from(4001, at(NODE, 30_080)),
                Some(Errno::ECONNREFUSED),
                "{backend}"
            );
        }
    }
}

#[test]
fn datagrams_of_a_client_keep_a_backend_of_their_service_only() {
    let name = "datagrams_of_a_client_keep_a_backend_of_their_service_only";
    let Some(object) = object(name) else { return };
    for open in OPEN {
        let bpffs = tempfile::tempdir().unwrap();
        let mut kernel = open(&object, bpffs.path());
        let udp = node_port(Family::V4, Protocol::Udp);
        let other = Place::Port(EXTERNAL, 80, Protocol::Udp);
        answer_datagrams("b", 5354);
        let [first, second] = [5353, 5354].map(|port| to(&[at([10, 0, 0, 2], port)]));
        let asked = at(NODE, 30_080);
        for (client, counter) in [("out", "chosen_for_outside"), ("a", "chosen_for_pod")] {
            let before = kernel.programs.counters().unwrap()[counter];
            serve(&mut kernel, &[(udp, first.clone()), (other, first.clone())]);
            for _ in 0..8 {
                assert!(ask_from(client, any(asked, 4000), asked).is_ok(), "{client}");
                // The next datagram is in a later tick.
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(kernel.programs.counters().unwrap()[counter], before + 1, "{client}");
            serve(&mut kernel, &[(udp, second.clone()), (other, first.clone())]);
            assert!(ask_from(client, any(asked, 4000), asked).is_ok(), "{client}");
            assert_eq!(kernel.programs.counters().unwrap()[counter], before + 2, "{client}");
        }
    }
}

#[test]
fn a_client_outside_keeps_its_backend_by_affinity() {
    let Some(object) = object("a_client_outside_keeps_its_backend_by_affinity") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let udp = node_port(Family::V4, Protocol::Udp);
    let backends = to(&[at([10, 0, 0, 2], 5353), at(FAR, 5353)]);
    serve_with(&mut kernel, &[(udp, backends)], 600);
    let asked = at(NODE, 30_080);
    let first = ask(any(asked, 0), asked).unwrap();
    for _ in 0..12 {
        assert_eq!(ask(any(asked, 0), asked).as_ref(), Ok(&first));
    }
}
