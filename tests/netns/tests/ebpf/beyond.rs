//! The fast path between two nodes, with a router between them as in a VPC.
//!
//! Pod a is on the primary ENI of the first node, pod b on its second ENI, and pod c on the other node. The router drops a packet
//! from an address that is not of the ENI by which the packet comes.

use crate::{
    Kernel, connections,
    fast::{COUNT, forwarded, nft, pings},
    nat::{listen, policy},
    object,
    outside::node_port,
    same_port::connected,
    service::{self, VIP, answer_datagrams, any, at, serve, to, vip_v6},
    traffic::{
        NODE, PODS, SILENCE, answer, answers, attach, connect_pod, in_pod, ip, node, v6_of, write,
        write_pods,
    },
};
use config_settings::Connections;
use datapath_ebpf::{FastPods, Hook, Programs, Wire, Wires};
use datapath_node::Paths;
use nix::{net::if_::if_nametoindex, sys::socket::SockType};
use serde_json::{Value, json};
use service_core::Place;
use service_objects::{Family, Protocol};
use std::{
    io::ErrorKind,
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    path::Path,
    thread,
    time::Duration,
};

/// The links of the nodes to the router: the node's namespace, or none for the first one, the link, and its subnet.
const ENIS: [(Option<&str>, &str, u8); 3] =
    [(None, "eni0", 90), (None, "eni1", 91), (Some("n2"), "eni2", 92)];
pub(crate) const C: (&str, &str) = ("c", "10.0.1.1");
/// The address of the router at each link.
const ROUTER_V6: &str = "fe80::fe";
/// The router's check of sources.
const SOURCES: &str = "
table inet sources {
    chain pre {
        type filter hook prerouting priority 0;
        iifname \"eni0\" ip saddr { 10.0.0.2, 10.0.1.1, 10.91.0.1 } counter drop
        iifname \"eni1\" ip saddr { 10.0.0.1, 10.0.1.1, 10.90.0.1 } counter drop
        iifname \"eni2\" ip saddr { 10.0.0.1, 10.0.0.2 } counter drop
    }
}";
/// The stack of a node has all packets of a connection or none.
pub(crate) const COHERENT: &str = "
table inet coherent {
    chain forward {
        type filter hook forward priority 1;
        ct state invalid drop
    }
}";

/// As for pods that reach the internet, and a port that leads to another one of the same address.
const SNAT: &str = "
table ip outside {
    chain pre {
        type nat hook prerouting priority dstnat;
        ip daddr 10.0.1.1 tcp dport 80 dnat to 10.0.1.1:8080
    }
    chain post {
        type nat hook postrouting priority srcnat;
        ip saddr 10.0.0.0/24 ip daddr 203.0.113.0/24 snat to 10.90.0.1
    }
}";
/// As kube-proxy serves a Service.
const PROXY: &str = "
table ip proxy {
    chain pre {
        type nat hook prerouting priority dstnat;
        ip daddr 172.20.0.1 tcp dport 80 dnat to 10.0.1.1:8080
        ip daddr 172.20.0.1 udp dport 53 dnat to 10.0.1.1:5353
    }
}";
/// Host ports at the primary ENI that lead to pod b, whose answers leave by that ENI.
pub(crate) const PORTS: &str = "
table ip ports {
    chain pre {
        type nat hook prerouting priority dstnat;
        ip daddr 10.90.0.1 udp dport 30053 dnat to 10.0.0.2:5353
        ip daddr 10.90.0.1 tcp dport 30081 dnat to 10.0.0.2:8080
    }
    chain marks {
        type filter hook prerouting priority mangle;
        iifname \"eni0\" ip daddr 10.90.0.1 ct mark set 0x80
        iifname \"b\" ct mark 0x80 meta mark set 0x80
    }
}";
/// linux/errno.h
const EMSGSIZE: i32 = 90;

/// Both nodes.
pub(crate) struct Nodes {
    pub(crate) one: Kernel,
    pub(crate) two: Kernel,
}

/// Runs a function in a node.
pub(crate) fn on<T: Send + 'static>(
    node: Option<&str>,
    run: impl FnOnce() -> T + Send + 'static,
) -> T {
    match node {
        Some(node) => in_pod(node, run),
        None => run(),
    }
}

