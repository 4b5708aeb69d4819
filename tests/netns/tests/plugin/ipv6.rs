//! Pods with an IPv6 address: built without the delay of duplicate address detection, and removed.

use crate::{
    add::VETH,
    binary::Sandbox,
    daemon::{Book, Daemon},
    node::{Node, on_a_node},
};
use serde_json::{Value, json};
use std::{
    fs,
    net::{TcpListener, TcpStream},
};

const POD: &str = "2001:db8::100";

fn daemon(node: &Node, book: Book) -> Daemon {
    node.ip("-6 addr add 2001:db8::10/128 dev eth0 nodad");
    Daemon::start_with(node, Book { ipv6: true, ..book })
}

fn rules(node: &Node) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let of_pods = |rule: &&Value| [512, 1536].contains(&rule["priority"].as_u64().unwrap());
    let rules = node.show("-6 rule");
    let line = |rule: &Value| {
        let (src, dst, table) = (text(&rule["src"]), text(&rule["dst"]), text(&rule["table"]));
        format!("{} {src} {dst} {table}", rule["priority"])
    };
    rules.iter().filter(of_pods).map(line).collect()
}

fn routes(node: &Node) -> Vec<String> {
    let routes = node.show("-6 route show table main");
    let of_pods = routes.iter().filter(|route| route["dst"].as_str().unwrap().contains("db8::1"));
    let line = |route: &Value| {
        format!("{} {} {}", route["dst"], route["dev"], route["protocol"]).replace('"', "")
    };
    of_pods.map(line).filter(|line| line.contains(" eni")).collect()
}

fn add(node: &Node, sandbox: &Sandbox) -> Value {
    // Some runtimes disable IPv6 in a sandbox.
    node.inside(&sandbox.netns, || {
        for link in ["all", "default", "lo"] {
            fs::write(format!("/proc/sys/net/ipv6/conf/{link}/disable_ipv6"), "1").unwrap();
        }
    });
    node.add(sandbox)
}

