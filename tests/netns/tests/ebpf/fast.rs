//! The fast path between two pods of a node: packets without the host's stack.

use crate::{
    Kernel, connections,
    hostile::{PASS, frame},
    nat::{only_8080, only_a},
    object,
    same_port::connected,
    service::{
        VIP, answer_datagrams, answered, any, ask, at, bound, connect_error, serve, start,
        start_with, to, vip_v6,
    },
    traffic::{
        PODS, SILENCE, answer, answers, attach, connect_pod, connect_to, in_pod, ip, v6_of, write,
    },
};
use config_settings::Connections;
use datapath_ebpf::{FastPods, Hook, Programs};
use nix::{
    net::if_::if_nametoindex,
    sys::socket::{
        AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, SockaddrStorage, recv, sendto,
        setsockopt, socket, sockopt::ReceiveTimeout,
    },
    sys::time::TimeVal,
};
use routing_netlink::Socket;
use serde_json::{Value, json};
use service_core::Place;
use service_objects::Protocol;
use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket},
    os::fd::AsRawFd as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

/// Counts the packets that the host's stack forwards.
pub(crate) const COUNT: &str = "
table inet count {
    chain forward {
        type filter hook forward priority 0;
        counter
    }
}";
/// Ports of the node that lead to pod b.
const HOST_PORTS: &str = "
table ip ports {
    chain pre {
        type nat hook prerouting priority dstnat;
        ip daddr 192.168.0.1 udp dport 30053 dnat to 10.0.0.2:5353
        ip daddr 192.168.0.1 tcp dport 30080 dnat to 10.0.0.2:8080
    }
}";
/// An acknowledgment is sent within this time.
const QUIET: Duration = Duration::from_millis(250);
/// linux/errno.h
const EMSGSIZE: i32 = 90;

pub(crate) fn nft(rules: &str) {
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    writeln!(nft.stdin.take().unwrap(), "{rules}").unwrap();
    assert!(nft.wait().unwrap().success());
}

/// The packets that the host's stack has forwarded.
pub(crate) fn forwarded() -> u64 {
    let list = Command::new("nft").args(["list", "chain", "inet", "count", "forward"]).output();
    let text = String::from_utf8(list.unwrap().stdout).unwrap();
    let mut words = text.split_whitespace().skip_while(|word| *word != "packets");
    words.nth(1).unwrap().parse().unwrap()
}

/// The packets that the host's stack forwards meanwhile. Late acknowledgments of earlier connections do not count.
fn forwards(run: impl FnOnce()) -> u64 {
    let mut before = forwarded();
    loop {
        thread::sleep(QUIET);
        let now = forwarded();
        if now == before {
            break;
        }
        before = now;
    }
    run();
    forwarded() - before
}

/// Lets the fast path reach both pods.
pub(crate) fn reach(kernel: &mut Kernel) {
    let mut pods = FastPods::new();
    for (pod, address) in PODS {
        let link = if_nametoindex(pod).unwrap();
        for address in [address.parse().unwrap(), IpAddr::from(v6_of(pod))] {
            pods.insert(address.into(), link);
        }
    }
    kernel.programs.set_fast_pods(&pods).unwrap();
    assert!(!kernel.programs.set_fast_pods(&pods).unwrap(), "the map has these rows");
}

/// True if a datagram of a pod is answered by the other one.
fn is_asked(from: &'static str, to: &str, is_v6: bool) -> bool {
    let to = match (is_v6, to) {
        (true, _) => IpAddr::from(v6_of(to)),
        (false, "a") => [10, 0, 0, 1].into(),
        (false, _) => [10, 0, 0, 2].into(),
    };
    in_pod(from, move || {
        let any: IpAddr = if is_v6 { [0; 16].into() } else { [0; 4].into() };
        let socket = UdpSocket::bind((any, 0)).unwrap();
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        socket.connect((to, 5353)).unwrap();
        socket.send(&[7]).unwrap();
        socket.recv(&mut [0; 64]).is_ok()
    })
}

