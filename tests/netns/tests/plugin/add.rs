//! ADD: the kernel objects, and the result for the runtime.

use crate::{
    daemon::{Book, Daemon},
    node::{Node, on_a_node},
};
use config_model::PodKey;
use serde_json::{Value, json};
use std::{
    io::{Read as _, Write as _},
    net::{Shutdown, TcpListener, TcpStream},
};
use tests_eventually::{PATIENCE, eventually};

/// The name of the host veth: the start of SHA-1 over `default.web-0`, as in amazon-vpc-cni.
pub(crate) const VETH: &str = "eni0d7763386da";

fn key(container: &str) -> PodKey {
    PodKey::new("aws-cni", container, "eth0").unwrap()
}

/// The fields of a link that ADD decides.
fn shape(link: &Value) -> Value {
    json!({
        "mtu": link["mtu"],
        "kind": link["linkinfo"]["info_kind"],
        "alias": link["ifalias"],
        "up": link["flags"].as_array().unwrap().contains(&"UP".into()),
    })
}

#[test]
fn a_pod_of_the_primary_eni_gets_exactly_its_links_addresses_routes_and_rule() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        node.add(&sandbox);

        let host = node.link(VETH).unwrap();
        assert_eq!(
            shape(&host),
            json!({"mtu": 9001, "kind": "veth", "alias": "ferrule:aws-cni/c1/eth0", "up": true})
        );
        assert_eq!(node.veths(), [VETH]);
        assert_eq!(node.pod_routes(), [format!("10.0.0.100 {VETH}")]);
        assert_eq!(node.pod_rules(), ["512 to 10.0.0.100 254"]);
        let protocols: Vec<Value> = node
            .show("rule")
            .iter()
            .chain(&node.show("route show table main"))
            .filter(|object| object["dst"] == "10.0.0.100")
            .map(|object| object["protocol"].clone())
            .collect();
        assert_eq!(protocols, ["70", "70"]);

        let inside = |words: &str| node.show_inside(&sandbox.netns, words);
        let pod = inside("-d link show dev eth0").remove(0);
        assert_eq!((&pod["mtu"], &shape(&pod)["up"]), (&9001.into(), &true.into()));
        let addresses = inside("-4 addr show dev eth0").remove(0)["addr_info"].clone();
        assert_eq!(addresses.as_array().unwrap().len(), 1);
        assert_eq!(
            (&addresses[0]["local"], &addresses[0]["prefixlen"]),
            (&"10.0.0.100".into(), &32.into())
        );
        let routes: Vec<Value> = inside("-4 route show table main")
            .into_iter()
            .map(|route| json!([route["dst"], route["gateway"], route["dev"]]))
            .collect();
        assert_eq!(
            json!(routes),
            json!([["default", "169.254.1.1", "eth0"], ["169.254.1.1", null, "eth0"]])
        );
        let neighbors = inside("neigh show dev eth0 nud permanent");
        let neighbor = neighbors.iter().find(|n| n["dst"] == "169.254.1.1").unwrap();
        assert_eq!(neighbor["lladdr"], host["address"]);
    });
}

#[test]
fn a_pod_of_another_eni_also_gets_the_rule_to_its_table() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, Book::on_table_2());
        node.add(&node.sandbox("c1", "web-0"));
        assert_eq!(node.pod_routes(), [format!("10.0.0.100 {VETH}")]);
        assert_eq!(node.pod_rules(), ["1536 from 10.0.0.100 2", "512 to 10.0.0.100 254"]);
    });
}

#[test]
fn the_daemon_gets_a_reserve_before_and_a_confirm_after_the_build() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        node.add(&node.sandbox("c1", "web-0"));
        daemon.book(|book| {
            assert_eq!(book.asked, ["reserve c1", "confirm c1"]);
            assert!(book.held[&key("c1")].1);
        });
    });
}

