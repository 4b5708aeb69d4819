//! CHECK: it passes after an ADD, and names each difference.

use crate::{
    add::VETH,
    binary::{Call, Ended, Sandbox},
    daemon::{Book, Daemon, DaemonBehavior},
    node::{Node, on_a_node},
};
use config_model::registry;
use serde_json::{Value, json};
use tests_eventually::{PATIENCE, eventually};

pub(crate) fn check(node: &Node, sandbox: &Sandbox, result: &Value) -> Call {
    let mut conf = node.conf();
    conf["prevResult"] = result.clone();
    node.call_with("CHECK", sandbox, &conf)
}

#[test]
fn check_passes_on_what_add_made_also_when_later_plugins_added_to_it() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let mut result = node.add(&sandbox);
        check(node, &sandbox, &result).run().is_silent_success();

        let links = result["interfaces"].as_array_mut().unwrap();
        links.push(json!({"name": "v4if0", "sandbox": sandbox.netns}));
        let ips = result["ips"].as_array_mut().unwrap();
        ips.push(json!({"address": "169.254.172.2/22", "interface": 2}));
        node.ip_inside(&sandbox.netns, "link add v4if0 type bridge");
        node.ip_inside(&sandbox.netns, "addr add 169.254.172.2/22 dev v4if0");
        check(node, &sandbox, &result).run().is_silent_success();
    });
}

#[test]
fn check_names_each_thing_that_is_not_as_add_made_it() {
    type Damage = fn(&Node, &Sandbox);
    let damages: [(&str, Damage); 14] = [
        ("512", |node, _| node.ip("rule del pref 512")),
        ("1536", |node, _| node.ip("rule del pref 1536")),
        (VETH, |node, _| node.ip("route del 10.0.0.100")),
        (VETH, |node, _| node.ip(&format!("link set {VETH} down"))),
        ("169.254.1.1", |node, sandbox| {
            node.ip_inside(&sandbox.netns, "neigh del 169.254.1.1 dev eth0");
        }),
        ("default", |node, sandbox| node.ip_inside(&sandbox.netns, "route del default")),
        ("10.0.0.100", |node, sandbox| {
            node.ip_inside(&sandbox.netns, "addr del 10.0.0.100/32 dev eth0");
        }),
        ("eth0", |node, sandbox| node.ip_inside(&sandbox.netns, "link set eth0 name eth7")),
        ("2 rules pref 512", |node, _| {
            node.ip("rule add to 10.0.0.100 lookup main pref 512 protocol boot");
        }),
        ("should not be there", |node, _| {
            node.ip("rule add from 10.0.0.100 lookup 7 pref 1536");
        }),
        ("given up", |node, _| {
            node.ip(&format!("link set {VETH} group {}", registry::GROUP_REAP));
        }),
        ("Ethernet address", |node, _| {
            node.ip(&format!("link set {VETH} address 02:00:00:00:00:99"));
        }),
        ("has MTU 1400", |node, _| node.ip(&format!("link set {VETH} mtu 1400"))),
        ("not the other end", |node, sandbox| {
            // Another link has replaced the pod's end.
            node.ip_inside(&sandbox.netns, "link set eth0 name eth7");
            node.ip_inside(&sandbox.netns, "link add eth0 type veth peer name eth8");
        }),
    ];
    for (named, damage) in damages {
        on_a_node(|node| {
            let _daemon = Daemon::start_with(node, Book::on_table_2());
            let sandbox = node.sandbox("c1", "web-0");
            let result = node.add(&sandbox);
            damage(node, &sandbox);
            let (message, _) = check(node, &sandbox, &result).run().error(101);
            assert!(message.contains(named) && message.contains("default/web-0"), "{message}");
        });
    }
}

#[test]
fn check_compares_with_what_the_daemon_holds() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        daemon.book(|book| book.held.values_mut().for_each(|held| held.1 = false));
        let (message, _) = check(node, &sandbox, &result).run().error(101);
        assert!(message.contains("was not confirmed to the daemon"), "{message}");
        daemon.book(|book| {
            let held = book.held.values_mut().next().unwrap();
            *held = (held.0.clone(), true);
            held.0[0].ipv4 = Some("10.0.0.9".parse().unwrap());
        });
        let (message, _) = check(node, &sandbox, &result).run().error(101);
        assert!(message.contains("10.0.0.9"), "{message}");
        daemon.book(|book| book.held.clear());
        let (message, _) = check(node, &sandbox, &result).run().error(101);
        assert!(message.contains("holds nothing"), "{message}");
    });
}

#[test]
fn check_looks_at_the_kernel_even_if_the_daemon_does_not_answer() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        daemon.book(|book| book.behavior = DaemonBehavior::Hanging);
        check(node, &sandbox, &result).run().error(11);
        node.ip("rule del pref 512");
        let (message, _) = check(node, &sandbox, &result).run().error(101);
        assert!(message.contains("512") && message.contains("no answer"), "{message}");
    });
}

/// Only the daemon knows the table. Without it CHECK accepts a rule with any table, but not two rules with different
/// tables.
#[test]
fn without_a_daemon_a_rule_of_the_pod_is_right_whatever_its_table() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        check(node, &sandbox, &result).run().is_silent_success();
        daemon.kill();
        let (message, _) = check(node, &sandbox, &result).run().error(11);
        assert!(!message.contains("1536"), "{message}");
        node.ip("rule add from 10.0.0.100 lookup 3 pref 1536");
        let (message, _) = check(node, &sandbox, &result).run().error(101);
        assert!(message.contains("1536 from 10.0.0.100"), "{message}");
    });
}

#[test]
fn check_is_repeated_after_a_restart_of_the_daemon() {
    on_a_node(|node| {
        let first = Daemon::start_with(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        first.book(|book| book.behavior = DaemonBehavior::Hanging);
        let asking = check(node, &sandbox, &result).start();
        eventually("CHECK sends an inspect", PATIENCE, || {
            first.book(|book| book.asked.iter().any(|asked| asked == "inspect c1"))
        });
        let held = first.book(|book| book.held.clone());
        first.kill();
        let _second = Daemon::start_with(node, Book { held, ..Book::on_table_2() });
        Ended::of(asking).is_silent_success();
    });
}

#[test]
fn check_needs_the_result_and_a_version_that_has_check() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        let mut result = node.add(&sandbox);
        node.call("CHECK", &sandbox).run().error(7);
        check(node, &sandbox, &json!("no result")).run().error(7);
        let mut conf = node.conf();
        conf["cniVersion"] = json!("0.3.1");
        conf["prevResult"] = result.clone();
        node.call_with("CHECK", &sandbox, &conf).run().error(1);
        result["interfaces"] = json!([]);
        let (message, _) = check(node, &sandbox, &result).run().error(101);
        assert!(message.contains("names no"), "{message}");
    });
}
