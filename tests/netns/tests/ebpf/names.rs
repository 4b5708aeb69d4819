//! DNS names: answers to a pod, and the connections to their addresses.

mod agent;
mod server;

use crate::{
    connections,
    nat::outside,
    object,
    traffic::{SILENCE, answer, answers, connect_to, in_pod, ip, node, v6_of},
};
use agent::{Agent, state};
use config_settings::Connections;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use server::{Server, ask, ask_by_tcp};
use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket},
    path::Path,
    process::Command,
    time::Duration,
};
use tests_eventually::eventually;

/// The server behind a virtual address, as the pod knows it.
const OUTSIDE: &str = "172.20.0.2:53";
/// The server in pod b.
const NEIGHBOR: &str = "10.0.0.2:53";

/// Pod a may ask both servers, and may connect to port 8080 of the names.
fn policy(names: &[&str]) -> Value {
    let servers =
        json!([{"ipBlock": {"cidr": "10.9.0.2/32"}}, {"ipBlock": {"cidr": "10.0.0.2/32"}}]);
    let dns = json!([
        {"protocol": "UDP", "port": 53}, {"protocol": "UDP", "port": 5353}, {"protocol": "TCP", "port": 53},
    ]);
    json!({
        "apiVersion": "networking.k8s.aws/v1alpha1", "kind": "ApplicationNetworkPolicy",
        "metadata": {"name": "a", "namespace": "x", "uid": "a"},
        "spec": {
            "podSelector": {"matchLabels": {"app": "a"}}, "policyTypes": ["Egress"],
            "egress": [
                {"to": servers, "ports": dns},
                {"to": [{"domainNames": names}], "ports": [{"protocol": "TCP", "port": 8080}]},
            ],
        },
    })
}

/// An address of the outside.
fn address(last: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 9, 0, last)
}