pub(crate) fn address(of: (&str, &str), is_v6: bool) -> IpAddr {
    if is_v6 { v6_of(of.0).into() } else { of.1.parse().unwrap() }
}

pub(crate) fn c(is_v6: bool) -> IpAddr {
    address(C, is_v6)
}

/// Adds the router and the links of the nodes to it.
fn route() {
    ip("netns add router");
    for (node, link, net) in ENIS {
        on(node, move || {
            ip(&format!("link add name {link} type veth peer name {link} netns router"));
            for command in [
                &format!("addr add 10.{net}.0.1/24 dev {link}"),
                &format!("addr add fd00:{net}::1/64 dev {link} nodad"),
                &format!("link set {link} up"),
            ] {
                ip(command);
            }
        });
        for command in [
            &format!("addr add 10.{net}.0.254/24 dev {link}"),
            &format!("addr add {ROUTER_V6}/64 dev {link} nodad"),
            &format!("addr add fd00:{net}::fe/64 dev {link} nodad"),
            &format!("link set {link} up"),
        ] {
            ip(&format!("-n router {command}"));
        }
    }
    for (node, table, net, link) in
        [(None, "main", 90, "eni0"), (None, "2", 91, "eni1"), (Some("n2"), "main", 92, "eni2")]
    {
        on(node, move || {
            ip(&format!("route add 10.{net}.0.254 dev {link} table {table}"));
            ip(&format!("route add default via 10.{net}.0.254 dev {link} table {table}"));
            ip(&format!("-6 route add default via {ROUTER_V6} dev {link} table {table}"));
        });
    }
    for family in ["-4", "-6"] {
        let is_v6 = family == "-6";
        let b = address(PODS[1], is_v6);
        ip(&format!("{family} rule add pref 1536 from {b} lookup 2"));
        for (pod, net) in [(PODS[0], 90), (PODS[1], 91), (C, 92)] {
            let (pod, dev) = (address(pod, is_v6), format!("eni{}", net - 90));
            let via = if is_v6 { format!("fd00:{net}::1") } else { format!("10.{net}.0.1") };
            ip(&format!("-n router {family} route add {pod} via {via} dev {dev}"));
        }
    }
    for family in ["-4", "-6"] {
        // Rule 512: packets to pods use the main table, whatever their source is.
        for pod in PODS {
            let pod = address(pod, family == "-6");
            ip(&format!("{family} rule add pref 512 to {pod} lookup main"));
        }
    }
    in_pod("router", || {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
        nft(SOURCES);
        ip("link set lo up");
        ip("addr add 203.0.113.1/32 dev lo");
    });
}

/// The packets that the router has dropped.
pub(crate) fn misplaced() -> u64 {
    in_pod("router", || {
        let list = ["list", "table", "inet", "sources"];
        let list = std::process::Command::new("nft").args(list).output().unwrap();
        assert!(list.status.success(), "the router has no check");
        let text = String::from_utf8(list.stdout).unwrap();
        let mut words = text.split_whitespace();
        let mut sum = 0;
        while let Some(word) = words.next() {
            if word == "packets" {
                sum += words.next().unwrap().parse::<u64>().unwrap();
            }
        }
        sum
    })
}

pub(crate) fn pods_of(
    links: impl IntoIterator<Item = (u32, (&'static str, &'static str))>,
) -> FastPods {
    let mut pods = FastPods::new();
    for (link, pod) in links {
        for is_v6 in [false, true] {
            pods.insert(address(pod, is_v6).into(), link);
        }
    }
    pods
}

pub(crate) fn wires(node: Option<&'static str>) -> Wires {
    let mut wires = Wires::new();
    for (_, link, net) in ENIS.into_iter().filter(|(of, ..)| *of == node) {
        let wire = Wire {
            addresses: [
                Some(format!("10.{net}.0.1").parse().unwrap()),
                Some(format!("fd00:{net}::1").parse().unwrap()),
            ],
            gateways: [
                Some(format!("10.{net}.0.254").parse().unwrap()),
                Some(ROUTER_V6.parse().unwrap()),
            ],
        };
        wires.insert(on(node, move || if_nametoindex(link).unwrap()), wire);
    }
    wires
}

