//! Connections that NAT translates: as kube-proxy does it for Services, and masquerading.

use crate::{
    Kernel, object,
    traffic::{
        NODE, SILENCE, answer, answers, attach, connect_to, in_pod, node, stream, wire, write,
    },
};
use datapath_ebpf::Hook;
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket},
    process::{Command, Stdio},
};

/// Virtual addresses and what they stand for.
const RULES: &str = "
table ip proxy {
    chain pre {
        type nat hook prerouting priority dstnat;
        ip daddr 172.20.0.0 tcp dport 80 dnat to 10.0.0.2:8080
        ip daddr 172.20.0.1 tcp dport 80 dnat to 10.0.0.2:8080
        ip daddr 172.20.0.2 tcp dport 80 dnat to 10.9.0.2:8080
        ip daddr 172.20.0.3 tcp dport 80 dnat to 10.9.0.2:9090
        ip daddr 172.20.0.4 tcp dport 80 meta mark set 0x4000 dnat to 10.0.0.2:8080
        ip daddr 172.20.0.5 tcp dport 80 meta mark set 0x4000 dnat to 10.0.0.1:8080
        ip daddr 172.20.0.6 tcp dport 80 dnat to 192.168.0.1:7070
        ip daddr 172.20.0.2 udp dport 53 dnat to 10.9.0.2:5353
        ip daddr 10.9.0.1 tcp dport 30080 meta mark set 0x4000 dnat to 10.0.0.2:8080
        ip daddr 192.168.0.1 udp dport 30053 meta mark set 0x4000 dnat to 10.0.0.2:5353
    }
    chain post {
        type nat hook postrouting priority srcnat;
        meta mark 0x4000 masquerade
        oifname \"wire\" masquerade
    }
}";

pub(crate) fn policy(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"name": name, "namespace": "x", "uid": name}, "spec": spec,
    })
}

/// Pod a is isolated. It may connect to this port of b and of the outside, and to port 5353 of the outside.
pub(crate) fn only_8080(port: u16) -> Value {
    let outside = json!([{"ipBlock": {"cidr": "10.9.0.0/24"}}]);
    let b = json!([{"podSelector": {"matchLabels": {"app": "b"}}}]);
    policy(
        "a",
        json!({
            "podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Ingress", "Egress"],
            "egress": [
                {"to": b, "ports": [{"port": port}]},
                {"to": outside, "ports": [{"port": port}, {"port": 5353, "protocol": "UDP"}]},
            ],
        }),
    )
}

/// Only a may connect to b.
pub(crate) fn only_a() -> Value {
    let a = json!([{"podSelector": {"matchLabels": {"app": "a"}}}]);
    policy("b", json!({"podSelector": {"matchLabels": {"app": "b"}}, "ingress": [{"from": a}]}))
}

/// Pod a may not connect to the node. Unlike NetworkPolicies, policies of the cluster apply to the own node.
pub(crate) fn not_to_node() -> Value {
    json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "p", "uid": "node"},
        "spec": {
            "priority": 1,
            "appliedTo": [{"podSelector": {"matchLabels": {"app": "a"}}}],
            "egress": [{"action": "Drop", "to": [{"ipBlock": {"cidr": "192.168.0.1/32"}}]}],
        },
    })
}

pub(crate) fn vip(last: u8) -> SocketAddr {
    SocketAddr::from(([172, 20, 0, last], 80))
}

pub(crate) fn listen(at: &str) -> TcpListener {
    TcpListener::bind(at).unwrap()
}

/// Adds the outside, which reaches the node by the link `wire`, and the rules.
pub(crate) fn outside() {
    wire();
    let mut nft = Command::new("nft").args(["-f", "-"]).stdin(Stdio::piped()).spawn().unwrap();
    nft.stdin.take().unwrap().write_all(RULES.as_bytes()).unwrap();
    assert!(nft.wait().unwrap().success());
}

