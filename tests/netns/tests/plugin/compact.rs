//! Compact rules: ADD, CHECK and DEL with rules that pods share.

use crate::{
    add::VETH,
    check::check,
    daemon::{Book, Daemon},
    node::{Node, on_a_node},
};
use config_model::RuleLayout;
use serde_json::Value;

/// The rule to pods, which all pods share.
const SHARED: &str = "512 from all 17989";

fn compact() -> Book {
    Book { rules: RuleLayout::Compact, ..Book::on_table_2() }
}

/// Returns the addresses in the table of pods.
fn routed(node: &Node) -> Vec<String> {
    let routes = node.show("route show table 17989");
    routes.iter().filter_map(|route| Some(route["dst"].as_str()?.to_owned())).collect()
}

#[test]
fn pods_share_the_rule_to_them_and_start_with_a_rule_from_each() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, compact());
        let first = node.sandbox("c1", "web-0");
        let result = node.add(&first);
        assert_eq!(node.pod_rules(), ["1536 from 10.0.0.100 2", SHARED]);
        assert_eq!(routed(node), ["10.0.0.100"]);
        assert_eq!(node.pod_routes(), Vec::<String>::new(), "table main has none");
        check(node, &first, &result).run().is_silent_success();

        let second = node.sandbox("c2", "web-1");
        let other = node.add(&second);
        let both = ["1536 from 10.0.0.100 2", "1536 from 10.0.0.101 2", SHARED];
        assert_eq!(node.pod_rules(), both, "the shared one is there once");

        node.first_del(&first, &result).run().is_silent_success();
        assert_eq!(node.pod_rules(), ["1536 from 10.0.0.101 2", SHARED]);
        assert_eq!(routed(node), ["10.0.0.101"]);
        check(node, &second, &other).run().is_silent_success();
    });
}

#[test]
fn check_accepts_a_rule_of_a_prefix_or_mark_instead_of_the_pods_own() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, compact());
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        let complaint = |named: &str| {
            let (message, _) = check(node, &sandbox, &result).run().error(101);
            assert!(message.contains(named), "{message}");
        };
        node.ip("rule del pref 1536");
        complaint("no rule pref 1536 from 10.0.0.100 lookup 2");
        for shared in ["from 10.0.0.96/28", "fwmark 0x100/0x3f00"] {
            node.ip(&format!("rule add {shared} lookup 2 pref 1536"));
            check(node, &sandbox, &result).run().is_silent_success();
            node.ip(&format!("rule del {shared} lookup 2 pref 1536"));
            node.ip(&format!("rule add {shared} lookup 3 pref 1536"));
            complaint("no rule pref 1536 from 10.0.0.100 lookup 2");
            node.ip(&format!("rule del {shared} lookup 3 pref 1536"));
        }
        node.ip("rule add from 10.0.0.96/28 lookup 2 pref 1536");
        node.ip("rule del pref 512");
        complaint("no rule pref 512 lookup 17989");
        node.ip("rule add pref 512 lookup 17989");
        node.ip("route flush table 17989");
        complaint(VETH);
        // A missing daemon is one finding. CHECK then derives the layout from the host's rules.
        node.ip(&format!("route add 10.0.0.100 dev {VETH} table 17989"));
        daemon.kill();
        let (message, _) = check(node, &sandbox, &result).run().error(11);
        assert!(!message.contains("512"), "{message}");
    });
}

#[test]
fn a_del_cleans_up_after_either_layout() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, compact());
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        // The state while the daemon switches from one layout to the other.
        node.ip("rule add to 10.0.0.100 lookup main pref 512 protocol 70");
        node.ip(&format!("route add 10.0.0.100 dev {VETH} protocol 70"));
        daemon.book(|book| book.rules = RuleLayout::PerPod);
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert_eq!(node.pod_rules(), [SHARED]);
        assert_eq!((routed(node), node.pod_routes()), (Vec::new(), Vec::new()));
        let of_pod = |rule: &Value| rule.to_string().contains("10.0.0.100");
        assert!(!node.show("rule").iter().any(of_pod));
    });
}