pub(crate) fn open(object: &Path, bpffs: &Path) -> Nodes {
    open_with(object, bpffs, &Connections { services: true, ..connections() })
}

/// Moves the calling thread into the first node. The nodes have no servers and no programs.
pub(crate) fn place(bpffs: &Path) {
    node(bpffs);
    ip("netns add n2");
    ip("netns add c");
    in_pod("n2", || {
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
        ip("link set lo up");
        connect_pod(C.0, C.1, "");
    });
    for (node, pods) in [(None, PODS.to_vec()), (Some("n2"), vec![C])] {
        on(node, move || {
            std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
            for (pod, _) in pods {
                let address = v6_of(pod);
                ip(&format!("addr add fe80::1/64 dev {pod} nodad"));
                ip(&format!("route add {address}/128 dev {pod}"));
                ip(&format!("-n {pod} addr add {address}/128 dev eth0 nodad"));
                ip(&format!("-n {pod} route add default via fe80::1 dev eth0"));
            }
        });
    }
    route();
}

pub(crate) fn open_with(object: &Path, bpffs: &Path, connections: &Connections) -> Nodes {
    place(bpffs);
    for namespace in ["a", "b", "c", "router"] {
        answer(in_pod(namespace, || listen("[::]:8080")));
        answer_datagrams(namespace, 5353);
    }
    let load = |folder: &str| {
        Kernel::over(Programs::load(object, Some(&bpffs.join(folder)), connections).unwrap())
    };
    let (mut one, mut two) = (load("maps"), load("maps2"));
    one.own.addresses = [NODE, "10.90.0.1", "10.91.0.1", "fd00:90::1", "fd00:91::1"]
        .map(|at| at.parse::<IpAddr>().unwrap().into())
        .into();
    two.own.addresses =
        ["10.92.0.1", "fd00:92::1"].map(|at| at.parse::<IpAddr>().unwrap().into()).into();
    write(&mut one, &[]);
    one.programs.set_wires(&wires(None)).unwrap();
    one.programs
        .set_fast_pods(&pods_of(PODS.map(|pod| (if_nametoindex(pod.0).unwrap(), pod))))
        .unwrap();
    attach(&mut one);
    for hook in [Hook::ToWire, Hook::FromWire] {
        one.attach(hook, "eni0");
        one.attach(hook, "eni1");
    }
    let link = in_pod("n2", || if_nametoindex("c").unwrap());
    write_pods(&mut two, &[(link, C)], &[], |_| {});
    two.programs.set_wires(&wires(Some("n2"))).unwrap();
    two.programs.set_fast_pods(&pods_of([(link, C)])).unwrap();
    let two = in_pod("n2", move || {
        two.attach(Hook::FromPod, "c");
        two.attach(Hook::ToPod, "c");
        two.attach(Hook::ToWire, "eni2");
        two.attach(Hook::FromWire, "eni2");
        nft(COUNT);
        nft(COHERENT);
        two
    });
    nft(COUNT);
    nft(COHERENT);
    Nodes { one, two }
}

/// The packets that the stacks of both nodes forward meanwhile. Late acknowledgments of earlier connections do not count.
pub(crate) fn forwards(run: impl FnOnce()) -> [u64; 2] {
    forwards_with("n2", run)
}

/// The same of the first node and of another namespace.
pub(crate) fn forwards_with(other: &str, run: impl FnOnce()) -> [u64; 2] {
    let now = || [forwarded(), in_pod(other, forwarded)];
    let mut before = now();
    loop {
        thread::sleep(Duration::from_millis(250));
        let later = now();
        if later == before {
            break;
        }
        before = later;
    }
    run();
    let after = now();
    [after[0] - before[0], after[1] - before[1]]
}

pub(crate) fn connect(from: &str, to: SocketAddr) -> Result<TcpStream, ErrorKind> {
    let stream = in_pod(from, move || TcpStream::connect_timeout(&to, SILENCE));
    let stream = stream.map_err(|error| error.kind())?;
    stream.set_read_timeout(Some(SILENCE)).unwrap();
    assert_eq!(stream.peer_addr().unwrap(), to);
    Ok(stream)
}