/// The node of other tests of Services with a count of forwarded packets. Both pods have sent a frame.
fn open(object: &Path, bpffs: &Path) -> Kernel {
    let mut kernel = start(object, bpffs);
    introduce(&mut kernel);
    kernel
}

/// Both pods send a frame.
pub(crate) fn introduce(kernel: &mut Kernel) {
    nft(COUNT);
    reach(kernel);
    for is_v6 in [false, true] {
        assert!(is_asked("a", "b", is_v6) && is_asked("b", "a", is_v6));
    }
}

fn fast(kernel: &Kernel) -> u64 {
    kernel.programs.counters().unwrap()["fast_path"]
}

fn b(is_v6: bool) -> IpAddr {
    if is_v6 { v6_of("b").into() } else { [10, 0, 0, 2].into() }
}

/// The same maps with another setting, as the agent has them after a restart.
fn switch(object: &Path, bpffs: &Path, fast_path: bool) {
    let connections = Connections { services: true, fast_path, ..connections() };
    Programs::load(object, Some(&bpffs.join("maps")), &connections).unwrap();
}

/// Sends an echo request of a pod by a raw socket. True if it is answered.
pub(crate) fn pings(from: &str, to: IpAddr) -> bool {
    in_pod(from, move || {
        let (family, icmp) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, SockProtocol::Icmp),
            IpAddr::V6(_) => (AddressFamily::Inet6, SockProtocol::IcmpV6),
        };
        let socket = socket(family, SockType::Raw, SockFlag::empty(), icmp).unwrap();
        setsockopt(&socket, ReceiveTimeout, &TimeVal::new(0, 400_000)).unwrap();
        // Type, checksum, number 1 and sequence 1. The kernel writes the checksum of ICMPv6.
        let (echo, start, answer) = match to {
            IpAddr::V4(_) => ([8, 0, 0xf7, 0xfd, 0, 1, 0, 1], 20, 0),
            IpAddr::V6(_) => ([128, 0, 0, 0, 0, 1, 0, 1], 0, 129),
        };
        let at = SockaddrStorage::from(SocketAddr::new(to, 0));
        sendto(socket.as_raw_fd(), &echo, &at, MsgFlags::empty()).unwrap();
        let mut bytes = [0; 64];
        // The socket receives neighbor discovery too.
        while recv(socket.as_raw_fd(), &mut bytes, MsgFlags::empty()).is_ok() {
            if bytes[start] == answer {
                return true;
            }
        }
        false
    })
}

#[test]
fn packets_between_two_pods_pass_no_rule_of_the_host() {
    let Some(object) = object("packets_between_two_pods_pass_no_rule_of_the_host") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let mut frontends = Vec::new();
    for (vip, is_v6) in [(VIP, false), (vip_v6(), true)] {
        frontends.push((Place::Port(vip, 80, Protocol::Tcp), to(&[at(b(is_v6), 8080)])));
        frontends.push((Place::Port(vip, 53, Protocol::Udp), to(&[at(b(is_v6), 5353)])));
    }
    serve(&mut kernel, &frontends);
    let clients = [Ok("10.0.0.1".to_owned()), Ok(v6_of("a").to_string())];
    for (vip, is_v6) in [(VIP, false), (vip_v6(), true)] {
        for address in [b(is_v6), vip] {
            let before = fast(&kernel);
            let port = if address == vip { 80 } else { 8080 };
            let count = forwards(|| assert!(answered(at(address, port)), "{address}"));
            assert_eq!((count, fast(&kernel) - before), (0, 1), "TCP to {address}");
            let port = if address == vip { 53 } else { 5353 };
            let client = &clients[usize::from(is_v6)];
            let count = forwards(|| assert_eq!(ask(0, at(address, port)), *client, "{address}"));
            assert_eq!((count, fast(&kernel) - before), (0, 2), "UDP to {address}");
        }
    }
    assert_eq!(forwards(|| assert!(pings("a", b(false)))), 0);
    // Beyond the node, and through a Service to itself, the stack has them.
    assert!(forwards(|| assert!(answered(at([10, 9, 0, 2], 8080)))) > 0);
    serve(&mut kernel, &[(Place::Port(VIP, 81, Protocol::Tcp), to(&[at([10, 0, 0, 1], 8080)]))]);
    assert!(forwards(|| assert!(answered(at(VIP, 81)))) > 0);
    let counters = kernel.programs.counters().unwrap();
    assert_eq!((counters["no_backend"], counters["origin_ended"]), (0, 0), "{counters:?}");
}

