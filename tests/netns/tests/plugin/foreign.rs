//! Results and objects of other plugins. The plugin reports them and does not touch them.

use crate::{
    binary::Sandbox,
    daemon::{Book, Daemon},
    del::tombstones,
    node::{Node, on_a_node},
};
use serde_json::{Value, json};

const ADDRESS: &str = "10.244.0.9";

/// Creates a pod like the plugin `bridge`, with a foreign rule for its address. Returns the result.
fn bridged(node: &Node, sandbox: &Sandbox) -> Value {
    let netns = sandbox.netns.to_str().unwrap();
    for words in [
        "link add cni0 type bridge",
        "link set cni0 up",
        "addr add 10.244.0.1/24 dev cni0",
        &format!("link add veth9f3a type veth peer name eth0 netns {netns}"),
        "link set veth9f3a master cni0 up",
        &format!("rule add from {ADDRESS} lookup 7 pref 100"),
    ] {
        node.ip(words);
    }
    node.ip_inside(&sandbox.netns, &format!("addr add {ADDRESS}/24 dev eth0"));
    node.ip_inside(&sandbox.netns, "link set eth0 up");
    json!({
        "cniVersion": "1.0.0",
        "interfaces": [
            {"name": "cni0", "mac": "0a:58:0a:f4:00:01"},
            {"name": "veth9f3a", "mac": "0a:58:0a:f4:00:02"},
            {"name": "eth0", "mac": "0a:58:0a:f4:00:03", "sandbox": netns},
        ],
        "ips": [{"address": format!("{ADDRESS}/24"), "gateway": "10.244.0.1", "interface": 2}],
        "routes": [{"dst": "0.0.0.0/0"}],
        "dns": {},
    })
}

/// Returns links and addresses in the pod, without fields that the kernel changes asynchronously.
fn inside(node: &Node, sandbox: &Sandbox) -> Vec<String> {
    let links = node.show_inside(&sandbox.netns, "addr");
    let line = |link: &Value| {
        format!("{} {} {}", link["ifname"], link["address"], link["addr_info"][0]["local"])
    };
    links.iter().map(line).collect()
}

#[test]
fn no_verb_touches_the_objects_of_a_foreign_plugins_result() {
    on_a_node(|node| {
        let sandbox = node.sandbox("c1", "web-0");
        let result = bridged(node, &sandbox);
        let mut conf = node.conf();
        conf["prevResult"] = result.clone();
        let before = (node.host_state(), inside(node, &sandbox));
        let unchanged = |when: &str| {
            assert_eq!((node.host_state(), inside(node, &sandbox)), before, "{when}");
        };

        let daemon = Daemon::start(node);
        // With both plugins in one conflist, each would create the pod's interface.
        let (message, details) = node.call_with("ADD", &sandbox, &conf).run().error(102);
        assert!(message.contains("eth0") && !details.is_empty(), "{message} {details}");
        unchanged("ADD");
        let (message, _) = node.call_with("CHECK", &sandbox, &conf).run().error(101);
        assert!(message.contains("web-0"), "{message}");
        unchanged("CHECK");
        for _ in 0..2 {
            node.first_del(&sandbox, &result).run().is_silent_success();
            node.late_del(&sandbox).run().is_silent_success();
        }
        unchanged("DEL");
        daemon.kill();
        node.first_del(&sandbox, &result).run().is_silent_success();
        unchanged("DEL without the daemon");
    });
}

/// Returns the result of another network's plugin for this sandbox, with its own links and the address of a Ferrule
/// pod.
fn claiming(sandbox: &Sandbox) -> Value {
    json!({
        "cniVersion": "1.0.0",
        "interfaces": [
            {"name": "cni0", "mac": "02:00:00:00:00:01"},
            {"name": "veth1234", "mac": "02:00:00:00:00:02"},
            {"name": "eth0", "mac": "02:00:00:00:00:03", "sandbox": sandbox.netns},
        ],
        "ips": [{"address": "10.0.0.100/24", "gateway": "10.0.0.1", "interface": 2}],
        "routes": [{"dst": "0.0.0.0/0"}],
    })
}

#[test]
fn a_foreign_result_with_the_address_of_a_ferrule_pod_does_not_affect_that_pod() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let ours = node.sandbox("ours", "web-0");
        assert_eq!(node.add(&ours)["ips"][0]["address"], "10.0.0.100/32");
        let theirs = node.sandbox("theirs", "web-1");
        let mut conf = node.conf();
        conf["prevResult"] = claiming(&theirs);
        node.ip("link add cni0 type bridge");
        node.ip("link add veth1234 type veth peer name veth4321");
        node.ip("addr add 10.9.0.1/24 dev cni0");
        let before = node.host_state();
        let (message, _) = node.call_with("CHECK", &theirs, &conf).run().error(101);
        assert!(message.contains("names no host interface") && message.contains("holds nothing"));
        let del = || node.call_with("DEL", &theirs, &conf).run();
        del().is_silent_success();
        assert_eq!(node.host_state(), before);
        daemon.book(|book| assert_eq!(book.held.len(), 1));
        // The same without the daemon. The tombstone is for that sandbox only.
        daemon.kill();
        for _ in 0..2 {
            del().is_silent_success();
            assert_eq!(node.host_state(), before);
        }
        let ids: Vec<_> = tombstones(node).into_iter().map(|of| of.key.container_id).collect();
        assert_eq!(ids, ["theirs"]);
    });
}

#[test]
fn an_invalid_result_fails_add_and_check_by_name_and_no_del() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, Book::on_table_2());
        let (ours, theirs) = (node.sandbox("ours", "web-0"), node.sandbox("theirs", "web-1"));
        node.add(&ours);
        let before = node.host_state();
        let mut address = claiming(&theirs);
        address["ips"][0]["address"] = json!("ten");
        let mut interface = claiming(&theirs);
        interface["ips"][0]["interface"] = json!("eth0");
        for result in [json!("done"), json!([]), address, interface] {
            let mut conf = node.conf();
            conf["prevResult"] = result;
            for verb in ["ADD", "CHECK"] {
                let (message, details) = node.call_with(verb, &theirs, &conf).run().error(7);
                assert!(message.contains("prevResult") && !details.is_empty(), "{message}");
            }
            node.call_with("DEL", &theirs, &conf).run().is_silent_success();
            assert_eq!(node.host_state(), before);
        }
    });
}
