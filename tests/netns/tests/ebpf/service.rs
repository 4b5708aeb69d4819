//! Services: clients in pods, backends in pods and beyond the node, without NAT of the host's stack.

use crate::{
    Kernel, connections,
    fast::nft,
    nat::{listen, only_8080, only_a},
    object,
    traffic::{
        NODE, SILENCE, add_v6, answer, answers, attach, connect_to, in_pod, ip, node, v6_of, wire,
        write,
    },
};
use config_settings::Connections;
use datapath_ebpf::{Hook, Programs};
use service_abi::{Mirror, Plan};
use service_core::{Choice, Frontend, Place};
use service_objects::{Family, Protocol};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::ErrorKind,
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    path::Path,
    time::{Duration, Instant},
};

/// The time for which a datagram may be under way.
const PATIENCE: Duration = Duration::from_secs(20);

/// A virtual address of each family.
pub(crate) const VIP: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(172, 20, 0, 1));

pub(crate) fn vip_v6() -> IpAddr {
    IpAddr::from([0xfd00, 2, 0, 0, 0, 0, 0, 1])
}

/// A node with the outside, and programs with room for Services.
pub(crate) fn start(object: &Path, bpffs: &Path) -> Kernel {
    start_with(object, bpffs, &Connections { services: true, ..connections() })
}

/// The same with other settings.
pub(crate) fn start_with(object: &Path, bpffs: &Path, connections: &Connections) -> Kernel {
    node(bpffs);
    wire();
    add_v6();
    // The strict filter drops a packet whose source has another link.
    for dev in ["all", "a", "b", "wire"] {
        std::fs::write(format!("/proc/sys/net/ipv4/conf/{dev}/rp_filter"), "1").unwrap();
    }
    for namespace in ["a", "b", "out"] {
        answer(in_pod(namespace, || listen("[::]:8080")));
        answer_datagrams(namespace, 5353);
    }
    let programs = Programs::load(object, Some(&bpffs.join("maps")), connections).unwrap();
    let mut kernel = Kernel::over(programs);
    kernel.own.addresses = [NODE, "10.9.0.1"].map(|at| at.parse::<IpAddr>().unwrap().into()).into();
    write(&mut kernel, &[]);
    attach(&mut kernel);
    kernel.attach(Hook::ToWire, "wire");
    kernel
}

/// Answers each datagram to a port of a namespace with its sender's address, until the process ends.
pub(crate) fn answer_datagrams(namespace: &str, port: u16) {
    let server = in_pod(namespace, move || UdpSocket::bind(("::", port)).unwrap());
    std::thread::spawn(move || {
        while let Ok((_, from)) = server.recv_from(&mut [0]) {
            let _ = server.send_to(from.ip().to_canonical().to_string().as_bytes(), from);
        }
    });
}

pub(crate) fn serve(kernel: &mut Kernel, frontends: &[(Place, Choice)]) {
    serve_with(kernel, frontends, 0);
}

/// The same with an affinity in seconds.
pub(crate) fn serve_with(kernel: &mut Kernel, frontends: &[(Place, Choice)], affinity: u32) {
    let frontends = frontends.iter().map(|(place, choice)| {
        let (inside, outside) = (choice.clone(), choice.clone());
        (*place, Frontend { inside, outside, affinity, sources: None })
    });
    serve_all(kernel, &frontends.collect());
}

/// A place whose Service has one choice for the clients in these ranges.
pub(crate) fn for_sources(place: Place, choice: &Choice, ranges: &[&str]) -> (Place, Frontend) {
    let (inside, outside) = (choice.clone(), choice.clone());
    let sources = Some(ranges.iter().map(|range| range.parse().unwrap()).collect());
    (place, Frontend { inside, outside, affinity: 0, sources })
}

pub(crate) fn serve_all(kernel: &mut Kernel, frontends: &BTreeMap<Place, Frontend>) {
    let mut mirror = Mirror::of(kernel.programs.read_services().unwrap());
    let plan = mirror.replace(frontends);
    assert_eq!(plan.refused, BTreeMap::new());
    kernel.programs.write_services(&plan.writes).unwrap();
    kernel.programs.write_services(&mirror.release()).unwrap();
    let mut found = Mirror::of(kernel.programs.read_services().unwrap());
    assert_eq!(found.replace(frontends), Plan::default(), "the maps have the frontends");
}