#[test]
fn the_result_has_the_requested_version_and_matches_the_kernel() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        for (number, version) in ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"].iter().enumerate() {
            let sandbox = node.sandbox(&format!("c{number}"), &format!("web-{number}"));
            let mut conf = node.conf();
            conf["cniVersion"] = json!(version);
            let result = node.call_with("ADD", &sandbox, &conf).run().result();
            assert_eq!(result["cniVersion"], *version);

            let veth = result["interfaces"][0]["name"].as_str().unwrap();
            assert_eq!(result["interfaces"][0]["mac"], node.link(veth).unwrap()["address"]);
            let pod = node.show_inside(&sandbox.netns, "link show dev eth0").remove(0);
            assert_eq!(result["interfaces"][1]["name"], "eth0");
            assert_eq!(result["interfaces"][1]["mac"], pod["address"]);
            assert_eq!(result["interfaces"][1]["sandbox"], json!(sandbox.netns));
            assert_eq!(result["interfaces"].as_array().unwrap().len(), 2);

            let ip = &result["ips"][0];
            assert_eq!(ip["address"], format!("10.0.0.{}/32", 100 + number));
            assert_eq!((&ip["gateway"], &ip["interface"]), (&"169.254.1.1".into(), &1.into()));
            let family = if *version < "1.0.0" { json!("4") } else { Value::Null };
            assert_eq!(ip["version"], family);
            let mtu = if *version == "1.1.0" { json!(9001) } else { Value::Null };
            assert_eq!(result["interfaces"][1]["mtu"], mtu);
            assert_eq!(result["routes"][1], json!({"dst": "0.0.0.0/0", "gw": "169.254.1.1"}));
        }
    });
}

#[test]
fn the_results_of_earlier_plugins_come_first() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        let mut conf = node.conf();
        conf["prevResult"] = json!({
            "cniVersion": "1.0.0",
            "interfaces": [{"name": "v4if0", "sandbox": sandbox.netns}],
            "ips": [{"address": "169.254.172.2/22", "interface": 0}],
            "dns": {"nameservers": ["10.0.0.2"]},
        });
        let result = node.call_with("ADD", &sandbox, &conf).run().result();
        assert_eq!(result["interfaces"].as_array().unwrap().len(), 3);
        assert_eq!(result["ips"][0]["interface"], 0);
        assert_eq!(
            (&result["ips"][1]["address"], &result["ips"][1]["interface"]),
            (&"10.0.0.100/32".into(), &2.into())
        );
        assert_eq!(result["dns"]["nameservers"][0], "10.0.0.2");
    });
}

#[test]
fn host_and_pod_reach_each_other() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        node.add(&sandbox);
        let listener =
            node.inside(&sandbox.netns, || TcpListener::bind("10.0.0.100:8080").unwrap());
        let pod = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut question = Vec::new();
            stream.read_to_end(&mut question).unwrap();
            stream.write_all(&question).unwrap();
        });
        let sent = vec![7; 1 << 20];
        let mut stream = TcpStream::connect("10.0.0.100:8080").unwrap();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut received = Vec::new();
        stream.read_to_end(&mut received).unwrap();
        pod.join().unwrap();
        assert_eq!(received.len(), sent.len());

        let listener = TcpListener::bind("10.0.0.10:8080").unwrap();
        node.inside(&sandbox.netns, || TcpStream::connect("10.0.0.10:8080").unwrap());
        let (_, from) = listener.accept().unwrap();
        assert_eq!(from.ip().to_string(), "10.0.0.100");
    });
}

#[test]
fn a_repeated_add_gives_the_same_answer_and_changes_nothing() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let first = node.add(&sandbox);
        let (state, index) = (node.host_state(), node.link(VETH).unwrap()["ifindex"].clone());
        assert_eq!(node.add(&sandbox), first);
        assert_eq!(node.host_state(), state);
        assert_eq!(node.link(VETH).unwrap()["ifindex"], index, "the link was recreated");
    });
}

#[test]
fn a_repeated_add_repairs_what_is_broken() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let first = node.add(&sandbox);
        let state = node.host_state();
        node.ip("rule del pref 1536");
        node.ip(&format!("link set {VETH} down"));
        node.ip_inside(&sandbox.netns, "route flush table main");
        node.ip_inside(&sandbox.netns, "neigh del 169.254.1.1 dev eth0");
        assert_eq!(node.add(&sandbox), first);
        assert_eq!(node.host_state(), state);
        assert_eq!(node.show_inside(&sandbox.netns, "-4 route show table main").len(), 2);
        let neighbors = node.show_inside(&sandbox.netns, "neigh show dev eth0 nud permanent");
        assert!(neighbors.iter().any(|n| n["dst"] == "169.254.1.1"), "{neighbors:?}");
    });
}

#[test]
fn an_add_with_another_address_rebuilds_the_interface() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        node.add(&sandbox);
        daemon.book(|book| book.held.clear());
        let result = node.add(&sandbox);
        assert_eq!(result["ips"][0]["address"], "10.0.0.101/32");
        assert_eq!(node.pod_routes(), [format!("10.0.0.101 {VETH}")]);
        let addresses = node.show_inside(&sandbox.netns, "-4 addr show dev eth0");
        let addresses = addresses[0]["addr_info"].as_array().unwrap();
        assert_eq!(addresses.len(), 1, "{addresses:?}");
    });
}