#[test]
fn a_pod_that_has_sent_nothing_shows_its_mac_when_the_host_asks_for_it() {
    let name = "a_pod_that_has_sent_nothing_shows_its_mac_when_the_host_asks_for_it";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = start(&object, bpffs.path());
    nft(COUNT);
    reach(&mut kernel);
    // Pod a claims the address of pod b, to the MAC of its own link.
    let of_b = [2, 0, 0, 0, 0, 9, 10, 0, 0, 2];
    let to_a = [2, 0, 0, 0, 0, 1, 10, 0, 0, 1];
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 2], &of_b[..], &to_a].concat();
    let a = if_nametoindex("a").unwrap();
    let passed = kernel.programs.test(Hook::FromPod, &frame(0x806, &arp), a, a, 0).unwrap();
    assert_eq!(passed, PASS);
    for is_v6 in [false, true] {
        let silent = kernel.programs.silent_pods().unwrap();
        let of_family = silent.into_iter().filter(|(_, address)| address.is_ipv6() == is_v6);
        let of_family: Vec<_> = of_family.collect();
        assert!(of_family.iter().any(|(_, address)| *address == b(is_v6)), "{of_family:?}");
        Socket::open().unwrap().resolve(&of_family).unwrap();
        let deadline = std::time::Instant::now() + SILENCE * 20;
        let is_silent = |(_, address): &(_, IpAddr)| address.is_ipv6() == is_v6;
        while kernel.programs.silent_pods().unwrap().iter().any(is_silent) {
            assert!(std::time::Instant::now() < deadline, "no MAC");
            thread::sleep(Duration::from_millis(10));
        }
        let count = forwards(|| assert!(answered(at(b(is_v6), 8080)), "{is_v6}"));
        assert_eq!(count, 0, "{is_v6}");
    }
}

#[test]
fn events_show_the_path() {
    let Some(object) = object("events_show_the_path") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let mut events = kernel.programs.take_events();
    kernel.programs.want_events(true, 1000).unwrap();
    assert!(answered(at([10, 0, 0, 2], 8080)) && answered(at([10, 9, 0, 2], 8080)));
    let found: Vec<(IpAddr, bool)> = std::iter::from_fn(|| events.next())
        .map(|event| {
            let address = std::net::Ipv6Addr::from_bits(event.destination.0).to_canonical();
            (address, event.is_fast)
        })
        .collect();
    assert_eq!(found, [([10, 0, 0, 2].into(), true), ([10, 9, 0, 2].into(), false)]);
}

#[test]
fn a_pod_without_a_row_is_reached_by_the_stack() {
    let Some(object) = object("a_pod_without_a_row_is_reached_by_the_stack") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let rows = |pod: &str| {
        let (_, address) = PODS.into_iter().find(|(of, _)| *of == pod).unwrap();
        let address: IpAddr = address.parse().unwrap();
        FastPods::from([(address.into(), if_nametoindex(pod).unwrap())])
    };
    // The sender or the receiver may have a queue that limits its packets.
    for pod in ["a", "b"] {
        kernel.programs.set_fast_pods(&rows(pod)).unwrap();
        let before = fast(&kernel);
        assert!(
            forwards(|| assert!(answered(at([10, 0, 0, 2], 8080)))) > 0,
            "only {pod} has a row"
        );
        assert_eq!(fast(&kernel), before);
    }
}