/// A node with pods a and b, an outside with these addresses, and DNS servers there and in pod b.
fn world(bpffs: &Path) -> [Server; 2] {
    node(bpffs);
    outside();
    for last in 10..60 {
        ip(&format!("-n out addr add {}/32 dev eth0", address(last)));
    }
    ip("route add 10.9.0.0/24 dev wire metric 1");
    answer(in_pod("out", || TcpListener::bind("0.0.0.0:8080").unwrap()));
    [Server::start("out", at("10.9.0.2:5353")), Server::start("b", at(NEIGHBOR))]
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

fn connects(last: u8) -> bool {
    connect_to(SocketAddr::from((address(last), 8080))).is_some_and(|stream| answers(&stream))
}

fn asks(server: &str, name: &str) -> Option<Vec<IpAddr>> {
    let (server, name) = (at(server), name.to_owned());
    in_pod("a", move || ask(server, &name))
}

#[test]
fn a_pod_connects_to_a_name_as_soon_as_it_has_the_answer() {
    let name = "a_pod_connects_to_a_name_as_soon_as_it_has_the_answer";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let [outside, neighbor] = world(bpffs.path());
    let mut agent = Agent::start(&object, bpffs.path(), &[policy(&["*.corp.test"])]);
    for last in 10..20 {
        // Also from a process on the node itself whose checksum is not complete.
        let (at, server) = if last % 2 == 0 { (OUTSIDE, &outside) } else { (NEIGHBOR, &neighbor) };
        let name = format!("w{last}.corp.test");
        server.set(&name, &[address(last)]);
        assert!(!connects(last), "{name} is not resolved");
        assert_eq!(asks(at, &name), Some(vec![address(last).into()]));
        // A packet that is dropped is sent again only after this test has given up.
        assert!(connects(last), "{name} is resolved: {:?}", agent.counters());
    }
    neighbor.set("other.example", &[address(40)]);
    assert_eq!(asks(NEIGHBOR, "other.example"), Some(vec![address(40).into()]));
    assert!(!connects(40), "no rule has the name");
    assert_eq!(asks(NEIGHBOR, "none.corp.test"), Some(vec![]));
    let counters = agent.counters();
    assert_eq!((counters["dns_held"], counters["dns_added"]), (12, 10), "{counters:?}");
    assert_eq!((counters["dns_late"], counters["dns_unsent"]), (0, 0), "{counters:?}");
    // Without the rule the addresses are not allowed, and answers pass.
    agent.apply(&[policy(&["other.example"])]);
    assert!(!connects(10));
    assert_eq!(asks(OUTSIDE, "w10.corp.test"), Some(vec![address(10).into()]));
    assert!(!connects(10));
    agent.apply(&[]);
    assert_eq!(asks(NEIGHBOR, "w11.corp.test"), Some(vec![address(11).into()]));
    assert!(connects(11) && connects(50), "a pod without policies is open");
}

/// The agent sends them to the pod with the MACs that they have in the host's stack.
#[test]
fn answers_of_a_pod_on_the_fast_path_are_held_too() {
    let name = "answers_of_a_pod_on_the_fast_path_are_held_too";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let [_, neighbor] = world(bpffs.path());
    let connections = Connections { services: true, ..connections() };
    let policies = [policy(&["*.corp.test"])];
    let mut agent = Agent::start_with(&object, bpffs.path(), &policies, connections);
    for last in 10..20 {
        let name = format!("w{last}.corp.test");
        neighbor.set(&name, &[address(last)]);
        assert_eq!(asks(NEIGHBOR, &name), Some(vec![address(last).into()]));
        assert!(connects(last), "{name} is resolved: {:?}", agent.counters());
        let by_tcp = in_pod("a", move || ask_by_tcp(at(NEIGHBOR), &name));
        assert_eq!(by_tcp, Some(vec![address(last).into()]));
    }
    let counters = agent.counters();
    // The first answer of the pod shows its MAC.
    assert!(counters["fast_path"] >= 18, "{counters:?}");
    assert_eq!((counters["dns_held"], counters["dns_late"]), (10, 0), "{counters:?}");
}

#[test]
fn answers_that_a_pod_did_not_ask_for_do_not_count() {
    let name = "answers_that_a_pod_did_not_ask_for_do_not_count";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let [outside, neighbor] = world(bpffs.path());
    let mut agent = Agent::start(&object, bpffs.path(), &[policy(&["*.corp.test"])]);
    // Another number than that of the query.
    outside.set("wrong-id.corp.test", &[address(20)]);
    assert_eq!(asks(OUTSIDE, "wrong-id.corp.test"), None);
    // The same number twice: first without an address.
    outside.set("twice.corp.test", &[address(21)]);
    assert!(asks(OUTSIDE, "twice.corp.test").is_some());
    // A query, which is no answer.
    outside.set("query.corp.test", &[address(22)]);
    assert_eq!(asks(OUTSIDE, "query.corp.test"), None);
    // Records of a name that the pod did not ask for.
    outside.set("stranger.corp.test", &[address(23)]);
    assert_eq!(asks(OUTSIDE, "stranger.corp.test"), Some(vec![]));
    // A neighbor that has learned the pod's port and number, with the address of the server.
    neighbor.set("spoofed.corp.test", &[address(24)]);
    let query = server::query(7, "spoofed.corp.test");
    let port = in_pod("a", move || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.send_to(&query, "172.20.0.3:53").unwrap();
        socket.local_addr().unwrap().port()
    });
    ip("-n b addr add 172.20.0.3/32 dev eth0");
    let forged = server::forged(7, "spoofed.corp.test", address(24));
    in_pod("b", move || {
        let socket = UdpSocket::bind("172.20.0.3:53").unwrap();
        socket.send_to(&forged, ("10.0.0.1", port)).unwrap();
    });
    // A server that the pod may not ask: its answer belongs to no connection.
    in_pod("out", move || {
        let socket = UdpSocket::bind(("10.9.0.10", 53)).unwrap();
        let _ = socket
            .send_to(&server::forged(7, "spoofed.corp.test", address(24)), ("10.0.0.1", port));
    });
    // A later answer is read after these.
    outside.set("last.corp.test", &[address(25)]);
    assert_eq!(asks(OUTSIDE, "last.corp.test"), Some(vec![address(25).into()]));
    assert!(connects(25));
    for last in 20..=24 {
        assert!(!connects(last), "{last}");
    }
    let counters = agent.counters();
    assert_eq!(counters["dns_added"], 1, "{counters:?}");
    assert!(counters["dns_unasked"] >= 2 && counters["dns_malformed"] >= 1, "{counters:?}");
}