/// True if a connection of a pod is answered, by the address that it asked for.
pub(crate) fn answered(from: &str, to: SocketAddr) -> bool {
    connect(from, to).is_ok_and(|stream| answers(&stream))
}

/// The address of a pod as the receiver of its datagram sees it.
pub(crate) fn ask(from: &str, to: SocketAddr) -> Result<String, ErrorKind> {
    ask_from(from, 0, to)
}

/// The same from a port of the pod.
pub(crate) fn ask_from(from: &str, port: u16, to: SocketAddr) -> Result<String, ErrorKind> {
    service::ask_from(from, any(to, port), to)
}

#[test]
fn packets_to_a_pod_of_another_node_pass_no_rule_of_either_host() {
    let name = "packets_to_a_pod_of_another_node_pass_no_rule_of_either_host";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let nodes = open(&object, bpffs.path());
    for from in PODS {
        for is_v6 in [false, true] {
            let to = at(c(is_v6), 8080);
            let first = forwards(|| assert!(answered(from.0, to), "{from:?} {to}"));
            assert!(first[0] > 0 && first[1] > 0, "the stacks show the way: {first:?}");
            let later = forwards(|| assert!(answered(from.0, to), "{from:?} {to}"));
            assert_eq!(later, [0, 0], "{from:?} {to}");
            let back = at(address(from, is_v6), 8080);
            let count = forwards(|| assert!(answered("c", back), "{back}"));
            assert_eq!(count, [0, 0], "{back}");
        }
    }
    // A host in the subnet of the ENI has no gateway.
    for near in [IpAddr::from([10, 90, 0, 254]), "fd00:90::fe".parse().unwrap()] {
        assert!(forwards(|| assert!(answered("a", at(near, 8080))))[0] > 0, "{near}");
        assert_eq!(forwards(|| assert!(answered("a", at(near, 8080))))[0], 0, "{near}");
    }
    assert_eq!(misplaced(), 0, "each packet leaves by the ENI of its pod");
    for (kernel, connections) in [(&nodes.one, 10), (&nodes.two, 8)] {
        let counters = kernel.programs.counters().unwrap();
        assert_eq!((counters["no_backend"], counters["origin_ended"]), (0, 0), "{counters:?}");
        assert_eq!(counters["fast_path"], connections, "{counters:?}");
    }
}

/// The ways between pods a and b and pod c are known.
pub(crate) fn introduce() {
    for from in PODS {
        for is_v6 in [false, true] {
            assert!(answered(from.0, at(c(is_v6), 8080)));
        }
    }
}

#[test]
fn datagrams_and_echoes_take_the_fast_path_of_their_sender() {
    let name = "datagrams_and_echoes_take_the_fast_path_of_their_sender";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let _nodes = open(&object, bpffs.path());
    introduce();
    for is_v6 in [false, true] {
        let client = Ok(address(PODS[1], is_v6).to_string());
        let count = forwards(|| assert_eq!(ask("b", at(c(is_v6), 5353)), client));
        assert!(count[0] == 0 && count[1] > 0, "a first datagram from outside: {count:?}");
        let back = at(address(PODS[1], is_v6), 5353);
        let count = forwards(|| assert_eq!(ask("c", back), Ok(c(is_v6).to_string())));
        assert!(count[0] > 0 && count[1] == 0, "a first datagram from outside: {count:?}");
        assert_eq!(forwards(|| assert!(pings("b", c(is_v6)))), [0, 0], "{is_v6}");
    }
    assert_eq!(misplaced(), 0);
}

#[test]
fn a_service_with_a_backend_on_another_node_is_asked_by_the_fast_path() {
    let name = "a_service_with_a_backend_on_another_node_is_asked_by_the_fast_path";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    let mut frontends = Vec::new();
    for (vip, is_v6) in [(VIP, false), (vip_v6(), true)] {
        frontends.push((Place::Port(vip, 80, Protocol::Tcp), to(&[at(c(is_v6), 8080)])));
        frontends.push((Place::Port(vip, 53, Protocol::Udp), to(&[at(c(is_v6), 5353)])));
    }
    serve(&mut nodes.one, &frontends);
    for (vip, is_v6) in [(VIP, false), (vip_v6(), true)] {
        for from in PODS {
            assert_eq!(forwards(|| assert!(answered(from.0, at(vip, 80)))), [0, 0], "{vip}");
            let client = Ok(address(from, is_v6).to_string());
            let count = forwards(|| assert_eq!(ask(from.0, at(vip, 53)), client));
            assert_eq!(count[0], 0, "{vip}");
        }
    }
    assert_eq!(misplaced(), 0);
}