#[test]
fn an_add_resumes_after_a_killed_add() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        // The state after a kill between the creation of the links and the write of their alias.
        node.ip(&format!("link add {VETH} type veth peer name peer0"));
        let name = sandbox.netns.to_str().unwrap();
        node.ip(&format!("link set peer0 netns {name}"));
        node.ip_inside(&sandbox.netns, "link set peer0 name eth0");
        let result = node.add(&sandbox);
        assert_eq!(result["ips"][0]["address"], "10.0.0.100/32");
        assert_eq!(node.link(VETH).unwrap()["ifalias"], "ferrule:aws-cni/c1/eth0");
        assert_eq!(node.pod_routes(), [format!("10.0.0.100 {VETH}")]);
    });
}

#[test]
fn an_add_waits_for_a_daemon_that_is_still_starting() {
    on_a_node(|node| {
        let adding = node.call("ADD", &node.sandbox("c1", "web-0")).start();
        // The ADD must succeed whether the plugin has already dialed the socket or not.
        let _daemon = Daemon::start(node);
        let result = crate::binary::Ended::of(adding).result();
        assert_eq!(result["ips"][0]["address"], "10.0.0.100/32");
    });
}

#[test]
fn an_add_outlives_a_daemon_that_is_killed_and_started_again() {
    on_a_node(|node| {
        let mut daemon = Daemon::start_with(
            node,
            Book { behavior: crate::daemon::DaemonBehavior::Hanging, ..Book::default() },
        );
        let adding = node.call("ADD", &node.sandbox("c1", "web-0")).start();
        eventually("the plugin sends a reserve", PATIENCE, || {
            daemon.book(|book| !book.asked.is_empty())
        });
        drop(daemon);
        daemon = Daemon::start(node);
        crate::binary::Ended::of(adding).result();
        assert_eq!(daemon.book(|book| book.asked.len()), 2);
    });
}

/// The default path of the log is the path of amazon-vpc-cni's log.
#[test]
fn the_log_is_json_at_the_path_of_amazon_vpc_cni_and_standard_output_has_the_result_only() {
    on_a_node(|node: &Node| {
        let _daemon = Daemon::start(node);
        let mut conf = node.conf();
        conf.as_object_mut().unwrap().remove("pluginLogFile");
        let ended = node.call_with("ADD", &node.sandbox("c1", "web-0"), &conf).run();
        assert_eq!(ended.stderr, "");
        assert!(ended.result().is_object());
        let log = std::fs::read_to_string("/var/log/aws-routed-eni/plugin.log").unwrap();
        let line: Value = serde_json::from_str(log.lines().next().unwrap()).unwrap();
        assert_eq!(
            (&line["verb"], &line["pod"], &line["address"]),
            (&"ADD".into(), &"default/web-0".into(), &"10.0.0.100".into())
        );

        conf["pluginLogFile"] = json!("/proc/no/such/file.log");
        node.call_with("ADD", &node.sandbox("c2", "web-1"), &conf).run().result();
        conf["pluginLogFile"] = json!("stdout");
        let ended = node.call_with("ADD", &node.sandbox("c3", "web-2"), &conf).run();
        assert!(ended.stderr.contains("\"verb\":\"ADD\""));
        ended.result();
    });
}

/// A veth whose peer has the same index gets its carrier up to a second later.
#[test]
fn the_two_veth_ends_never_have_the_same_index() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let next = node.show("link").iter().map(|link| link["ifindex"].as_u64().unwrap()).max();
        let next = next.unwrap() + 1;
        let sandbox = node.sandbox("c1", "web-0");
        // Each link uses an index. These links are deleted before the plugin runs.
        for number in 2..next {
            node.ip_inside(&sandbox.netns, &format!("link add name l{number} type bridge"));
        }
        for number in 2..next {
            node.ip_inside(&sandbox.netns, &format!("link del l{number}"));
        }
        // The explicit index of the plugin's second attempt is in use.
        node.ip(&format!("link add name taken index {} type bridge", next + 2));
        node.add(&sandbox);

        let host = node.link(VETH).unwrap()["ifindex"].as_u64().unwrap();
        let pod = node.show_inside(&sandbox.netns, "link show dev eth0").remove(0);
        assert_eq!(pod["ifindex"], next + 1, "the two ends did not have the same index at first");
        assert_eq!(host, next + 3);
        assert_eq!(node.veths(), [VETH]);
    });
}