pub(crate) fn to(backends: &[SocketAddr]) -> Choice {
    Choice::Backends(backends.into())
}

pub(crate) fn at(address: impl Into<IpAddr>, port: u16) -> SocketAddr {
    SocketAddr::new(address.into(), port)
}

fn tcp(address: IpAddr) -> Place {
    Place::Port(address, 80, Protocol::Tcp)
}

/// The error of a connection of pod a; `None` if it is established.
pub(crate) fn connect_error(to: SocketAddr) -> Option<ErrorKind> {
    in_pod("a", move || TcpStream::connect_timeout(&to, SILENCE)).err().map(|error| error.kind())
}

/// A socket at an address of the present namespace.
pub(crate) fn bound(from: SocketAddr) -> UdpSocket {
    // A process that another test starts may have the last socket of this port until its `exec`.
    loop {
        match UdpSocket::bind(from) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => std::thread::yield_now(),
            bound => break bound.unwrap(),
        }
    }
}

/// The unspecified address of the same family, with this port.
pub(crate) fn any(of: SocketAddr, port: u16) -> SocketAddr {
    if of.is_ipv6() { at([0_u16; 8], port) } else { at([0; 4], port) }
}

/// Sends a datagram from an address of a namespace. Returns the answer, which has to come from the address that was asked for.
pub(crate) fn ask_from(
    namespace: &str,
    from: SocketAddr,
    to: SocketAddr,
) -> Result<String, ErrorKind> {
    in_pod(namespace, move || {
        let socket = bound(from);
        // A connected socket receives from this address only.
        socket.connect(to).unwrap();
        exchange(&socket, SILENCE)
    })
}

/// Sends a datagram by a socket without a peer. Returns the sender of the answer, and the answer.
pub(crate) fn exchange_with(
    socket: &UdpSocket,
    to: SocketAddr,
) -> Result<(SocketAddr, String), ErrorKind> {
    socket.send_to(&[7], to).map_err(|error| error.kind())?;
    let mut text = [0; 64];
    let (length, from) = socket.recv_from(&mut text).map_err(|error| error.kind())?;
    Ok((from, String::from_utf8_lossy(&text[..length]).into_owned()))
}

/// Sends a datagram by a connected socket. Returns the answer, which has to come in this time.
pub(crate) fn exchange(socket: &UdpSocket, patience: Duration) -> Result<String, ErrorKind> {
    socket.set_read_timeout(Some(patience)).unwrap();
    socket.send(&[7]).unwrap();
    let mut text = [0; 64];
    let length = socket.recv(&mut text).map_err(|error| error.kind())?;
    Ok(String::from_utf8_lossy(&text[..length]).into_owned())
}

/// The same from a port of pod a.
pub(crate) fn ask(from_port: u16, to: SocketAddr) -> Result<String, ErrorKind> {
    ask_from("a", any(to, from_port), to)
}

/// True if pod a's connection is answered, by the address that it asked for.
pub(crate) fn answered(to: SocketAddr) -> bool {
    connect_to(to).is_some_and(|stream| stream.peer_addr().unwrap() == to && answers(&stream))
}

#[test]
fn a_pod_reaches_the_backends_of_a_service() {
    let Some(object) = object("a_pod_reaches_the_backends_of_a_service") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let udp = |address| Place::Port(address, 53, Protocol::Udp);
    serve(
        &mut kernel,
        &[
            (tcp(VIP), to(&[at([10, 0, 0, 2], 8080), at([10, 9, 0, 2], 8080)])),
            (tcp(vip_v6()), to(&[at(v6_of("b"), 8080)])),
            (udp(VIP), to(&[at([10, 0, 0, 2], 5353)])),
            (udp(vip_v6()), to(&[at(v6_of("b"), 5353)])),
        ],
    );
    for _ in 0..20 {
        assert!(answered(at(VIP, 80)));
    }
    assert!(answered(at(vip_v6(), 80)));
    // The backend sees the client's own address.
    assert_eq!(ask(0, at(VIP, 53)), Ok("10.0.0.1".to_owned()));
    assert_eq!(ask(0, at(vip_v6(), 53)), Ok(v6_of("a").to_string()));
    // Other packets are as before.
    assert!(answered(at([10, 0, 0, 2], 8080)));
    let counters = kernel.programs.counters().unwrap();
    assert_eq!(counters["no_backend"], 0);
    // Each connection has a choice, unless the kernel has repeated a port.
    assert!((20..=23).contains(&counters["chosen_for_pod"]), "{counters:?}");
}