#[test]
fn packets_that_the_node_translates_take_the_stack() {
    let name = "packets_that_the_node_translates_take_the_stack";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let _nodes = open(&object, bpffs.path());
    nft(SNAT);
    // The answer to a datagram has the address that was asked for.
    ip("-n router route add 10.90.0.1/32 dev eni0 src 203.0.113.1");
    ip("rule add pref 1024 from 10.0.0.2 to 203.0.113.0/24 lookup main");
    let outside = IpAddr::from([203, 0, 113, 1]);
    for _ in 0..3 {
        for pod in ["a", "b"] {
            assert!(forwards(|| assert!(answered(pod, at(outside, 8080))))[0] > 0);
            let count = forwards(|| {
                assert_eq!(ask(pod, at(outside, 5353)), Ok("10.90.0.1".to_owned()));
            });
            assert!(count[0] > 0, "{pod}");
            assert!(forwards(|| assert!(answered(pod, at(c(false), 80))))[0] > 0, "{pod}");
        }
    }
    assert_eq!(misplaced(), 0);
}

#[test]
fn a_connection_of_kube_proxy_does_not_take_the_path_of_an_earlier_one() {
    let name = "a_connection_of_kube_proxy_does_not_take_the_path_of_an_earlier_one";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    let (web, dns) = (at(c(false), 8080), at(c(false), 5353));
    let port = |port, protocol| Place::Port(VIP, port, protocol);
    let frontends = [(port(80, Protocol::Tcp), to(&[web])), (port(53, Protocol::Udp), to(&[dns]))];
    let tcp = || {
        let stream = TcpStream::from(connected(SockType::Stream, 40_080, at(VIP, 80)));
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        forwards(|| assert!(answers(&stream)))[0]
    };
    let client = Ok("10.0.0.1".to_owned());
    let udp = || forwards(|| assert_eq!(ask_from("a", 40_053, at(VIP, 53)), client))[0];
    serve(&mut nodes.one, &frontends);
    assert_eq!((tcp(), udp()), (0, 0));
    // The NAT of kube-proxy chooses the same backends.
    serve(&mut nodes.one, &[]);
    nft(PROXY);
    assert!(tcp() > 0 && udp() > 0);
    assert_eq!(misplaced(), 0);
}

/// Pod `of` may connect to no port of `to` but this one.
fn only(of: &str, to: IpAddr, port: u16) -> Value {
    let range = format!("{to}/{}", if to.is_ipv6() { 128 } else { 32 });
    policy(
        of,
        json!({
            "podSelector": {"matchLabels": {"app": of}}, "policyTypes": ["Egress"],
            "egress": [{"to": [{"ipBlock": {"cidr": range}}], "ports": [{"port": port}]}],
        }),
    )
}

/// Pod c is reached from the range only.
fn from_only(range: &str) -> Value {
    policy(
        "c",
        json!({
            "podSelector": {"matchLabels": {"app": "c"}}, "policyTypes": ["Ingress"],
            "ingress": [{"from": [{"ipBlock": {"cidr": range}}]}],
        }),
    )
}

pub(crate) fn rejecting(of: &str, direction: &str) -> Value {
    json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "p", "uid": "p"},
        "spec": {
            "priority": 1, "appliedTo": [{"podSelector": {"matchLabels": {"app": of}}}],
            direction: [{"action": "Reject"}],
        },
    })
}