/// Answers each datagram to a port of a pod, until the process ends.
fn answer_datagrams(pod: &str, port: u16) {
    let server = in_pod(pod, move || UdpSocket::bind(("0.0.0.0", port)).unwrap());
    std::thread::spawn(move || {
        while let Ok((_, from)) = server.recv_from(&mut [0]) {
            let _ = server.send_to(&[8], from);
        }
    });
}

/// A datagram from a to the virtual address, and whether its answer arrives.
fn datagram_is_answered() -> bool {
    in_pod("a", || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        socket.send_to(&[7], "172.20.0.2:53").unwrap();
        socket.recv(&mut [0]).is_ok()
    })
}

#[test]
fn connections_that_nat_translates_are_judged_where_their_destination_is_final() {
    let name = "connections_that_nat_translates_are_judged_where_their_destination_is_final";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    outside();
    answer(in_pod("b", || listen("0.0.0.0:8080")));
    answer(in_pod("a", || listen("0.0.0.0:8080")));
    answer(in_pod("out", || listen("0.0.0.0:8080")));
    answer(in_pod("out", || listen("0.0.0.0:9090")));
    answer(listen("192.168.0.1:7070"));
    answer_datagrams("out", 5353);
    let mut kernel = Kernel::load(&object, Some(bpffs.path()));
    let own = [NODE, "10.9.0.1"].map(|at| at.parse::<IpAddr>().unwrap().into());
    kernel.own.addresses.extend(own);
    kernel.own.node[0] = own[0];
    write(&mut kernel, &[only_8080(8080), only_a()]);
    attach(&mut kernel);
    kernel.attach(Hook::ToWire, "wire");
    let answered = |at| connect_to(at).is_some_and(|stream| answers(&stream));

    assert!(answered(vip(1)), "a pod of the node behind a virtual address");
    assert!(answered(vip(2)), "the outside behind a virtual address, masqueraded");
    assert!(!answered(vip(3)), "a port to which a may not connect");
    assert!(answered(vip(4)), "the sender is a, whatever source its packet has");
    assert!(answered(vip(5)), "a pod's connection to itself");
    assert!(answered(vip(6)), "the node itself is exempt from NetworkPolicies");
    assert!(datagram_is_answered());
    let from_out = |port| {
        let at = SocketAddr::from(([10, 9, 0, 1], port));
        stream(in_pod("out", move || TcpStream::connect_timeout(&at, SILENCE)))
    };
    assert!(from_out(30080).is_none(), "b accepts a only");
    let a = SocketAddr::from(([10, 0, 0, 1], 8080));
    assert!(stream(TcpStream::connect_timeout(&a, SILENCE)).is_some(), "the node's own process");
    let direct = stream(in_pod("out", move || TcpStream::connect_timeout(&a, SILENCE)));
    assert!(direct.is_none(), "a is isolated");

    // The answer to a masqueraded packet is one to the node's own address.
    let from_anywhere =
        json!({"podSelector": {}, "ingress": [{}], "policyTypes": ["Ingress", "Egress"]});
    let no_node = json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "c", "uid": "c"},
        "spec": {
            "priority": 1, "appliedTo": [{"podSelector": {}}],
            "egress": [{"action": "Drop", "to": [{"ipBlock": {"cidr": "10.9.0.1/32"}}]}],
        },
    });
    write(&mut kernel, &[policy("all", from_anywhere), no_node]);
    let stream = from_out(30080).expect("b accepts everybody");
    assert!(answers(&stream), "the answer leaves although b may not connect to the node");
    write(&mut kernel, &[only_8080(8080), only_a()]);

    // Connections follow changes, by whatever address they were made.
    let open = [vip(1), vip(2), vip(4)].map(|at| connect_to(at).unwrap());
    assert!(open.iter().all(answers));
    write(&mut kernel, &[only_8080(8081), only_a()]);
    assert!(open.iter().all(|stream| !answers(stream)), "they are no longer allowed");
    write(&mut kernel, &[only_8080(8080), only_a()]);
    let deadline = std::time::Instant::now() + SILENCE * 20;
    let recovers = |stream: &TcpStream| {
        while !answers(stream) {
            assert!(std::time::Instant::now() < deadline, "allowed again, it does not continue");
        }
    };
    open.iter().for_each(recovers);
    write(&mut kernel, &[]);
    assert!(from_out(30080).is_some(), "without policies everything passes");
    assert!(answered(vip(3)));
}