#[test]
fn a_service_without_endpoints_rejects_and_a_local_one_drops() {
    let name = "a_service_without_endpoints_rejects_and_a_local_one_drops";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let places = |last: u16, protocol| {
        let v4 = IpAddr::from([172, 20, 0, u8::try_from(last).unwrap()]);
        let v6 = IpAddr::from([0xfd00, 2, 0, 0, 0, 0, 0, last]);
        [v4, v6].map(|address| Place::Port(address, 80, protocol))
    };
    let mut frontends = Vec::new();
    for protocol in [Protocol::Tcp, Protocol::Udp] {
        frontends.extend(places(1, protocol).map(|place| (place, Choice::NoEndpoints)));
        frontends.extend(places(2, protocol).map(|place| (place, Choice::NoLocalEndpoints)));
    }
    for address in [VIP, vip_v6()] {
        frontends.push((Place::OtherPorts(address), Choice::NoSuchPort));
    }
    serve(&mut kernel, &frontends);
    for address in [VIP, vip_v6()] {
        for port in [80, 81] {
            let to = at(address, port);
            assert_eq!(connect_error(to), Some(ErrorKind::ConnectionRefused), "{to}");
            assert_eq!(ask(0, to), Err(ErrorKind::ConnectionRefused), "{to}");
        }
    }
    for address in [IpAddr::from([172, 20, 0, 2]), IpAddr::from([0xfd00, 2, 0, 0, 0, 0, 0, 2])] {
        let to = at(address, 80);
        assert_eq!(connect_error(to), Some(ErrorKind::TimedOut), "{to}");
        assert_eq!(ask(0, to), Err(ErrorKind::WouldBlock), "{to}");
    }
    let counters = kernel.programs.counters().unwrap();
    assert!(counters["no_endpoints"] >= 4 && counters["no_such_port"] >= 4, "{counters:?}");
    assert!(counters["no_local_endpoints"] >= 4, "{counters:?}");
}

/// True if a client in a pod is answered.
fn reaches(pod: &str, to: SocketAddr) -> bool {
    let stream = in_pod(pod, move || TcpStream::connect_timeout(&to, SILENCE));
    stream.is_ok_and(|stream| {
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        answers(&stream)
    })
}

