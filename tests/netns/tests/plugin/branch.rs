//! Pods with branch ENIs, strict and standard: the kernel objects, the paths of their traffic, and the cleanup.
//!
//! Tests that create VLANs are ignored, because not every kernel has them. `cargo xtask test vm` runs them.

use crate::{
    binary::Sandbox,
    daemon::{Book, Daemon, DaemonBehavior},
    node::{Node, on_a_node},
};
use config_model::{EniId, Mac};
use ipamd_rpc::{Branch, Enforcing};
use routing_plan::nat::source_check;
use serde_json::Value;
use std::{
    io::Write as _,
    net::{IpAddr, UdpSocket},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};
use tests_eventually::{PATIENCE, eventually};

/// The names of the host veth of a strict and of a standard pod, with the start of SHA-1 over `default.web-0`.
const STRICT_VETH: &str = "vlan0d7763386da";
const STANDARD_VETH: &str = "eni0d7763386da";
const BRANCH_MAC: &str = "02:00:00:00:00:07";

/// The addresses of one family.
struct Net {
    pod: &'static str,
    gateway: &'static str,
    far: &'static str,
    node: &'static str,
}

const V4: Net = Net { pod: "10.0.3.9", gateway: "10.0.3.1", far: "192.0.2.1", node: "10.0.0.10" };
const V6: Net = Net {
    pod: "2001:db8:3::9",
    gateway: "fe80:ec2::1",
    far: "2001:db8:ffff::1",
    node: "2001:db8::10",
};

fn enforcing(veth: &str) -> Enforcing {
    if veth == STRICT_VETH { Enforcing::Strict } else { Enforcing::Standard }
}

/// Adds the trunk `eth2` to the node and returns a book with a branch for the next pod.
fn with_branch(node: &Node, net: &Net, enforcing: Enforcing) -> Book {
    node.ip("link add eth2 type veth peer name eth2-vpc");
    node.ip("link set eth2 up");
    let trunk = node.link("eth2").unwrap()["address"].as_str().unwrap().parse::<Mac>().unwrap();
    let branch = Branch {
        eni: EniId::new("eni-0123456789abcdef7"),
        mac: BRANCH_MAC.parse().unwrap(),
        vlan: 7,
        address: net.pod.parse().unwrap(),
        gateway: net.gateway.parse().unwrap(),
        trunk,
        enforcing,
    };
    Book { behavior: DaemonBehavior::Branching, branch: Some(branch), ..Book::default() }
}

/// Creates the VPC's router, with the branch's subnet on VLAN 7 of the trunk and the node's subnet on `eth0`.
fn vpc(node: &Node, net: &Net) -> PathBuf {
    let vpc = node.netns("vpc");
    for link in ["eth0-vpc", "eth2-vpc"] {
        node.ip(&format!("link set {link} netns {}", vpc.display()));
        node.ip_inside(&vpc, &format!("link set {link} up"));
    }
    let inside = |words: &str| node.ip_inside(&vpc, words);
    inside("link set lo up");
    inside("link add link eth2-vpc name branch type vlan id 7");
    inside("link set branch up");
    inside(&format!("addr add {} dev lo", net.far));
    if net.pod.contains(':') {
        inside("addr add fe80:ec2::1/64 dev branch nodad");
        inside("addr add fe80:ec2::1/64 dev eth0-vpc nodad");
        inside(&format!("route add {} dev branch", net.pod));
        inside(&format!("route add {} dev eth0-vpc", net.node));
        node.ip(&format!("addr add {}/128 dev eth0 nodad", net.node));
        node.ip("-6 route add default via fe80:ec2::1 dev eth0");
    } else {
        inside("addr add 10.0.3.1/24 dev branch");
        inside("addr add 10.0.0.1/24 dev eth0-vpc");
        node.ip("route add default via 10.0.0.1 dev eth0");
    }
    // A VPC sends no neighbor solicitations: it has the MAC of each address.
    inside(&format!("neigh add {} lladdr {BRANCH_MAC} dev branch nud permanent", net.pod));
    forward(node, Some(&vpc));
    forward(node, None);
    vpc
}