/// A Service at the address of [`vip`] 1, and a policy of the cluster with these egress rules of pod a.
fn service_and_rules(rules: &Value) -> [Value; 2] {
    let service = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "s", "namespace": "x", "uid": "s"},
        "spec": {
            "clusterIP": "172.20.0.1", "clusterIPs": ["172.20.0.1"], "selector": {"app": "b"},
            "ports": [{"port": 80, "targetPort": 8080}],
        },
    });
    let policy = json!({
        "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
        "metadata": {"name": "p", "uid": "p"},
        "spec": {
            "priority": 1, "appliedTo": [{"podSelector": {"matchLabels": {"app": "a"}}}],
            "egress": rules,
        },
    });
    [service, policy]
}

/// The first packet after a change is an answer, which does not show the Service that was asked for.
#[test]
fn a_connection_follows_a_policy_about_its_service_also_after_an_answer() {
    let name = "a_connection_follows_a_policy_about_its_service_also_after_an_answer";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    outside();
    let listener = in_pod("b", || listen("0.0.0.0:8080"));
    let mut kernel = Kernel::load(&object, Some(bpffs.path()));
    let s = json!([{"name": "s", "namespace": "x"}]);
    let b = json!([{"podSelector": {"matchLabels": {"app": "b"}}}]);
    let other = json!([{"action": "Drop", "to": [{"ipBlock": {"cidr": "10.99.0.0/16"}}]}]);
    write(&mut kernel, &service_and_rules(&other));
    attach(&mut kernel);
    let connect = || {
        let client = connect_to(vip(1)).unwrap();
        let (server, _) = listener.accept().unwrap();
        server.set_read_timeout(Some(SILENCE)).unwrap();
        (client, server)
    };
    let arrives = |mut from: &TcpStream, mut to: &TcpStream| {
        from.write_all(&[7]).unwrap();
        to.read(&mut [0]).is_ok_and(|count| count == 1)
    };
    let [(client, server), (allowed_client, allowed_server)] = [connect(), connect()];
    assert!(arrives(&client, &server) && arrives(&server, &client));
    assert!(arrives(&allowed_client, &allowed_server));

    write(&mut kernel, &service_and_rules(&json!([{"action": "Drop", "toServices": s}])));
    arrives(&server, &client);
    assert!(!arrives(&client, &server), "the Service is denied");

    let only_service = json!([{"action": "Allow", "toServices": s}, {"action": "Drop", "to": b}]);
    write(&mut kernel, &service_and_rules(&only_service));
    arrives(&allowed_server, &allowed_client);
    let deadline = std::time::Instant::now() + SILENCE * 20;
    while !arrives(&allowed_client, &allowed_server) {
        assert!(std::time::Instant::now() < deadline, "the Service is allowed");
    }
}

/// The kernel forgets a datagram's connection earlier than the programs. Then NAT selects another backend.
#[test]
fn another_backend_of_a_known_connection_is_judged() {
    let Some(object) = object("another_backend_of_a_known_connection_is_judged") else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    outside();
    for port in [5353, 5354] {
        answer_datagrams("out", port);
    }
    let mut kernel = Kernel::load(&object, Some(bpffs.path()));
    write(&mut kernel, &[only_8080(8080)]);
    attach(&mut kernel);
    kernel.attach(Hook::ToWire, "wire");
    let client = in_pod("a", || UdpSocket::bind("0.0.0.0:40000").unwrap());
    client.set_read_timeout(Some(SILENCE)).unwrap();
    let is_answered = || {
        client.send_to(&[7], "172.20.0.2:53").unwrap();
        client.recv(&mut [0]).is_ok()
    };
    for name in ["nf_conntrack_udp_timeout", "nf_conntrack_udp_timeout_stream"] {
        std::fs::write(format!("/proc/sys/net/netfilter/{name}"), "1").unwrap();
    }
    assert!(is_answered());
    let rule = "insert rule ip proxy pre ip daddr 172.20.0.2 udp dport 53 dnat to 10.9.0.2:5354";
    assert!(Command::new("nft").args(rule.split_whitespace()).status().unwrap().success());
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert!(!is_answered(), "port 5354 is not allowed");
    write(&mut kernel, &[]);
    assert!(is_answered(), "without policies the second backend answers");
}