#[test]
fn names_stay_without_an_agent_and_answers_pass() {
    let name = "names_stay_without_an_agent_and_answers_pass";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let [outside, _neighbor] = world(bpffs.path());
    let policies = [policy(&["*.corp.test"])];
    let agent = Agent::start(&object, bpffs.path(), &policies);
    for last in 30..36 {
        outside.set(&format!("w{last}.corp.test"), &[address(last)]);
    }
    let is_answered =
        |last: u8| asks(OUTSIDE, &format!("w{last}.corp.test")) == Some(vec![address(last).into()]);
    assert!(is_answered(30) && connects(30));
    drop(agent);
    assert!(is_answered(31), "answers pass at once after a regular end");
    assert!(connects(30), "a known name stays");
    assert!(!connects(31), "a new name allows nothing");

    // A process that is killed.
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "names::agent_of_another_process", "--nocapture"])
        .envs([("AGENT_PINS", bpffs.path()), ("FERRULE_BPF", object.as_path())])
        .spawn()
        .unwrap();
    eventually("the answer is read", Duration::from_secs(60), || is_answered(32) && connects(32));
    kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).unwrap();
    child.wait().unwrap();
    eventually("an answer passes", Duration::from_secs(20), || is_answered(33));
    assert!(connects(30) && connects(32), "known names stay");
    assert!(!connects(33), "a new name allows nothing");

    // The next process reads the answers that passed meanwhile, and new ones.
    let mut agent = Agent::start(&object, bpffs.path(), &policies);
    assert!(connects(30) && connects(32));
    eventually("the answer that passed is read", Duration::from_secs(20), || connects(33));
    assert!(is_answered(34) && connects(34));
    assert_eq!(agent.counters()["dns_late"], 0);
}

/// The agent of [`names_stay_without_an_agent_and_answers_pass`] in a process of its own.
#[test]
fn agent_of_another_process() {
    let Some(pins) = std::env::var_os("AGENT_PINS") else { return };
    let object = object("agent_of_another_process").unwrap();
    let _agent = Agent::start(&object, Path::new(&pins), &[policy(&["*.corp.test"])]);
    std::thread::sleep(Duration::from_secs(600));
}

#[test]
fn answers_over_tcp_are_read_beside_the_pod() {
    let name = "answers_over_tcp_are_read_beside_the_pod";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let [_outside, neighbor] = world(bpffs.path());
    let _agent = Agent::start(&object, bpffs.path(), &[policy(&["*.corp.test"])]);
    // More than a packet of the pod's link.
    let addresses: Vec<_> = (10..40).map(address).chain((0..400).map(far)).collect();
    neighbor.set("tcp.corp.test", &addresses);
    assert_eq!(asks(NEIGHBOR, "tcp.corp.test"), Some(vec![]), "it is cut");
    let expected: Vec<IpAddr> = addresses.into_iter().map(IpAddr::from).collect();
    let found = in_pod("a", || ask_by_tcp(at(NEIGHBOR), "tcp.corp.test"));
    assert_eq!(found.map(|found| found.len()), Some(expected.len()));
    for last in [10, 39] {
        eventually("the answer is read", Duration::from_secs(20), || connects(last));
    }
}

fn far(last: u16) -> Ipv4Addr {
    let [high, low] = last.to_be_bytes();
    Ipv4Addr::new(198, 18, high, low)
}