fn forward(node: &Node, netns: Option<&Path>) {
    let write = || {
        for name in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
            std::fs::write(format!("/proc/sys/net/{name}"), "1").unwrap();
        }
    };
    match netns {
        Some(netns) => node.inside(netns, write),
        None => write(),
    }
}

/// Moves the rule of table local behind those of strict pods, as the daemon does.
fn move_rule_of_table_local(node: &Node, family: &str) {
    if family == "-6" {
        node.ip("-6 rule add pref 0 from fe80:ec2::1 ipproto 58 lookup local");
    }
    node.ip(&format!("{family} rule add pref 20 lookup local"));
    node.ip(&format!("{family} rule del pref 0 from all lookup local"));
}

/// Sends a datagram to `to` and back, and returns its source address as the other end saw it.
fn echo(node: &Node, from: Option<&Path>, at: Option<&Path>, to: IpAddr) -> Option<String> {
    let socket = |netns: Option<&Path>, bound: IpAddr, port| {
        let open = || UdpSocket::bind((bound, port)).unwrap();
        match netns {
            Some(netns) => node.inside(netns, open),
            None => open(),
        }
    };
    let any: IpAddr = if to.is_ipv4() { "0.0.0.0" } else { "::" }.parse().unwrap();
    let server = socket(at, any, 7007);
    let client = socket(from, any, 0);
    server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    client.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    thread::scope(|scope| {
        let seen = scope.spawn(|| {
            let mut buffer = [0; 16];
            let (_, peer) = server.recv_from(&mut buffer).ok()?;
            // The client repeats the datagram during neighbor discovery.
            server.send_to(b"pong", peer).ok()?;
            Some(peer.ip().to_string())
        });
        for _ in 0..8 {
            // The send fails at once while there is no route.
            if client.send_to(b"ping", (to, 7007)).is_ok() && client.recv(&mut [0; 16]).is_ok() {
                return seen.join().unwrap();
            }
        }
        seen.join().unwrap().map(|peer| format!("{peer}, without a reply"))
    })
}

/// Returns the number of packets from the branch's VLAN into the VPC.
fn carried(node: &Node, vpc: &Path) -> u64 {
    let links = node.show_inside(vpc, "-s link show branch");
    links[0]["stats64"]["rx"]["packets"].as_u64().unwrap()
}

/// Returns the rules of branch pods, each as `pref selector table`.
fn rules(node: &Node, family: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let line = |rule: &Value| {
        let what = ["src", "dst", "iif"].map(|name| text(&rule[name]));
        let what = what.iter().filter(|it| !it.is_empty() && *it != "all").cloned();
        let what = what.collect::<Vec<_>>().join(" ");
        format!("{} {what} {}", rule["priority"], text(&rule["table"]))
    };
    let of_pods = |rule: &&Value| [10, 512, 1536].contains(&rule["priority"].as_u64().unwrap());
    let mut rules: Vec<String> =
        node.show(&format!("{family} rule")).iter().filter(of_pods).map(line).collect();
    rules.sort();
    rules
}

/// Returns the routes of the branch's table, each as `destination link`.
fn table_of_branch(node: &Node, family: &str) -> Vec<String> {
    let line = |route: &Value| format!("{} {}", route["dst"], route["dev"]).replace('"', "");
    let shown = node.show(&format!("{family} route show table 107"));
    let mut routes: Vec<String> = shown.iter().map(line).collect();
    routes.sort();
    routes
}

/// Returns true if a DEL has left nothing except links of the reap group.
fn is_clean(node: &Node) -> bool {
    let gone = |name: &str| {
        let waits = |link: Value| link["group"].as_str() == Some("1178948178");
        node.link(name).is_none_or(waits)
    };
    let links = ["vlan.eth.7", STRICT_VETH, STANDARD_VETH].into_iter().all(gone);
    links && rules(node, "-4").is_empty() && rules(node, "-6").is_empty()
}