#[test]
fn packets_to_the_own_node_are_judged_with_and_without_nat() {
    let Some(object) = object("packets_to_the_own_node_are_judged_with_and_without_nat") else {
        return;
    };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    outside();
    answer(listen("192.168.0.1:7070"));
    answer(in_pod("a", || listen("0.0.0.0:8080")));
    let mut kernel = Kernel::load(&object, Some(bpffs.path()));
    let own = [NODE, "10.9.0.1"].map(|at| at.parse::<IpAddr>().unwrap().into());
    kernel.own.addresses.extend(own);
    kernel.own.node[0] = own[0];
    write(&mut kernel, &[]);
    attach(&mut kernel);
    kernel.attach(Hook::ToWire, "wire");
    let server = SocketAddr::from(([192, 168, 0, 1], 7070));
    let probe = || {
        let a = SocketAddr::from(([10, 0, 0, 1], 8080));
        stream(TcpStream::connect_timeout(&a, SILENCE)).is_some_and(|stream| answers(&stream))
    };
    assert!(connect_to(server).is_some() && connect_to(vip(6)).is_some() && probe());

    let open = connect_to(server).unwrap();
    assert!(answers(&open));
    write(&mut kernel, &[not_to_node()]);
    assert!(!answers(&open), "a connection to the node ends too");
    assert!(connect_to(server).is_none());
    assert!(connect_to(vip(6)).is_none(), "the answer of the node is judged");
    assert!(probe(), "the node may connect to the pod, and the pod answers");
    write(&mut kernel, &[]);
    assert!(connect_to(server).is_some() && connect_to(vip(6)).is_some());
}

/// The node translates both ends. It sends the answer of pod b to itself, and then to pod a.
#[test]
fn datagrams_between_two_pods_by_a_port_of_their_node_are_answered() {
    let name = "datagrams_between_two_pods_by_a_port_of_their_node_are_answered";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    node(bpffs.path());
    outside();
    answer_datagrams("b", 5353);
    let mut kernel = Kernel::load(&object, Some(bpffs.path()));
    let own = [NODE, "10.9.0.1"].map(|at| at.parse::<IpAddr>().unwrap().into());
    kernel.own.addresses.extend(own);
    kernel.own.node[0] = own[0];
    write(&mut kernel, &[]);
    attach(&mut kernel);
    kernel.attach(Hook::ToWire, "wire");
    let client = in_pod("a", || UdpSocket::bind("0.0.0.0:0").unwrap());
    client.set_read_timeout(Some(SILENCE)).unwrap();
    let is_answered = || {
        client.send_to(&[7], "192.168.0.1:30053").unwrap();
        client.recv(&mut [0]).is_ok()
    };
    assert!(is_answered());
    let isolated = |app: &str, port: u16| {
        let b = json!([{"podSelector": {"matchLabels": {"app": "b"}}}]);
        let egress = json!([{"to": b, "ports": [{"port": port, "protocol": "UDP"}]}]);
        let subject = json!({"matchLabels": {"app": app}});
        let types = ["Ingress", "Egress"];
        let mut spec = json!({"podSelector": subject, "policyTypes": types, "egress": egress});
        if app == "b" {
            spec["ingress"] = json!([{}]);
        }
        policy(app, spec)
    };
    write(&mut kernel, &[isolated("a", 5353), isolated("b", 5353)]);
    for _ in 0..3 {
        assert!(is_answered(), "policies allow it");
    }
    write(&mut kernel, &[isolated("a", 5354), isolated("b", 5353)]);
    assert!(!is_answered(), "the port is not allowed");
    write(&mut kernel, &[isolated("a", 5353), isolated("b", 5353)]);
    assert!(is_answered() && is_answered());
}