#[test]
fn policies_of_both_nodes_apply_to_each_packet() {
    let name = "policies_of_both_nodes_apply_to_each_packet";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let Nodes { mut one, mut two } = open(&object, bpffs.path());
    let link = in_pod("n2", || if_nametoindex("c").unwrap());
    introduce();
    let server = at(c(false), 8080);
    let open = connect("a", server).unwrap();
    let timed_out = Some(ErrorKind::TimedOut);
    let refused = Some(ErrorKind::ConnectionRefused);
    let counters = |kernel: &Kernel| kernel.programs.counters().unwrap();
    let count = forwards(|| {
        let error = || connect("a", server).err();
        write(&mut one, &[only("a", c(false), 8080)]);
        assert!(answers(&open) && error().is_none());
        write(&mut one, &[only("a", c(false), 8081)]);
        assert!(!answers(&open), "it is no longer allowed");
        assert_eq!(error(), timed_out);
        write(&mut one, &[rejecting("a", "egress")]);
        assert_eq!(error(), refused);
        write(&mut one, &[]);
        let two = &mut two;
        let mut write_c = |policies: &[Value]| write_pods(two, &[(link, C)], policies, |_| {});
        write_c(&[from_only("10.0.0.1/32")]);
        assert_eq!(error(), None);
        write_c(&[from_only("10.0.0.9/32")]);
        assert_eq!(error(), timed_out);
        write_c(&[rejecting("c", "ingress")]);
        assert_eq!(error(), refused);
        write_c(&[]);
        assert_eq!(error(), None);
    });
    assert_eq!(count, [0, 0]);
    let (one, two) = (counters(&one), counters(&two));
    assert!(one["egress_isolation"] > 0 && one["egress_reject"] > 0, "{one:?}");
    assert!(one["revoked_egress"] > 0, "{one:?}");
    assert!(two["ingress_isolation"] > 0 && two["ingress_reject"] > 0, "{two:?}");
    assert_eq!(misplaced(), 0);
}

#[test]
fn an_address_that_moves_to_the_node_is_reached_by_the_stack() {
    let name = "an_address_that_moves_to_the_node_is_reached_by_the_stack";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let _nodes = open(&object, bpffs.path());
    introduce();
    let before = forwards(|| assert!(answered("a", at(c(false), 8080))));
    assert_eq!(before, [0, 0]);
    // The link of a pod that has just started: no map has it yet.
    ip("netns add d");
    connect_pod("d", C.1, "");
    answer(in_pod("d", || listen("0.0.0.0:8080")));
    let count = forwards(|| assert!(answered("a", at(c(false), 8080))));
    assert!(count[0] > 0 && count[1] == 0, "{count:?}");
}