#[test]
fn policies_of_both_pods_apply() {
    let Some(object) = object("policies_of_both_pods_apply") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let tcp = Place::Port(VIP, 80, Protocol::Tcp);
    serve(&mut kernel, &[(tcp, to(&[at([10, 0, 0, 2], 8080)]))]);
    let places = [at([10, 0, 0, 2], 8080), at(v6_of("b"), 8080), at(VIP, 80)];
    let cluster = |app: &str, direction: &str, action: &str| {
        json!({
            "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
            "metadata": {"name": "p", "uid": "p"},
            "spec": {
                "priority": 1, "appliedTo": [{"podSelector": {"matchLabels": {"app": app}}}],
                direction: [{"action": action}],
            },
        })
    };
    let mut check = |policies: &[Value], error: Option<ErrorKind>, reason: Option<&str>| {
        write(&mut kernel, policies);
        let before = kernel.programs.counters().unwrap();
        let count = forwards(|| {
            for to in places {
                assert_eq!(connect_error(to), error, "{to} with {policies:?}");
            }
        });
        assert_eq!(count, 0, "{policies:?}");
        let after = kernel.programs.counters().unwrap();
        if let Some(reason) = reason {
            assert!(after[reason] >= before[reason] + 3, "{reason}: {after:?}");
        }
    };
    check(&[only_8080(8080), only_a()], None, None);
    check(&[only_8080(8081), only_a()], Some(ErrorKind::TimedOut), Some("egress_isolation"));
    let only_b = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "b", "namespace": "x", "uid": "b"},
        "spec": {"podSelector": {"matchLabels": {"app": "b"}}, "policyTypes": ["Ingress"]},
    });
    check(&[only_b], Some(ErrorKind::TimedOut), Some("ingress_isolation"));
    let refused = Some(ErrorKind::ConnectionRefused);
    check(&[cluster("b", "ingress", "Reject")], refused, Some("ingress_reject"));
    check(&[cluster("a", "egress", "Reject")], refused, Some("egress_reject"));
    check(&[cluster("b", "ingress", "Drop")], Some(ErrorKind::TimedOut), Some("ingress_rule"));
    check(&[], None, None);
    // An echo request in the other direction of an echo is no answer to it.
    let silent_b = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": "b", "namespace": "x", "uid": "b"},
        "spec": {"podSelector": {"matchLabels": {"app": "b"}}, "policyTypes": ["Egress"]},
    });
    write(&mut kernel, &[silent_b]);
    assert!(pings("a", b(false)) && pings("a", b(true)));
    assert!(!pings("b", [10, 0, 0, 1].into()) && !pings("b", v6_of("a").into()));
    // A rejected datagram is answered from the address that was asked for.
    write(&mut kernel, &[cluster("b", "ingress", "Reject")]);
    let count = forwards(|| {
        let error = ask(0, at([10, 0, 0, 2], 5353)).unwrap_err();
        assert_eq!(error, ErrorKind::HostUnreachable);
    });
    assert_eq!(count, 0);
}

#[test]
fn a_connection_on_the_fast_path_follows_changes_of_policies() {
    let name = "a_connection_on_the_fast_path_follows_changes_of_policies";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let tcp = Place::Port(VIP, 80, Protocol::Tcp);
    serve(&mut kernel, &[(tcp, to(&[at([10, 0, 0, 2], 8080)]))]);
    write(&mut kernel, &[only_8080(8080), only_a()]);
    let open = [at([10, 0, 0, 2], 8080), at(v6_of("b"), 8080), at(VIP, 80)]
        .map(|to| connect_to(to).unwrap());
    let count = forwards(|| {
        assert!(open.iter().all(answers));
        write(&mut kernel, &[only_8080(8081), only_a()]);
        assert!(open.iter().all(|stream| !answers(stream)), "they are no longer allowed");
        write(&mut kernel, &[only_8080(8080), only_a()]);
        let deadline = std::time::Instant::now() + SILENCE * 20;
        for stream in &open {
            while !answers(stream) {
                assert!(std::time::Instant::now() < deadline, "it is allowed again");
            }
        }
    });
    assert_eq!(count, 0);
    let counters = kernel.programs.counters().unwrap();
    assert!(counters["revoked_egress"] >= 3, "{counters:?}");
}