#[test]
fn a_pod_that_floods_gets_its_answers_and_others_have_theirs() {
    let name = "a_pod_that_floods_gets_its_answers_and_others_have_theirs";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let [outside, neighbor] = world(bpffs.path());
    let mut agent = Agent::start(&object, bpffs.path(), &[policy(&["*.corp.test"])]);
    neighbor.set("w10.corp.test", &[address(10)]);
    outside.set("w11.corp.test", &[address(11)]);
    let answered = in_pod("a", || {
        let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
        socket.set_read_timeout(Some(SILENCE)).unwrap();
        for id in 0..1000 {
            socket.send_to(&server::query(id, "w10.corp.test"), NEIGHBOR).unwrap();
        }
        let mut answered = 0;
        while socket.recv(&mut [0; 512]).is_ok() {
            answered += 1;
        }
        answered
    });
    assert!(answered > 100, "{answered} answers");
    let counters = agent.counters();
    assert!(counters["dns_rate"] > 0, "{counters:?}");
    assert!(asks(OUTSIDE, "w11.corp.test").is_some() && connects(11) && connects(10));
}

#[test]
fn a_name_expires_unless_a_connection_uses_it() {
    let name = "a_name_expires_unless_a_connection_uses_it";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let [outside, _neighbor] = world(bpffs.path());
    let _agent = Agent::start(&object, bpffs.path(), &[policy(&["*.corp.test"])]);
    for last in [10, 11] {
        outside.set(&format!("w{last}.corp.test"), &[address(last)]);
        assert!(asks(OUTSIDE, &format!("w{last}.corp.test")).is_some());
    }
    let used = connect_to(SocketAddr::from((address(10), 8080))).unwrap();
    assert!(answers(&used) && connects(11));
    eventually("the name has expired", Duration::from_secs(120), || {
        std::thread::sleep(Duration::from_secs(2));
        !connects(11)
    });
    assert!(answers(&used) && connects(10), "a connection uses it");
}

#[test]
fn answers_over_ipv6_are_read() {
    let name = "answers_over_ipv6_are_read";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let [_outside, _neighbor] = world(bpffs.path());
    std::fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    for pod in ["a", "b"] {
        ip(&format!("route add {}/128 dev {pod}", v6_of(pod)));
        for command in [
            format!("addr add {}/128 dev eth0 nodad", v6_of(pod)),
            "route add fe80::1/128 dev eth0".to_owned(),
            "route add default via fe80::1 dev eth0".to_owned(),
            "neigh add fe80::1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent".to_owned(),
        ] {
            ip(&format!("-n {pod} {command}"));
        }
    }
    // A link without a usable address of its own cannot ask for the pod's link address.
    eventually("duplicate address detection", Duration::from_secs(30), || {
        let of = ["-6", "-o", "addr", "show", "tentative"];
        Command::new("ip").args(of).output().unwrap().stdout.is_empty()
    });
    let mut agent = Agent::start(&object, bpffs.path(), &[policy_v6(&["*.corp.test"])]);
    let server = SocketAddr::from((v6_of("b"), 53));
    let neighbor = Server::start("b", server);
    neighbor.set("w10.corp.test", &[address(10)]);
    let found = in_pod("a", move || ask(server, "w10.corp.test"));
    assert_eq!(found, Some(vec![address(10).into()]));
    assert!(connects(10), "{:?}", agent.counters());
    assert!(!connects(11));
}

/// As [`policy`], with the server in pod b by IPv6.
fn policy_v6(names: &[&str]) -> Value {
    let mut policy = policy(names);
    policy["spec"]["egress"][0]["to"] =
        json!([{"ipBlock": {"cidr": format!("{}/128", v6_of("b"))}}]);
    policy
}

#[test]
fn policies_with_names_are_reported_without_the_right_to_open_a_packet_socket() {
    let name = "policies_with_names_are_reported_without_the_right_to_open_a_packet_socket";
    let Some(object) = object(name) else { return };
    let bpffs = tempfile::tempdir().unwrap();
    let [outside, _neighbor] = world(bpffs.path());
    outside.set("w10.corp.test", &[address(10)]);
    let policies = [policy(&["*.corp.test"])];
    let failing = Agent::failing_without_net_raw(&object, bpffs.path(), &policies);
    assert_eq!(failing.len(), 1, "{failing:?}");
    assert!(failing["a"].contains("add CAP_NET_RAW"), "{failing:?}");
    assert!(asks(OUTSIDE, "w10.corp.test").is_some(), "answers pass");
    assert!(!connects(10), "the name allows nothing");
    assert!(!state(&policies).state.policies.is_empty());
}
