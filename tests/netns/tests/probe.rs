//! The probes of `ferrule check` in network namespaces with a router between them. A smaller MTU behind the router is
//! found, with and without its ICMP messages, over IPv4 and IPv6.
//!
//! Needs root, iproute2 and nft.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use nix::sched::{CloneFlags, unshare};
use serde_json::{Value, json};
use std::{
    fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    process::{Child, Command},
    thread,
};
use tests_eventually::{PATIENCE, eventually};
use tests_netns::{ferrule, ip, run};

#[test]
fn large_packets_show_the_smallest_mtu_of_the_way() {
    if !nix::unistd::geteuid().is_root() {
        let line = b"SKIP large_packets_show_the_smallest_mtu_of_the_way: needs root\n";
        let _ = std::io::stderr().write_all(line);
        return;
    }
    // The build needs the machine's network, so it runs before the thread enters a namespace.
    ferrule();
    let finished = thread::scope(|scope| scope.spawn(on_a_router).join());
    if let Err(panic) = finished {
        std::panic::resume_unwind(panic);
    }
}

fn on_a_router() {
    unshare(CloneFlags::CLONE_NEWNET).unwrap();
    fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
    fs::write("/proc/sys/net/ipv6/conf/all/forwarding", "1").unwrap();
    let (one, two) = (Probe::start(1), Probe::start(2));
    for probe in [&one, &two] {
        probe.connect();
    }
    let to = ["10.0.2.2:7777", "[fd00:2::2]:7777"];
    for outcome in one.large(&to) {
        assert_eq!((&outcome["good"], &outcome["mtu"]), (&json!(true), &json!(9001)), "{outcome}");
    }

    ip("link set to2 mtu 1500");
    assert_lost(&one.large(&to), 1500);
    // Now the router drops large packets without a message.
    run("nft", "add table inet silent");
    run("nft", "add chain inet silent out { type filter hook output priority 0 ; }");
    run("nft", "add rule inet silent out icmp type destination-unreachable drop");
    run("nft", "add rule inet silent out icmpv6 type packet-too-big drop");
    ip("link set to2 mtu 1400");
    assert_lost(&one.large(&to), 1400);
    // The other direction is a test of the other node.
    ip("link set to2 mtu 9001");
    ip("route change 10.0.1.0/24 dev to1 src 10.0.1.1 mtu lock 1500");
    for outcome in one.large(&to) {
        assert_eq!(outcome["good"], true, "{outcome}");
    }
    assert_lost(&two.large(&["10.0.1.2:7777"]), 1500);
}

#[track_caller]
fn assert_lost(outcomes: &[Value], largest: u32) {
    for outcome in outcomes {
        let said = outcome["said"].as_str().unwrap();
        assert_eq!(
            (&outcome["good"], &outcome["mtu"]),
            (&json!(false), &json!(largest)),
            "{outcome}"
        );
        assert!(said.contains("packets of 9001 bytes"), "{outcome}");
        assert!(said.ends_with(&format!("has {largest}")), "{outcome}");
    }
}

/// A probe in a namespace of its own, at 10.0.NUMBER.2 and fd00:NUMBER::2.
struct Probe {
    child: Child,
    number: u8,
}

impl Probe {
    fn start(number: u8) -> Self {
        let mut command = Command::new("unshare");
        command.arg("--net").arg(ferrule()).args(["probe", "serve"]);
        let child = command.spawn().unwrap();
        let own = fs::read_link("/proc/thread-self/ns/net").unwrap();
        let path = format!("/proc/{}/ns/net", child.id());
        eventually("a namespace for the probe", PATIENCE, || match fs::read_link(&path) {
            Ok(of_child) if of_child != own => Ok(()),
            other => Err(format!("{other:?}")),
        });
        Self { child, number }
    }

    /// Connects its namespace to the router, which is this thread's namespace.
    fn connect(&self) {
        let (number, process) = (self.number, self.child.id());
        ip(&format!(
            "link add to{number} mtu 9001 type veth peer name eth0 mtu 9001 netns {process}"
        ));
        let inside = |words: &str| run("nsenter", &format!("-t {process} -n ip {words}"));
        for (place, last) in [(&ip as &dyn Fn(&str), 1), (&inside, 2)] {
            let link = if last == 1 { format!("to{number}") } else { "eth0".to_owned() };
            place(&format!("addr add 10.0.{number}.{last}/24 dev {link}"));
            place(&format!("addr add fd00:{number}::{last}/64 dev {link} nodad"));
            place(&format!("link set {link} up"));
        }
        inside(&format!("route add default via 10.0.{number}.1"));
        inside(&format!("route add default via fd00:{number}::1"));
    }

    /// Sends large packets to these targets and returns the outcomes.
    fn large(&self, targets: &[&str]) -> Vec<Value> {
        let tries: Vec<Value> =
            targets.iter().map(|to| json!({ "how": "large", "to": to })).collect();
        let query: String = serde_json::to_string(&tries).unwrap().bytes().map(encoded).collect();
        let address = (format!("10.0.{}.2", self.number), 7777);
        let connect = || TcpStream::connect((address.0.as_str(), address.1));
        let mut stream = eventually("the probe to listen", PATIENCE, connect);
        write!(
            stream,
            "GET /tries?of={query} HTTP/1.1\r\nHost: probe\r\nConnection: close\r\n\r\n"
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (_, body) = answer.split_once("\r\n\r\n").unwrap();
        let outcomes: Vec<Value> =
            serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
        assert_eq!(outcomes.len(), targets.len(), "{answer}");
        outcomes
    }
}

fn encoded(byte: u8) -> String {
    format!("%{byte:02X}")
}

impl Drop for Probe {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