#[test]
fn a_connection_keeps_its_path_when_the_setting_changes() {
    let Some(object) = object("a_connection_keeps_its_path_when_the_setting_changes") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    let off = Connections { services: true, fast_path: false, ..connections() };
    let mut kernel = start_with(&object, bpffs.path(), &off);
    introduce(&mut kernel);
    let server = at([10, 0, 0, 2], 8080);
    let datagrams = |port: u16| {
        let socket = in_pod("a", move || UdpSocket::bind(("0.0.0.0", port)).unwrap());
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        socket.connect("10.0.0.2:5353").unwrap();
        move || socket.send(&[7]).is_ok() && socket.recv(&mut [0; 64]).is_ok()
    };
    let (early, early_datagrams) = (connect_to(server).unwrap(), datagrams(7001));
    let by_stack = |stream: &TcpStream| forwards(|| assert!(answers(stream))) > 0;
    assert!(by_stack(&early));
    assert!(forwards(|| assert!(early_datagrams())) > 0);
    assert_eq!(fast(&kernel), 0, "the setting is off");

    switch(&object, bpffs.path(), true);
    let (late, late_datagrams) = (connect_to(server).unwrap(), datagrams(7002));
    assert!(!by_stack(&late));
    assert_eq!(forwards(|| assert!(late_datagrams())), 0);
    assert!(by_stack(&early), "the first packet took the stack");
    assert!(forwards(|| assert!(early_datagrams())) > 0, "the first packet took the stack");

    switch(&object, bpffs.path(), false);
    assert!(!by_stack(&late), "the first packet took the fast path");
    assert_eq!(forwards(|| assert!(late_datagrams())), 0, "the first packet took the fast path");
    assert!(by_stack(&connect_to(server).unwrap()));

    for pod in ["a", "b"] {
        // Of both, with a connection and a datagram on each path. The last connection has ended.
        let paths = kernel.programs.paths(if_nametoindex(pod).unwrap()).unwrap();
        assert_eq!((paths.pods, paths.nodes), (2, 0), "{pod}");
        assert!(paths.stack >= 2, "{paths:?}");
    }
    // Without a process the packets keep their paths.
    drop(kernel);
    assert!(by_stack(&early) && !by_stack(&late));
}

