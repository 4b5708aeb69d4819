//! Pods with an interface on every network card.

use crate::{
    add::VETH,
    daemon::{Book, Daemon},
    node::{Node, on_a_node},
};
use serde_json::{Value, json};

/// The name of the second host veth: the start of SHA-1 over `default.web-0.1`, as in amazon-vpc-cni.
const SECOND: &str = "enib813f772d20";

fn asking(node: &Node) -> Value {
    let mut conf = node.conf();
    conf["runtimeConfig"] = json!({
        "io.kubernetes.cri.pod-annotations": {
            "k8s.amazonaws.com/nicConfig": "multi-nic-attachment",
            "secret": "canary",
        },
    });
    conf
}

fn two_cards() -> Book {
    Book { cards: 2, ..Book::on_table_2() }
}

#[test]
fn a_pod_with_the_annotation_gets_an_interface_on_every_card() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, two_cards());
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.call_with("ADD", &sandbox, &asking(node)).run().result();

        let mut veths = node.veths();
        veths.sort();
        assert_eq!(veths, [VETH, SECOND]);
        assert_eq!(node.link(SECOND).unwrap()["ifalias"], "ferrule:aws-cni/c1/mNicIf1");
        let routes = [format!("10.0.0.100 {VETH}"), format!("10.0.0.101 {SECOND}")];
        assert_eq!(node.pod_routes(), routes);
        assert_eq!(
            node.pod_rules(),
            [
                "1536 from 10.0.0.100 2",
                "1536 from 10.0.0.101 10100",
                "512 to 10.0.0.100 254",
                "512 to 10.0.0.101 254",
            ]
        );

        let inside = |words: &str| node.show_inside(&sandbox.netns, words);
        let defaults = inside("-4 route show default table all");
        let line = |route: &Value| {
            format!("{} {} {}", route["gateway"], route["dev"], route["table"]).replace('"', "")
        };
        let mut defaults: Vec<String> = defaults.iter().map(line).collect();
        defaults.sort();
        assert_eq!(defaults, ["169.254.1.1 eth0 null", "169.254.1.2 mNicIf1 1"]);
        let own = inside("rule").into_iter().find(|rule| rule["priority"] == 1).unwrap();
        assert_eq!((&own["src"], &own["table"]), (&"10.0.0.101".into(), &"1".into()));
        let gateway = inside("neigh show dev mNicIf1 nud permanent").remove(0);
        assert_eq!(gateway["dst"], "169.254.1.2");
        assert_eq!(gateway["lladdr"], node.link(SECOND).unwrap()["address"]);

        let names: Vec<&Value> =
            result["interfaces"].as_array().unwrap().iter().map(|link| &link["name"]).collect();
        assert_eq!(names, [VETH, "eth0", SECOND, "mNicIf1"]);
        assert_eq!(result["ips"][1]["address"], "10.0.0.101/32");
        assert_eq!(result["ips"][1]["interface"], 3);
        assert_eq!(result["routes"].as_array().unwrap().len(), 2, "routes of table main only");
    });
}

#[test]
fn a_pod_without_the_annotation_or_with_another_value_gets_one_interface() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, two_cards());
        node.call_with("ADD", &node.sandbox("c1", "web-0"), &node.conf()).run().result();
        let mut other = asking(node);
        other["runtimeConfig"]["io.kubernetes.cri.pod-annotations"]["k8s.amazonaws.com/nicConfig"] =
            json!("all-of-them");
        node.call_with("ADD", &node.sandbox("c2", "web-1"), &other).run().result();
        assert_eq!(node.veths().len(), 2);
    });
}

#[test]
fn del_removes_all_interfaces_with_and_without_a_daemon_and_late_dels_spare_the_next_pod() {
    for up in [true, false] {
        on_a_node(|node| {
            let daemon = Daemon::start_with(node, two_cards());
            let (old, new) = (node.sandbox("old", "web-0"), node.sandbox("new", "web-0"));
            let result = node.call_with("ADD", &old, &asking(node)).run().result();
            let mut daemon = Some(daemon);
            if !up {
                daemon = None;
            }
            node.first_del(&old, &result).run().is_silent_success();
            assert_eq!((node.pod_rules().len(), node.pod_routes().len()), (0, 0), "up: {up}");
            let alive = |name: &str| node.link(name).is_some_and(|link| link["group"] == "default");
            assert!(!alive(VETH) && !alive(SECOND), "up: {up}");

            let daemon = daemon.unwrap_or_else(|| Daemon::start_with(node, two_cards()));
            node.call_with("ADD", &new, &asking(node)).run().result();
            let before = (node.pod_rules(), node.pod_routes(), node.veths());
            assert_eq!((before.0.len(), before.1.len(), before.2.len()), (4, 2, 2));
            let daemon = up.then_some(daemon);
            for _ in 0..2 {
                node.first_del(&old, &result).run().is_silent_success();
                node.late_del(&old).run().is_silent_success();
            }
            if up {
                assert_eq!((node.pod_rules(), node.pod_routes(), node.veths()), before);
            } else {
                // Without a daemon only the route shows the owner of an address.
                assert_eq!((node.pod_routes(), node.veths()), (before.1, before.2));
            }
            drop(daemon);
        });
    }
}

#[test]
fn check_compares_all_interfaces() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, two_cards());
        let sandbox = node.sandbox("c1", "web-0");
        let mut conf = asking(node);
        conf["prevResult"] = node.call_with("ADD", &sandbox, &conf).run().result();
        node.call_with("CHECK", &sandbox, &conf).run().is_silent_success();
        node.ip_inside(&sandbox.netns, "rule del pref 1");
        node.ip("rule del pref 1536 from 10.0.0.101");
        let (message, _) = node.call_with("CHECK", &sandbox, &conf).run().error(101);
        assert!(message.contains("pref 1 from 10.0.0.101 lookup 1 in the pod"), "{message}");
        assert!(message.contains("pref 1536 from 10.0.0.101 lookup 10100"), "{message}");
    });
}

#[test]
fn a_failed_build_of_several_interfaces_is_rolled_back_as_one() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, two_cards());
        let sandbox = node.sandbox("c1", "web-0");
        // A link of another owner has the second interface's name.
        node.ip_inside(&sandbox.netns, "link add name mNicIf1 type bridge");
        let (message, _) = node.call_with("ADD", &sandbox, &asking(node)).run().error(102);
        assert!(message.contains("mNicIf1"), "{message}");
        assert_eq!(
            (node.pod_rules().len(), node.pod_routes().len(), node.veths().len()),
            (0, 0, 0)
        );
        daemon.book(|book| assert!(book.held.is_empty()));
    });
}