fn test_branch_pod(net: &Net, veth: &str) {
    on_a_node(|node| {
        let family = if net.pod.contains(':') { "-6" } else { "-4" };
        let daemon = Daemon::start_with(node, with_branch(node, net, enforcing(veth)));
        let vpc = vpc(node, net);
        let strict = veth == STRICT_VETH;
        if strict {
            move_rule_of_table_local(node, family);
        }
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);

        let link = node.link("vlan.eth.7").unwrap();
        assert_eq!((&link["link"], &link["address"]), (&"eth2".into(), &BRANCH_MAC.into()));
        assert_eq!(link["linkinfo"]["info_data"]["id"], 7);
        assert_eq!(link["ifalias"], "ferrule:aws-cni/c1/eth0");
        assert_eq!(node.link(veth).unwrap()["ifalias"], "ferrule:aws-cni/c1/eth0");
        assert_eq!(result["interfaces"][0]["name"], veth);
        let pod = net.pod;
        let wanted = match strict {
            true => vec!["10 vlan.eth.7 107".to_owned(), format!("10 {veth} 107")],
            false => vec![format!("1536 {pod} 107"), format!("512 {pod} 254")],
        };
        assert_eq!(rules(node, family), wanted);
        let routes = table_of_branch(node, family);
        assert_eq!(routes.contains(&format!("{pod} {veth}")), strict, "{routes:?}");
        assert!(routes.contains(&"default vlan.eth.7".to_owned()), "{routes:?}");

        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let netns = Some(sandbox.netns.as_path());
        let before = carried(node, &vpc);
        let source_of = |seen: Option<String>| seen.unwrap_or_else(|| "no datagram".to_owned());
        assert_eq!(source_of(echo(node, netns, Some(&vpc), ip(net.far))), pod, "pod to far");
        let after = carried(node, &vpc);
        assert!(after > before, "the pod's packet did not use the branch");
        assert_eq!(
            source_of(echo(node, Some(&vpc), netns, ip(pod))),
            match family {
                "-4" => net.gateway.to_owned(),
                _ => net.far.to_owned(),
            },
            "far to pod"
        );
        // The node reaches a strict pod through the branch, and a standard pod directly.
        assert_eq!(source_of(echo(node, None, netns, ip(pod))), net.node, "node to pod");
        node.ip_inside(&vpc, "link set branch down");
        let without = source_of(echo(node, None, netns, ip(pod)));
        assert_eq!(without == net.node, !strict, "without the branch: {without}");

        let mut conf = node.conf();
        conf["prevResult"] = result.clone();
        node.call_with("CHECK", &sandbox, &conf).run().is_silent_success();
        node.ip("link set vlan.eth.7 address 02:00:00:00:00:08");
        let (message, _) = node.call_with("CHECK", &sandbox, &conf).run().error(101);
        assert!(message.contains("vlan.eth.7") && message.contains(BRANCH_MAC), "{message}");

        node.first_del(&sandbox, &result).run().is_silent_success();
        assert!(is_clean(node), "{:?} {:?}", rules(node, family), node.show("link"));
        assert!(daemon.book(|book| book.held.is_empty()));
        node.late_del(&sandbox).run().is_silent_success();
    });
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn a_strict_branch_pod_and_its_node_communicate_through_the_branch() {
    test_branch_pod(&V4, STRICT_VETH);
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn a_standard_branch_pod_sends_through_the_branch_and_reaches_its_node_directly() {
    test_branch_pod(&V4, STANDARD_VETH);
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn a_strict_ipv6_branch_pod_and_its_node_communicate_through_the_branch() {
    test_branch_pod(&V6, STRICT_VETH);
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn a_standard_ipv6_branch_pod_sends_through_the_branch_and_reaches_its_node_directly() {
    test_branch_pod(&V6, STANDARD_VETH);
}

/// Runs `nft` with this input in the host's namespace and returns its output.
fn nft(args: &[&str], input: &str) -> String {
    let mut child = Command::new("nft")
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "nft {args:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the number of packets with this source that have passed the check.
fn passed(source: &str) -> u64 {
    let listed = nft(&["list", "table", "inet", "seen"], "");
    let wanted = format!("saddr {source} ");
    let line = listed.lines().find(|line| line.contains(&wanted)).unwrap();
    let packets = line.split_once("packets ").unwrap().1;
    packets.split(' ').next().unwrap().parse().unwrap()
}

/// A pod sends with its own address and with `foreign`, first without and then with the check.
fn test_source_check(net: &Net, foreign: &str) {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, with_branch(node, net, Enforcing::Standard));
        vpc(node, net);
        let sandbox = node.sandbox("c1", "web-0");
        node.add(&sandbox);
        let netns = sandbox.netns.as_path();
        let v6 = foreign.contains(':');
        node.ip_inside(
            netns,
            &format!("addr add {foreign} dev eth0 {}", if v6 { "nodad" } else { "" }),
        );
        let family = if v6 { "ip6" } else { "ip" };
        let count =
            |source: &str| format!("add rule inet seen in {family} saddr {source} counter\n");
        let chain = "add table inet seen\n\
                     add chain inet seen in { type filter hook prerouting priority -200; }\n";
        nft(&["-f", "-"], &format!("{chain}{}{}", count(net.pod), count(foreign)));
        let send = |source: &str| {
            let (from, to) =
                (source.parse::<IpAddr>().unwrap(), net.far.parse::<IpAddr>().unwrap());
            let send = || {
                let socket = UdpSocket::bind((from, 0)).unwrap();
                socket.send_to(b"ping", (to, 9)).unwrap();
            };
            node.inside(netns, send);
        };
        // The packets of a veth keep their order.
        let send_both = || {
            let before = passed(net.pod);
            send(foreign);
            send(net.pod);
            let is_there = || (passed(net.pod) > before).then_some(());
            eventually("the pod's own packet", PATIENCE, is_there);
            passed(foreign)
        };
        let without = send_both();
        assert!(without > 0, "no packet with a foreign address passes without the check");
        nft(&["-f", "-"], &source_check::plan(Some("eni"), None).unwrap());
        assert_eq!(send_both(), without, "a packet with a foreign address passes the check");
    });
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn a_standard_branch_pod_cannot_send_with_a_foreign_address() {
    test_source_check(&V4, "10.0.3.8");
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn a_standard_ipv6_branch_pod_cannot_send_with_a_foreign_address() {
    test_source_check(&V6, "2001:db8:3::8");
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn a_branch_moves_to_the_next_sandbox_and_late_dels_spare_it() {
    for (veth, up) in
        [(STRICT_VETH, true), (STANDARD_VETH, true), (STRICT_VETH, false), (STANDARD_VETH, false)]
    {
        on_a_node(|node| {
            let daemon = Daemon::start_with(node, with_branch(node, &V4, enforcing(veth)));
            let (old, new) = (node.sandbox("old", "web-0"), node.sandbox("new", "web-0"));
            let result = node.add(&old);
            // A repeated ADD keeps the objects of the first one.
            let index = node.link("vlan.eth.7").unwrap()["ifindex"].clone();
            assert_eq!(node.add(&old)["ips"], result["ips"]);
            assert_eq!(node.link("vlan.eth.7").unwrap()["ifindex"], index);
            node.first_del(&old, &result).run().is_silent_success();
            node.add(&new);
            let before = (rules(node, "-4"), table_of_branch(node, "-4"));
            assert_eq!(before.0.len(), 2, "{before:?}");
            let daemon = up.then_some(daemon);
            node.first_del(&old, &result).run().is_silent_success();
            node.late_del(&old).run().is_silent_success();
            assert_eq!(node.link("vlan.eth.7").unwrap()["ifalias"], "ferrule:aws-cni/new/eth0");
            if up || veth == STRICT_VETH {
                assert_eq!((rules(node, "-4"), table_of_branch(node, "-4")), before, "{veth} {up}");
            } else {
                // Without a daemon only the route shows the owner of an address.
                assert_eq!(table_of_branch(node, "-4"), before.1);
            }
            node.first_del(&new, &result).run().is_silent_success();
            assert!(is_clean(node), "{veth}, daemon up: {up}: {:?}", rules(node, "-4"));
            drop(daemon);
        });
    }
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn a_vlan_in_use_by_another_pod_fails_the_add_and_nothing_changes() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, with_branch(node, &V4, Enforcing::Strict));
        node.add(&node.sandbox("c1", "web-0"));
        let (before, links) = (node.host_state(), node.show("link").len());
        daemon.book(|book| {
            let branch = book.branch.as_mut().unwrap();
            branch.mac = "02:00:00:00:00:09".parse().unwrap();
            branch.address = "10.0.3.10".parse().unwrap();
        });
        let second = node.sandbox("c2", "web-1");
        let (message, details) = node.call("ADD", &second).run().error(11);
        assert!(message.contains("VLAN 7 is in use by aws-cni/c1/eth0"), "{message}");
        assert!(details.contains("ip -d link"), "{details}");
        assert_eq!((node.host_state(), node.show("link").len()), (before, links));
        let keys = daemon
            .book(|book| book.held.keys().map(|key| key.container_id.clone()).collect::<Vec<_>>());
        assert_eq!(keys, ["c1"], "the reservation of the second pod is left");
    });
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn an_unused_vlan_link_is_replaced() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, with_branch(node, &V4, Enforcing::Standard));
        node.ip("link add link eth2 name vlan.eth.7 type vlan id 7");
        node.add(&node.sandbox("c1", "web-0"));
        let link = node.link("vlan.eth.7").unwrap();
        assert_eq!((&link["address"], &link["link"]), (&BRANCH_MAC.into(), &"eth2".into()));
    });
}