#[test]
fn packets_that_need_the_stack_take_it() {
    let Some(object) = object("packets_that_need_the_stack_take_it") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let kernel = open(&object, bpffs.path());
    let socket = in_pod("a", || UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket.connect("10.0.0.2:5353").unwrap();
    let exchange = |length: usize| -> Result<(), std::io::Error> {
        socket.send(&vec![7; length])?;
        socket.recv(&mut [0; 64]).map(drop)
    };
    assert_eq!(forwards(|| exchange(1).unwrap()), 0);
    // The node is the first hop.
    socket.set_ttl(1).unwrap();
    assert_eq!(exchange(1).unwrap_err().kind(), ErrorKind::WouldBlock);
    socket.set_ttl(64).unwrap();
    assert_eq!(forwards(|| exchange(1400).unwrap()), 0, "the connection stays on its path");
    // The stack forwards fragments. The answer is short.
    assert!(forwards(|| exchange(4000).unwrap()) > 0);
    assert_eq!(forwards(|| exchange(1).unwrap()), 0);
    // The port has no listener: the error of pod b is about a packet on the fast path.
    assert_eq!(ask(0, at([10, 0, 0, 2], 9)), Err(ErrorKind::ConnectionRefused));
    // A pod's link can be narrower than that of another.
    ip("link set dev b mtu 1280");
    ip("-n b link set eth0 mtu 1280");
    assert_eq!(exchange(1400).unwrap_err().raw_os_error(), Some(EMSGSIZE));
    assert_eq!(forwards(|| exchange(1200).unwrap()), 0);
    assert!(forwards(|| exchange(1400).unwrap()) > 0, "the sender makes fragments now");
    assert_eq!(kernel.programs.counters().unwrap()["no_backend"], 0);
}

#[test]
fn large_segments_arrive_as_they_were_sent() {
    let Some(object) = object("large_segments_arrive_as_they_were_sent") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let listener = in_pod("b", || TcpListener::bind("[::]:9000").unwrap());
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            stream.write_all(&all).unwrap();
        }
    });
    let mut frontends = Vec::new();
    for (vip, is_v6) in [(VIP, false), (vip_v6(), true)] {
        frontends.push((Place::Port(vip, 90, Protocol::Tcp), to(&[at(b(is_v6), 9000)])));
    }
    serve(&mut kernel, &frontends);
    let sent: Vec<u8> = (0..4_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    for to in [at(VIP, 90), at(vip_v6(), 90)] {
        let count = forwards(|| {
            let mut stream = connect_to(to).unwrap();
            stream.set_read_timeout(None).unwrap();
            stream.write_all(&sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut received = Vec::new();
            stream.read_to_end(&mut received).unwrap();
            assert!(received == sent, "{to}: {} bytes", received.len());
        });
        assert_eq!(count, 0, "{to}");
    }
}

#[test]
fn a_packet_in_the_middle_of_an_unknown_connection_takes_the_stack() {
    let name = "a_packet_in_the_middle_of_an_unknown_connection_takes_the_stack";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let stream = connect_to(at([10, 0, 0, 2], 8080)).unwrap();
    assert_eq!(forwards(|| assert!(answers(&stream))), 0);
    kernel.programs.clear_flows().unwrap();
    assert!(forwards(|| assert!(answers(&stream))) > 0);
    assert!(forwards(|| assert!(answers(&stream))) > 0, "it stays there");
    // Pod a sends from another address.
    let before = kernel.programs.counters().unwrap()["spoofed_v4"];
    ip("-n a addr add 10.0.0.9/32 dev eth0");
    ip("-n a route replace 10.0.0.2/32 via 169.254.1.1 dev eth0 src 10.0.0.9");
    assert!(connect_to(at([10, 0, 0, 2], 8080)).is_none());
    assert!(kernel.programs.counters().unwrap()["spoofed_v4"] > before);
}

#[test]
fn a_service_and_its_backend_answer_one_port_of_a_client() {
    let name = "a_service_and_its_backend_answer_one_port_of_a_client";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let (backend, service) = (at(b(false), 5353), at(VIP, 53));
    serve(&mut kernel, &[(Place::Port(VIP, 53, Protocol::Udp), to(&[backend]))]);
    // A long datagram takes the stack, which makes fragments of it. Its answer takes the fast path.
    ip("link set dev b mtu 1280");
    let socket = in_pod("a", move || {
        std::fs::write("/proc/sys/net/ipv4/ip_no_pmtu_disc", "1").unwrap();
        bound(any(backend, 40_053))
    });
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    let exchange = |to, length| {
        socket.send_to(&vec![7; length], to).unwrap();
        assert_eq!(socket.recv_from(&mut [0; 64]).map(|of| of.1).ok(), Some(to));
    };
    for length in [1, 1400, 1] {
        assert_eq!(forwards(|| (0..3).for_each(|_| exchange(backend, 1))), 0);
        exchange(service, length);
        assert_eq!(forwards(|| (0..3).for_each(|_| exchange(service, 1))), 0);
    }
}

#[test]
fn a_service_at_the_address_of_a_pod_receives_a_later_connection_of_the_same_ends() {
    let name = "a_service_at_the_address_of_a_pod_receives_a_later_connection_of_the_same_ends";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    answer(in_pod("b", || TcpListener::bind("0.0.0.0:9000")).unwrap());
    let pod = at(b(false), 8080);
    let exchange = || {
        let stream = TcpStream::from(connected(SockType::Stream, 40_080, pod));
        stream.set_read_timeout(Some(SILENCE)).unwrap();
        let count = forwards(|| (0..3).for_each(|_| assert!(answers(&stream))));
        assert_eq!(count, 0);
        let peer = stream.peer_addr().unwrap();
        // The next connection needs the same port, which is free once both ends are closed.
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!((&stream).read(&mut [0]).unwrap(), 0);
        peer
    };
    let backend = |kernel: &Kernel| {
        let row = kernel.programs.counters().unwrap()["chosen_for_pod"];
        (exchange(), kernel.programs.counters().unwrap()["chosen_for_pod"] - row)
    };
    assert_eq!(backend(&kernel), (pod, 0));
    for port in [9000, 8080] {
        let place = Place::Port(pod.ip(), pod.port(), Protocol::Tcp);
        serve(&mut kernel, &[(place, to(&[at(b(false), port)]))]);
        assert_eq!(backend(&kernel), (pod, 1), "port {port}");
    }
    serve(&mut kernel, &[]);
    assert_eq!(backend(&kernel), (pod, 0));
}

#[test]
fn answers_to_a_port_of_the_node_are_translated_by_the_stack() {
    let name = "answers_to_a_port_of_the_node_are_translated_by_the_stack";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    nft(HOST_PORTS);
    let (port, client) = (at([192, 168, 0, 1], 30_053), Ok("10.0.0.1".to_owned()));
    // A connection to the pod itself is on the fast path. One from the same port to the host port has its ends.
    assert_eq!(forwards(|| assert_eq!(ask(40_053, at([10, 0, 0, 2], 5353)), client)), 0);
    for _ in 0..2 {
        assert_eq!(ask(40_053, port), client);
    }
    let before = fast(&kernel);
    for _ in 0..3 {
        assert_eq!(ask(0, port), client);
        assert!(answered(at([192, 168, 0, 1], 30_080)));
    }
    assert_eq!(fast(&kernel), before);
    // Other connections of both pods stay on the fast path.
    assert_eq!(forwards(|| assert!(is_asked("a", "b", false))), 0);
    assert_eq!(forwards(|| assert!(answered(at([10, 0, 0, 2], 8080)))), 0);
    // The link of pod b is unfit for a time. An open connection has no first packet that could mark the pod again.
    let socket = in_pod("a", || UdpSocket::bind("0.0.0.0:0").unwrap());
    socket.set_read_timeout(Some(SILENCE)).unwrap();
    socket.connect(port).unwrap();
    let exchange = || {
        socket.send(&[7]).unwrap();
        socket.recv(&mut [0; 64]).map(drop)
    };
    exchange().unwrap();
    kernel.programs.set_fast_pods(&FastPods::new()).unwrap();
    reach(&mut kernel);
    assert!(is_asked("a", "b", false) && is_asked("b", "a", false), "both pods send a frame");
    exchange().unwrap();
}

#[test]
fn a_pod_with_another_link_is_another_pod() {
    let Some(object) = object("a_pod_with_another_link_is_another_pod") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let mut kernel = open(&object, bpffs.path());
    let server = at([10, 0, 0, 2], 8080);
    assert_eq!(forwards(|| assert!(answered(server))), 0);
    let address: Ipv4Addr = PODS[1].1.parse().unwrap();
    ip("link del dev b");
    assert!(connect_error(server).is_some(), "the link does not exist");
    ip("netns del b");
    ip("netns add b");
    connect_pod("b", &address.to_string(), "");
    answer(in_pod("b", || TcpListener::bind("0.0.0.0:8080").unwrap()));
    answer_datagrams("b", 5353);
    assert!(answered(server), "the agent has not seen the link yet");
    write(&mut kernel, &[]);
    attach(&mut kernel);
    reach(&mut kernel);
    assert!(is_asked("b", "a", false), "the new link has another MAC");
    assert_eq!(forwards(|| assert!(answered(server))), 0);
}