#[test]
fn an_ipv6_pod_gets_its_address_gateway_routes_and_rules() {
    on_a_node(|node| {
        let _daemon = daemon(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let result = add(node, &sandbox);
        assert_eq!(routes(node), [format!("{POD} {VETH} 70")]);
        assert_eq!(rules(node), [format!("512 all {POD} 254"), format!("1536 {POD} - 2")]);

        let inside = |words: &str| node.show_inside(&sandbox.netns, words);
        let addresses = inside("-6 addr show dev eth0").remove(0)["addr_info"].clone();
        let own = |a: &&Value| !a["local"].as_str().unwrap().starts_with("fe80:");
        let addresses: Vec<&Value> = addresses.as_array().unwrap().iter().filter(own).collect();
        assert_eq!(addresses.len(), 1, "{addresses:?}");
        let address = addresses[0];
        assert_eq!((&address["local"], &address["prefixlen"]), (&POD.into(), &128.into()));
        assert_eq!(address["tentative"], Value::Null, "usable at once");
        let default = inside("-6 route show default").remove(0);
        assert_eq!((&default["gateway"], &default["dev"]), (&"fe80::1".into(), &"eth0".into()));
        let gateway = inside("-6 neigh show dev eth0 nud permanent").remove(0);
        let host_mac = node.link(VETH).unwrap()["address"].clone();
        assert_eq!((&gateway["dst"], &gateway["lladdr"]), (&"fe80::1".into(), &host_mac));

        let deaf = fs::read_to_string(format!("/proc/sys/net/ipv6/conf/{VETH}/accept_ra"));
        assert_eq!(deaf.unwrap().trim(), "0", "a pod is no router");

        let ip = &result["ips"][0];
        assert_eq!(
            (&ip["address"], &ip["gateway"]),
            (&json!(format!("{POD}/128")), &"fe80::1".into())
        );
        assert_eq!(result["routes"][1], json!({"dst": "::/0", "gw": "fe80::1"}));
        assert_eq!(result["interfaces"][1]["name"], "eth0");
    });
}

#[test]
fn a_result_for_an_older_runtime_contains_the_address_version() {
    on_a_node(|node| {
        let _daemon = daemon(node, Book::default());
        let mut conf = node.conf();
        conf["cniVersion"] = json!("0.4.0");
        let result = node.call_with("ADD", &node.sandbox("c1", "web-0"), &conf).run().result();
        assert_eq!(result["ips"][0]["version"], "6");
        assert_eq!(
            rules(node),
            [format!("512 all {POD} 254")],
            "the primary ENI needs no other rule"
        );
    });
}

#[test]
fn host_and_pod_reach_each_other_at_once() {
    on_a_node(|node| {
        let _daemon = daemon(node, Book::default());
        let sandbox = node.sandbox("c1", "web-0");
        add(node, &sandbox);
        let begun = std::time::Instant::now();
        let listener = node.inside(&sandbox.netns, || TcpListener::bind((POD, 8080)).unwrap());
        let (stream, _) = (TcpStream::connect((POD, 8080)).unwrap(), listener.accept().unwrap());
        assert_eq!(stream.local_addr().unwrap().ip().to_string(), "2001:db8::10");
        let listener = TcpListener::bind("[2001:db8::10]:8080").unwrap();
        node.inside(&sandbox.netns, || TcpStream::connect("[2001:db8::10]:8080").unwrap());
        assert_eq!(listener.accept().unwrap().1.ip().to_string(), POD);
        eprintln!("connected both ways in {} ms", begun.elapsed().as_millis());
    });
}

#[test]
fn a_repeated_add_changes_nothing_and_check_passes_until_something_is_missing() {
    on_a_node(|node| {
        let _daemon = daemon(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let result = add(node, &sandbox);
        let before = (rules(node), routes(node), node.link(VETH).unwrap()["ifindex"].clone());
        assert_eq!(node.add(&sandbox), result);
        assert_eq!(
            (rules(node), routes(node), node.link(VETH).unwrap()["ifindex"].clone()),
            before
        );

        let mut conf = node.conf();
        conf["prevResult"] = result;
        node.call_with("CHECK", &sandbox, &conf).run().is_silent_success();
        node.ip_inside(&sandbox.netns, "-6 neigh del fe80::1 dev eth0");
        node.ip(&format!("-6 rule del pref 1536 from {POD}"));
        let (message, _) = node.call_with("CHECK", &sandbox, &conf).run().error(101);
        assert!(message.contains("fe80::1") && message.contains("1536"), "{message}");
    });
}

#[test]
fn del_leaves_nothing_with_and_without_a_daemon_and_spares_the_next_pod() {
    for up in [true, false] {
        on_a_node(|node| {
            let daemon = daemon(node, Book::on_table_2());
            let (old, new) = (node.sandbox("old", "web-0"), node.sandbox("new", "web-0"));
            let old_result = add(node, &old);
            add(node, &new);
            let daemon = up.then_some(daemon);
            for _ in 0..2 {
                node.first_del(&old, &old_result).run().is_silent_success();
                node.late_del(&old).run().is_silent_success();
            }
            let next = "2001:db8::101";
            assert_eq!(routes(node), [format!("{next} {VETH} 70")], "up: {up}");
            let left = [format!("512 all {next} 254"), format!("1536 {next} - 2")];
            assert_eq!(rules(node), left, "up: {up}");
            drop(daemon);
        });
    }
}

#[test]
fn a_failed_build_is_rolled_back() {
    on_a_node(|node| {
        let daemon = daemon(
            node,
            Book { behavior: crate::daemon::DaemonBehavior::Forgetful, ..Book::on_table_2() },
        );
        let sandbox = node.sandbox("c1", "web-0");
        node.call("ADD", &sandbox).run().error(11);
        assert_eq!((rules(node), routes(node), node.veths()), (vec![], vec![], vec![]));
        daemon.book(|book| assert_eq!(book.asked.last().unwrap(), "release SetupFailed c1"));
    });
}