#[test]
fn a_service_drops_pods_outside_its_source_ranges() {
    let Some(object) = object("a_service_drops_pods_outside_its_source_ranges") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let other = IpAddr::from([172, 20, 0, 2]);
    let backends = to(&[at([10, 9, 0, 2], 8080), at([10, 9, 0, 2], 8080)]);
    let v6 = to(&[at(v6_of("b"), 8080)]);
    let datagrams = to(&[at([10, 0, 0, 2], 5353)]);
    let udp = Place::Port(VIP, 53, Protocol::Udp);
    let mut with = |ranges: &[&str]| {
        let open = Frontend { sources: None, ..for_sources(tcp(other), &backends, &[]).1 };
        let frontends = [
            for_sources(tcp(VIP), &backends, ranges),
            for_sources(tcp(vip_v6()), &v6, ranges),
            for_sources(udp, &datagrams, ranges),
            (tcp(other), open),
        ];
        serve_all(&mut kernel, &frontends.into());
    };
    let of = |pod: &str| {
        [
            if pod == "a" { "10.0.0.1/32" } else { "10.0.0.2/32" }.to_owned(),
            format!("{}/128", v6_of(pod)),
        ]
    };
    let [v4_a, v6_a] = &of("a");
    let [v4_b, v6_b] = &of("b");
    with(&[v4_b, "203.0.113.0/24", v6_b]);
    for to in [at(VIP, 80), at(vip_v6(), 80)] {
        assert_eq!(connect_error(to), Some(ErrorKind::TimedOut), "{to}");
    }
    assert_eq!(ask(0, at(VIP, 53)), Err(ErrorKind::WouldBlock));
    assert!(reaches("b", at(VIP, 80)));
    assert!(reaches("b", at(vip_v6(), 80)), "a pod reaches itself");
    assert!(reaches("a", at(other, 80)), "another Service has no ranges");
    with(&["10.0.0.0/31", v4_a, v6_a]);
    let open = [at(VIP, 80), at(vip_v6(), 80)].map(|to| connect_to(to).unwrap());
    assert!(open.iter().all(answers));
    assert_eq!(ask(4000, at(VIP, 53)), Ok("10.0.0.1".to_owned()));
    assert!(!reaches("b", at(VIP, 80)) && !reaches("b", at(vip_v6(), 80)));
    // The ranges of one family admit no client of the other one, and an empty list admits no client.
    for (ranges, is_v4_served) in [(&["0.0.0.0/0"][..], true), (&["::/0"], false), (&[], false)] {
        with(ranges);
        assert_eq!(reaches("a", at(VIP, 80)), is_v4_served, "{ranges:?}");
        assert_eq!(reaches("a", at(vip_v6(), 80)), ranges == ["::/0"], "{ranges:?}");
        assert!(open.iter().all(answers), "an open connection stays");
        assert_eq!(ask(4000, at(VIP, 53)), Ok("10.0.0.1".to_owned()), "so does a UDP connection");
    }
    let counters = kernel.programs.counters().unwrap();
    assert!(counters["source_range"] >= 8 && counters["no_backend"] == 0, "{counters:?}");
}

#[test]
fn a_pod_reaches_node_ports_at_the_addresses_of_its_node() {
    let name = "a_pod_reaches_node_ports_at_the_addresses_of_its_node";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let port = |protocol| Place::NodePort(Family::V4, 30_080, protocol);
    serve(
        &mut kernel,
        &[
            (port(Protocol::Tcp), to(&[at([10, 0, 0, 2], 8080)])),
            (port(Protocol::Udp), to(&[at([10, 9, 0, 2], 5353)])),
        ],
    );
    for own in [NODE, "10.9.0.1"] {
        let own: IpAddr = own.parse().unwrap();
        assert!(answered(at(own, 30_080)), "{own}");
        assert_eq!(ask(0, at(own, 30_080)), Ok("10.0.0.1".to_owned()), "{own}");
        assert_eq!(connect_error(at(own, 30_081)), Some(ErrorKind::ConnectionRefused), "{own}");
    }
    // Other nodes serve their own node ports.
    assert_eq!(connect_error(at([10, 9, 0, 2], 30_080)), Some(ErrorKind::ConnectionRefused));
    write(&mut kernel, &[only_8080(8081), only_a()]);
    assert!(!answered(at(NODE.parse::<IpAddr>().unwrap(), 30_080)), "the backend's port is judged");
}

#[test]
fn policies_judge_the_backend_and_not_the_virtual_address() {
    let name = "policies_judge_the_backend_and_not_the_virtual_address";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let other = IpAddr::from([172, 20, 0, 2]);
    serve(
        &mut kernel,
        &[(tcp(VIP), to(&[at([10, 0, 0, 2], 8080)])), (tcp(other), to(&[at([10, 0, 0, 2], 8081)]))],
    );
    answer(in_pod("b", || listen("[::]:8081")));
    assert!(answered(at(VIP, 80)) && answered(at(other, 80)));
    write(&mut kernel, &[only_8080(8080), only_a()]);
    assert!(answered(at(VIP, 80)), "the backend's port is allowed");
    assert!(!answered(at(other, 80)), "the backend's port is not allowed");
}