#[test]
#[ignore = "needs a kernel with VLANs: cargo xtask test vm"]
fn gc_removes_an_unlisted_branch_pod() {
    for up in [true, false] {
        on_a_node(|node| {
            let daemon = Daemon::start_with(node, with_branch(node, &V4, Enforcing::Strict));
            let sandbox: Sandbox = node.sandbox("c1", "web-0");
            node.add(&sandbox);
            let daemon = up.then_some(daemon);
            let mut conf = node.conf();
            conf["cniVersion"] = "1.1.0".into();
            conf["cni.dev/valid-attachments"] = Value::Array(Vec::new());
            let done = node.call_with("GC", &sandbox, &conf).run();
            if up {
                done.is_silent_success();
            } else {
                done.error(11);
            }
            assert!(is_clean(node), "daemon up: {up}: {:?}", rules(node, "-4"));
            drop(daemon);
        });
    }
}

#[test]
fn a_branch_whose_trunk_has_no_link_fails_the_add_and_nothing_changes() {
    on_a_node(|node| {
        let book = with_branch(node, &V4, Enforcing::Strict);
        node.ip("link set eth2 address 02:00:00:00:00:99");
        let daemon = Daemon::start_with(node, book);
        let (before, links) = (node.host_state(), node.show("link").len());
        let sandbox = node.sandbox("c1", "web-0");
        let (message, _) = node.call("ADD", &sandbox).run().error(11);
        assert!(message.contains("no link with the trunk's MAC"), "{message}");
        assert_eq!((node.host_state(), node.show("link").len()), (before, links));
        let (held, asked) = daemon.book(|book| (book.held.len(), book.asked.clone()));
        assert_eq!((held, asked), (0, vec!["reserve c1".into(), "release SetupFailed c1".into()]));
    });
}

/// The other tests cover kernels with VLANs.
#[test]
fn a_kernel_without_vlans_fails_the_add_with_the_reason_and_nothing_changes() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, with_branch(node, &V4, Enforcing::Standard));
        let (before, links) = (node.host_state(), node.show("link").len());
        let sandbox = node.sandbox("c1", "web-0");
        let done = node.call("ADD", &sandbox).run();
        if node.link("vlan.eth.7").is_some() {
            return done.result().is_object().then_some(()).unwrap();
        }
        let (message, details) = done.error(102);
        assert!(
            message.contains("the kernel has no VLANs") && message.contains("VLAN 7"),
            "{message}"
        );
        assert!(details.contains("8021q"), "{details}");
        assert_eq!((node.host_state(), node.show("link").len()), (before, links));
        assert!(daemon.book(|book| book.held.is_empty()));
    });
}