#[test]
fn packets_to_another_node_that_need_the_stack_take_it() {
    let name = "packets_to_another_node_that_need_the_stack_take_it";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let nodes = open(&object, bpffs.path());
    introduce();
    let socket = in_pod("a", || UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket.connect("10.0.1.1:5353").unwrap();
    let exchange = |length: usize| -> Result<(), std::io::Error> {
        socket.send(&vec![7; length])?;
        socket.recv(&mut [0; 64]).map(drop)
    };
    assert_eq!(forwards(|| exchange(1).unwrap())[0], 0);
    // The node is the first hop.
    socket.set_ttl(1).unwrap();
    assert!(exchange(1).is_err());
    socket.set_ttl(64).unwrap();
    assert_eq!(forwards(|| exchange(1400).unwrap())[0], 0, "the connection stays on its path");
    assert!(forwards(|| exchange(4000).unwrap())[0] > 0, "the stack forwards fragments");
    assert_eq!(forwards(|| exchange(1).unwrap())[0], 0);
    // The ENI can be narrower than a pod's link.
    ip("link set dev eni0 mtu 1300");
    assert_eq!(exchange(1400).unwrap_err().raw_os_error(), Some(EMSGSIZE));
    assert_eq!(forwards(|| exchange(1200).unwrap())[0], 0);
    for kernel in [&nodes.one, &nodes.two] {
        assert_eq!(kernel.programs.counters().unwrap()["no_backend"], 0);
    }
}

#[test]
fn a_connection_to_another_node_keeps_its_path() {
    let Some(object) = object("a_connection_to_another_node_keeps_its_path") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let off = Connections { services: true, fast_path: false, ..connections() };
    let mut nodes = open_with(&object, bpffs.path(), &off);
    let server = at(c(false), 8080);
    assert!(answered("a", server));
    let early = connect("a", server).unwrap();
    let count = |stream: &TcpStream| forwards(|| assert!(answers(stream)));
    let by_stack = |stream: &TcpStream| count(stream).iter().all(|count| *count > 0);
    assert!(by_stack(&early), "the setting is off");
    let switch = |fast_path: bool| {
        let connections = Connections { services: true, fast_path, ..connections() };
        for folder in ["maps", "maps2"] {
            Programs::load(&object, Some(&bpffs.path().join(folder)), &connections).unwrap();
        }
    };
    switch(true);
    let late = connect("a", server).unwrap();
    assert_eq!(count(&late), [0, 0]);
    assert!(by_stack(&early), "the first packet took the stack");
    let [a, b] = ["a", "b"].map(|pod| if_nametoindex(pod).unwrap());
    let within = nodes.one.programs.paths(b).unwrap();
    assert_eq!(within, Paths::default());
    let of_a = nodes.one.programs.paths(a).unwrap();
    assert_eq!(of_a, Paths { stack: 1, pods: 0, nodes: 1 }, "closed connections do not count");
    switch(false);
    assert_eq!(count(&late), [0, 0], "the first packet took the fast path");
    assert!(by_stack(&connect("a", server).unwrap()));
    // Without a process the packets keep their paths.
    drop(nodes);
    assert!(by_stack(&early));
    assert_eq!(count(&late), [0, 0]);
}

#[test]
fn a_client_outside_is_answered_by_the_link_of_its_request() {
    let name = "a_client_outside_is_answered_by_the_link_of_its_request";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    // Pod b is on the second ENI. Its node port is asked at the primary one.
    let place = node_port(Family::V4, Protocol::Tcp);
    serve(&mut nodes.one, &[(place, to(&[at(address(PODS[1], false), 8080)]))]);
    nft(PORTS);
    ip("rule add pref 1024 fwmark 0x80/0x80 lookup main");
    let (node, pod) = (IpAddr::from([10, 90, 0, 1]), address(PODS[1], false));
    for port in [0, 40_053] {
        for _ in 0..2 {
            assert!(answered("c", at(node, 30_080)), "a Service");
            assert!(answered("c", at(node, 30_081)), "a host port");
            let client = Ok("10.0.1.1".to_owned());
            assert_eq!(ask_from("c", port, at(node, 30_053)), client, "a host port");
            assert_eq!(ask_from("c", port, at(pod, 5353)), client);
            assert_eq!(forwards(|| assert!(answered("c", at(pod, 8080)))), [0, 0]);
        }
    }
    assert_eq!(misplaced(), 0);
    // The answers to requests by another link than that of the pod leave by the stack.
    ip("-n router route replace 10.0.0.2 via 10.90.0.1 dev eni0");
    let count = forwards(|| assert!(answered("c", at(pod, 8080))));
    assert!(count[0] > 0 && count[1] == 0, "{count:?}");
}

#[test]
fn a_pod_without_a_row_and_a_wire_without_a_gateway_need_the_stack() {
    let name = "a_pod_without_a_row_and_a_wire_without_a_gateway_need_the_stack";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut nodes = open(&object, bpffs.path());
    introduce();
    // The agent has found no gateway, or the wire lacks a program now.
    let open = connect("a", at(c(false), 8080)).unwrap();
    assert_eq!(forwards(|| assert!(answers(&open))), [0, 0]);
    let without = |node| {
        let wires = wires(node).into_iter();
        wires.map(|(link, wire)| (link, Wire { gateways: [None; 2], ..wire })).collect()
    };
    nodes.one.programs.set_wires(&without(None)).unwrap();
    let count = forwards(|| assert!(answers(&open)));
    assert!(count[0] > 0 && count[1] == 0, "{count:?}");
    nodes.one.programs.set_wires(&wires(None)).unwrap();
    nodes.one.programs.set_fast_pods(&FastPods::new()).unwrap();
    for _ in 0..2 {
        let count = forwards(|| assert!(answered("a", at(c(false), 8080))));
        assert!(count[0] > 0 && count[1] == 0, "{count:?}");
        let count = forwards(|| assert!(answered("c", at(address(PODS[0], false), 8080))));
        assert!(count[0] > 0 && count[1] == 0, "{count:?}");
    }
    nodes.two.programs.set_wires(&without(Some("n2"))).unwrap();
    let count = forwards(|| assert!(answered("a", at(c(false), 8080))));
    assert!(count[0] > 0 && count[1] > 0, "{count:?}");
}