#[test]
fn connections_stay_and_datagrams_leave_a_removed_backend() {
    let name = "connections_stay_and_datagrams_leave_a_removed_backend";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let udp = Place::Port(VIP, 53, Protocol::Udp);
    let of = |last: [u8; 4]| [(tcp(VIP), to(&[at(last, 8080)])), (udp, to(&[at(last, 5353)]))];
    serve(&mut kernel, &of([10, 9, 0, 2]));
    let open = connect_to(at(VIP, 80)).unwrap();
    assert!(answers(&open));
    assert_eq!(ask(4000, at(VIP, 53)), Ok("10.0.0.1".to_owned()));
    ip("-n out route add blackhole 10.0.0.1/32");
    assert_eq!(ask(4000, at(VIP, 53)), Err(ErrorKind::WouldBlock), "the backend is gone");
    serve(&mut kernel, &of([10, 0, 0, 2]));
    assert!(ask(4000, at(VIP, 53)).is_ok(), "the same client port has another backend");
    assert!(answered(at(VIP, 80)));
    ip("-n out route del blackhole 10.0.0.1/32");
    assert!(answers(&open), "an open connection stays with its backend");
}

#[test]
fn a_connection_that_netfilter_translates_stays_with_it() {
    let name = "a_connection_that_netfilter_translates_stays_with_it";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let rule = "ip daddr 172.20.0.1 tcp dport 80 dnat to 10.0.0.2:8080";
    let chain = "type nat hook prerouting priority -100";
    nft(&format!("table ip t {{ chain c {{ {chain}; {rule}\n}}\n}}"));
    let open = connect_to(at(VIP, 80)).unwrap();
    assert!(answers(&open));
    // The programs would choose another backend.
    serve(&mut kernel, &[(tcp(VIP), to(&[at([10, 9, 0, 2], 8080)]))]);
    assert!(answers(&open), "an open connection stays with netfilter");
    let chosen = || kernel.programs.counters().unwrap()["chosen_for_pod"];
    let before = chosen();
    assert!(answered(at(VIP, 80)) && chosen() > before, "a new one is that of the programs");
    serve(&mut kernel, &[(tcp(VIP), Choice::NoEndpoints)]);
    assert!(answers(&open), "an open one does not need endpoints");
}

#[test]
fn a_connection_to_the_backend_itself_has_answers_of_the_backend() {
    let name = "a_connection_to_the_backend_itself_has_answers_of_the_backend";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let backend = at([10, 0, 0, 2], 5353);
    serve(&mut kernel, &[(Place::Port(VIP, 53, Protocol::Udp), to(&[backend]))]);
    // The same client port asks for the Service, the backend and the Service.
    for to in [at(VIP, 53), backend, at(VIP, 53)] {
        assert_eq!(ask(4000, to), Ok("10.0.0.1".to_owned()), "{to}");
    }
}

#[test]
fn a_pod_reaches_itself_through_its_service() {
    let Some(object) = object("a_pod_reaches_itself_through_its_service") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let udp = |address| Place::Port(address, 53, Protocol::Udp);
    serve(
        &mut kernel,
        &[
            (tcp(VIP), to(&[at([10, 0, 0, 1], 8080)])),
            (tcp(vip_v6()), to(&[at(v6_of("a"), 8080)])),
            (udp(VIP), to(&[at([10, 0, 0, 1], 5353)])),
        ],
    );
    assert!(answered(at(VIP, 80)));
    assert_eq!(ask(0, at(VIP, 53)), Ok("169.254.42.1".to_owned()));
    assert!(answered(at(vip_v6(), 80)));
}

