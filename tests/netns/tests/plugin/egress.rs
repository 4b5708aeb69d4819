//! Dual egress: the second address of a pod, for destinations of the other family. It is not part of the result, and
//! all its objects are removed with the pod.

use crate::{
    add::VETH,
    binary::Sandbox,
    check::check,
    daemon::{Book, Daemon},
    node::{Node, on_a_node},
};
use config_model::{PodKey, registry};
use routing_plan::egress;
use serde_json::{Value, json};
use std::{
    fs,
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream},
};
use tests_eventually::{PATIENCE, eventually};

const HOST_V4: &str = "10.0.0.10";
const HOST_V6: &str = "2001:db8::10";
/// The second address of the pod with 10.0.0.100.
const SECOND_V6: &str = "fd66:6572:7275:6c65::a00:64";

fn daemon(node: &Node, ipv6: bool) -> Daemon {
    node.ip(&format!("-6 addr add {HOST_V6}/128 dev eth0 nodad"));
    Daemon::start_with(node, Book { ipv6, egress: true, ..Book::on_table_2() })
}

/// Disables IPv6 in the sandbox, as some runtimes do.
fn without_ipv6(node: &Node, sandbox: &Sandbox) {
    node.inside(&sandbox.netns, || {
        for link in ["all", "default", "lo"] {
            fs::write(format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6"), "1").unwrap();
        }
    });
}

fn in_range(address: &str) -> bool {
    address.parse().is_ok_and(egress::is_within)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// Returns the second addresses in the pod's namespace.
fn seconds(node: &Node, sandbox: &Sandbox) -> Vec<String> {
    let shown = node.show_inside(&sandbox.netns, "addr show dev eth0");
    let addresses = shown[0]["addr_info"].as_array().unwrap().clone();
    addresses.iter().map(|a| text(&a["local"]).to_owned()).filter(|a| in_range(a)).collect()
}

/// Returns the host's routes to second addresses, as `address dev protocol`.
fn routes(node: &Node) -> Vec<String> {
    let of = |words: &str| node.show(words);
    let all = of("-4 route show table main").into_iter().chain(of("-6 route show table main"));
    let line = |route: &Value| {
        format!("{} {} {}", text(&route["dst"]), text(&route["dev"]), text(&route["protocol"]))
    };
    let all = all.filter(|route| in_range(text(&route["dst"])));
    all.map(|route| line(&route)).collect()
}

/// Returns the IPv4 addresses of host veths, as `local peer`.
fn host_addresses(node: &Node) -> Vec<String> {
    let links = node.show("-4 addr show");
    let of_veths = links.iter().filter(|link| text(&link["ifname"]).starts_with("eni"));
    let addresses = of_veths.flat_map(|link| link["addr_info"].as_array().unwrap().clone());
    addresses.map(|a| format!("{} {}", text(&a["local"]), text(&a["address"]))).collect()
}

fn host_state(node: &Node) -> Vec<String> {
    let mut all = node.host_state();
    all.extend(routes(node));
    all.extend(host_addresses(node));
    all
}

/// Deletes the links of the reap group, as the daemon does.
fn reap(node: &Node) {
    node.ip(&format!("link delete group {}", registry::GROUP_REAP));
}

/// Connects from the host to the pod, and from the pod to the host.
fn connect_both_ways(node: &Node, sandbox: &Sandbox, pod: &str, host: &str) {
    let pod: IpAddr = pod.parse().unwrap();
    let host: IpAddr = host.parse().unwrap();
    let at = |address| SocketAddr::new(address, 8080);
    let listener = node.inside(&sandbox.netns, || TcpListener::bind(at(pod)).unwrap());
    let _stream = TcpStream::connect(at(pod)).unwrap();
    listener.accept().unwrap();
    let listener = TcpListener::bind(at(host)).unwrap();
    node.inside(&sandbox.netns, || TcpStream::connect(at(host)).unwrap());
    assert_eq!(listener.accept().unwrap().1.ip(), pod, "another source than the second address");
}

#[test]
fn an_ipv6_pod_has_an_ipv4_address_that_the_result_does_not_contain() {
    on_a_node(|node| {
        let _daemon = daemon(node, true);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        let [second] = &seconds(node, &sandbox)[..] else {
            panic!("{:?}", seconds(node, &sandbox))
        };
        assert!(second.starts_with("169.254.17"), "{second}");
        assert_eq!(routes(node), [format!("{second} {VETH} 70")]);
        assert_eq!(host_addresses(node), [format!("169.254.1.1 {second}")]);
        let inside = |words: &str| node.show_inside(&sandbox.netns, words);
        let default = inside("-4 route show default").remove(0);
        assert_eq!((&default["gateway"], &default["dev"]), (&"169.254.1.1".into(), &"eth0".into()));
        let gateway = inside("-4 neigh show dev eth0 nud permanent").remove(0);
        let host_mac = node.link(VETH).unwrap()["address"].clone();
        assert_eq!((&gateway["dst"], &gateway["lladdr"]), (&"169.254.1.1".into(), &host_mac));

        let addresses = result["ips"].as_array().unwrap();
        assert_eq!(addresses.len(), 1, "{addresses:?}");
        assert_eq!(addresses[0]["address"], "2001:db8::100/128");
        connect_both_ways(node, &sandbox, second, HOST_V4);

        let before = host_state(node);
        assert_eq!(node.add(&sandbox), result);
        assert_eq!((host_state(node), seconds(node, &sandbox)), (before, vec![second.clone()]));
        check(node, &sandbox, &result).run().is_silent_success();
    });
}

#[test]
fn an_ipv4_pod_has_an_ipv6_address_that_follows_from_its_own() {
    on_a_node(|node| {
        let _daemon = daemon(node, false);
        let sandbox = node.sandbox("c1", "web-0");
        without_ipv6(node, &sandbox);
        let result = node.add(&sandbox);
        assert_eq!(seconds(node, &sandbox), [SECOND_V6]);
        assert_eq!(routes(node), [format!("{SECOND_V6} {VETH} 70")]);
        let inside = |words: &str| node.show_inside(&sandbox.netns, words);
        let default = inside("-6 route show default").remove(0);
        assert_eq!((&default["gateway"], &default["dev"]), (&"fe80::1".into(), &"eth0".into()));
        assert_eq!(result["ips"].as_array().unwrap().len(), 1, "{result}");
        assert_eq!(result["ips"][0]["address"], "10.0.0.100/32");
        connect_both_ways(node, &sandbox, SECOND_V6, HOST_V6);

        let before = host_state(node);
        assert_eq!(node.add(&sandbox), result);
        assert_eq!(host_state(node), before);
        check(node, &sandbox, &result).run().is_silent_success();
    });
}

#[test]
fn a_pod_without_second_address_from_the_daemon_has_none() {
    on_a_node(|node| {
        let daemon = daemon(node, true);
        daemon.book(|book| book.egress = false);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        assert_eq!(
            (seconds(node, &sandbox), routes(node), host_addresses(node)),
            (vec![], vec![], vec![])
        );
        check(node, &sandbox, &result).run().is_silent_success();
        // Pods from before a change of the setting still pass CHECK.
        daemon.book(|book| book.egress = true);
        check(node, &sandbox, &result).run().is_silent_success();
    });
}

#[test]
fn check_names_each_missing_part_of_dual_egress() {
    for ipv6 in [true, false] {
        on_a_node(|node| {
            let _daemon = daemon(node, ipv6);
            let sandbox = node.sandbox("c1", "web-0");
            let result = node.add(&sandbox);
            let second = seconds(node, &sandbox).remove(0);
            let (ip, gateway) = if ipv6 { ("-4", "169.254.1.1") } else { ("-6", "fe80::1") };
            let complaint = |named: &str| {
                let (message, _) = check(node, &sandbox, &result).run().error(101);
                assert!(message.contains(named), "{message}");
            };
            let inside = |words: &str| node.ip_inside(&sandbox.netns, &format!("{ip} {words}"));
            node.ip(&format!("{ip} route del {second} dev {VETH}"));
            complaint(&format!("no route {second} dev {VETH} on the host"));
            node.ip(&format!("{ip} route add {second} dev {VETH} proto 70"));
            check(node, &sandbox, &result).run().is_silent_success();
            inside(&format!("neigh del {gateway} dev eth0"));
            complaint(&format!("no permanent neighbor {gateway}"));
            let mac = text(&node.link(VETH).unwrap()["address"]).to_owned();
            inside(&format!("neigh replace {gateway} lladdr {mac} dev eth0 nud permanent"));
            check(node, &sandbox, &result).run().is_silent_success();
            inside("route del default");
            complaint(&format!("no route default via {gateway} dev eth0 in the pod"));
            let (host, named) = if ipv6 {
                (format!("169.254.1.1 peer {second}"), "no address 169.254.1.1/32 peer")
            } else {
                ("fe80::1/64".to_owned(), "no address fe80::1/64 on link")
            };
            node.ip(&format!("{ip} addr del {host} dev {VETH}"));
            complaint(named);
            node.ip(&format!("{ip} addr add {host} dev {VETH}"));
            inside(&format!("addr del {second} dev eth0"));
            complaint(&format!("no address {second} on eth0 in the pod"));
        });
    }
}

#[test]
fn an_address_in_use_is_skipped() {
    on_a_node(|node| {
        let _daemon = daemon(node, true);
        let key = PodKey::new("aws-cni", "c1", "eth0").unwrap();
        let wished: Vec<Ipv4Addr> = egress::candidates(&key).take(3).collect();
        // The first address has a route, the second is on a link that is down, and the third is free.
        node.ip(&format!("route add {} dev eth1", wished[0]));
        node.ip(&format!("addr add 169.254.1.1 peer {} dev eth1 noprefixroute", wished[1]));
        let sandbox = node.sandbox("c1", "web-0");
        node.add(&sandbox);
        assert_eq!(seconds(node, &sandbox), [wished[2].to_string()]);
    });
}

#[test]
fn pods_that_are_built_at_the_same_time_share_no_address() {
    on_a_node(|node| {
        let _daemon = daemon(node, true);
        let sandboxes: Vec<Sandbox> =
            (0..12).map(|n| node.sandbox(&format!("c{n}"), &format!("web-{n}"))).collect();
        let calls: Vec<_> = sandboxes.iter().map(|sandbox| node.call("ADD", sandbox)).collect();
        std::thread::scope(|scope| {
            for call in calls {
                scope.spawn(move || call.run().result());
            }
        });
        let mut all: Vec<String> =
            sandboxes.iter().flat_map(|sandbox| seconds(node, sandbox)).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 12, "{all:?}");
        assert_eq!((routes(node).len(), host_addresses(node).len()), (12, 12));
    });
}

#[test]
fn a_full_range_is_reported_and_the_build_is_rolled_back() {
    on_a_node(|node| {
        let daemon = daemon(node, true);
        let key = PodKey::new("aws-cni", "c1", "eth0").unwrap();
        let all: Vec<Ipv4Addr> = egress::candidates(&key).collect();
        assert_eq!(all.len(), 1021);
        let script: String = all.iter().map(|it| format!("route add {it} dev eth1\n")).collect();
        fs::write(node.path("full"), script).unwrap();
        node.ip(&format!("-batch {}", node.path("full").display()));
        let before = host_state(node);
        let sandbox = node.sandbox("c1", "web-0");
        let (message, details) = node.call("ADD", &sandbox).run().error(100);
        assert!(message.contains("169.254.172.0/22") && message.contains("1021"), "{message}");
        assert!(details.contains("ENABLE_V4_EGRESS"), "{details}");
        assert_eq!(host_state(node), before);
        daemon.book(|book| assert_eq!(book.asked.last().unwrap(), "release SetupFailed c1"));

        let last = all[700];
        node.ip(&format!("route del {last} dev eth1"));
        node.add(&sandbox);
        assert_eq!(seconds(node, &sandbox), [last.to_string()]);
    });
}

#[test]
fn del_leaves_nothing_with_and_without_daemon_and_namespace() {
    for (ipv6, up, there) in [
        (true, true, true),
        (true, true, false),
        (true, false, true),
        (true, false, false),
        (false, true, true),
        (false, false, true),
        (false, false, false),
    ] {
        on_a_node(|node| {
            let daemon = daemon(node, ipv6);
            let before = host_state(node);
            let sandbox = node.sandbox("c1", "web-0");
            let result = node.add(&sandbox);
            assert_ne!(routes(node), Vec::<String>::new());
            if !there {
                node.delete_netns("c1");
                eventually("the kernel removes the link with its namespace", PATIENCE, || {
                    node.link(VETH).is_none()
                });
            }
            let daemon = up.then_some(daemon);
            for _ in 0..2 {
                node.first_del(&sandbox, &result).run().is_silent_success();
            }
            if up && there {
                reap(node);
            }
            assert_eq!(host_state(node), before, "IPv6: {ipv6}, daemon: {up}, namespace: {there}");
            drop(daemon);
        });
    }
}

#[test]
fn gc_leaves_nothing_of_unlisted_pods() {
    for ipv6 in [true, false] {
        on_a_node(|node| {
            let _daemon = daemon(node, ipv6);
            let kept = node.sandbox("c1", "web-0");
            node.add(&kept);
            let (before, second) = (host_state(node), seconds(node, &kept));
            node.add(&node.sandbox("c2", "web-2"));
            node.add(&node.sandbox("c3", "web-3"));
            node.delete_netns("c3");
            let entry = json!([{"containerID": kept.container, "ifname": "eth0"}]);
            crate::gc::gc(node, &entry).run().is_silent_success();
            reap(node);
            assert_eq!((host_state(node), seconds(node, &kept)), (before, second));
        });
    }
}

#[test]
fn the_first_of_several_interfaces_alone_has_dual_egress() {
    on_a_node(|node| {
        let daemon = daemon(node, true);
        daemon.book(|book| book.cards = 2);
        let sandbox = node.sandbox("c1", "web-0");
        let mut conf = node.conf();
        conf["runtimeConfig"] = json!({"io.kubernetes.cri.pod-annotations": {
            "k8s.amazonaws.com/nicConfig": "multi-nic-attachment"
        }});
        let result = node.call_with("ADD", &sandbox, &conf).run().result();
        assert_eq!(result["ips"].as_array().unwrap().len(), 2, "{result}");
        assert_eq!(
            (seconds(node, &sandbox).len(), host_addresses(node).len(), routes(node).len()),
            (1, 1, 1)
        );
    });
}