#[test]
fn each_backend_is_chosen_in_its_share() {
    let Some(object) = object("each_backend_is_chosen_in_its_share") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let backends: Vec<SocketAddr> = (0..4).map(|port| at([10, 0, 0, 2], 9000 + port)).collect();
    let udp = Place::Port(VIP, 53, Protocol::Udp);
    serve(&mut kernel, &[(udp, to(&backends))]);
    let servers: Vec<UdpSocket> = (0..4)
        .map(|port| in_pod("b", move || UdpSocket::bind(("0.0.0.0", 9000 + port)).unwrap()))
        .collect();
    in_pod("a", || {
        for _ in 0..400 {
            let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
            socket.send_to(&[7], at(VIP, 53)).unwrap();
        }
    });
    let counts: Vec<usize> = servers
        .iter()
        .map(|server| {
            server.set_read_timeout(Some(SILENCE)).unwrap();
            std::iter::from_fn(|| server.recv(&mut [0]).ok()).count()
        })
        .collect();
    assert_eq!(counts.iter().sum::<usize>(), 400, "{counts:?}");
    // With a share of 100 the standard deviation is below 9.
    assert!(counts.iter().all(|count| (50..150).contains(count)), "{counts:?}");
}

/// The servers that receive datagrams of pod a to a Service. Each has a port of its own, which had no choice before.
fn receivers(servers: &[UdpSocket], next_port: &mut u16) -> BTreeSet<usize> {
    const DATAGRAMS: u16 = 12;
    let ports = *next_port..*next_port + DATAGRAMS;
    *next_port = ports.end;
    in_pod("a", || {
        for port in ports {
            let socket = UdpSocket::bind(("0.0.0.0", port)).unwrap();
            socket.send_to(&[7], at(VIP, 53)).unwrap();
        }
    });
    let (mut found, mut count) = (BTreeSet::new(), 0);
    let end = Instant::now() + PATIENCE;
    while count < DATAGRAMS {
        assert!(Instant::now() < end, "{count} of {DATAGRAMS} datagrams have arrived: {found:?}");
        for (number, server) in servers.iter().enumerate() {
            while server.recv(&mut [0]).is_ok() {
                found.insert(number);
                count += 1;
            }
        }
    }
    found
}

#[test]
fn a_client_keeps_its_backend_for_the_time_of_the_affinity() {
    let name = "a_client_keeps_its_backend_for_the_time_of_the_affinity";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    let udp = Place::Port(VIP, 53, Protocol::Udp);
    let (hours, mut port) = (10_800, 20_000);
    let mut receivers = |servers: &[UdpSocket]| receivers(servers, &mut port);
    // One table of each size.
    for count in [16, 512, 600_u16] {
        let ports = 9000..9000 + count;
        let backends: Vec<SocketAddr> = ports.clone().map(|port| at([10, 0, 0, 2], port)).collect();
        let servers = in_pod("b", move || {
            let bind = |port| UdpSocket::bind(("0.0.0.0", port)).unwrap();
            ports.map(bind).collect::<Vec<UdpSocket>>()
        });
        servers.iter().for_each(|server| server.set_nonblocking(true).unwrap());
        serve(&mut kernel, &[(udp, to(&backends))]);
        assert!(receivers(&servers).len() > 1, "each connection has a backend of its own");
        serve_with(&mut kernel, &[(udp, to(&backends))], hours);
        let first = receivers(&servers);
        assert_eq!(first.len(), 1, "{count} backends: {first:?}");
        assert_eq!(receivers(&servers), first, "{count} backends");
        // Its backend is removed, and returns.
        let mut others = backends.clone();
        others.remove(*first.first().unwrap());
        serve_with(&mut kernel, &[(udp, to(&others))], hours);
        let second = receivers(&servers);
        assert!(second.len() == 1 && second != first, "{count} backends: {first:?}, {second:?}");
        serve_with(&mut kernel, &[(udp, to(&backends))], hours);
        assert_eq!(receivers(&servers), second, "{count} backends");
        // Other backends come and go.
        let few = [backends[0], backends[*second.first().unwrap()], backends[3]];
        let few: BTreeSet<SocketAddr> = few.into();
        serve_with(&mut kernel, &[(udp, to(&few.into_iter().collect::<Vec<_>>()))], hours);
        assert_eq!(receivers(&servers), second, "{count} backends");
        // After a second without a connection the client gets another backend. A choice can be the same one.
        serve_with(&mut kernel, &[(udp, to(&backends))], 1);
        let changed = (0..30).find(|_| {
            std::thread::sleep(Duration::from_millis(1100));
            receivers(&servers) != second
        });
        assert!(changed.is_some(), "{count} backends: {second:?}");
    }
}
