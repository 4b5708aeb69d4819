//! Two sandboxes of one pod name. The DEL of the old one must not touch the new one.

use crate::{
    add::VETH,
    binary::Sandbox,
    daemon::{Book, Daemon},
    node::{Node, on_a_node},
};
use config_model::{PodKey, PodName, registry};
use serde_json::Value;

/// Sends the DELs of kubelet and containerd for one sandbox, in their order.
fn four_dels(node: &Node, sandbox: &Sandbox, result: &Value) {
    node.first_del(sandbox, result).run().is_silent_success();
    node.late_del(sandbox).run().is_silent_success();
    node.first_del(sandbox, result).var("CNI_NETNS", "").run().is_silent_success();
    node.late_del(sandbox).run().is_silent_success();
}

/// Returns the kernel objects of the new sandbox.
fn objects_of(node: &Node, sandbox: &Sandbox, address: &str) -> Vec<String> {
    let mut lines = vec![node.link(VETH).unwrap()["ifindex"].to_string()];
    lines.push(node.link(VETH).unwrap()["group"].to_string());
    lines.extend(node.pod_routes().into_iter().filter(|line| line.contains(address)));
    lines.extend(node.pod_rules().into_iter().filter(|line| line.contains(address)));
    let inside = node.show_inside(&sandbox.netns, "-4 route show table main");
    lines.extend(inside.iter().map(Value::to_string));
    lines
}

#[test]
fn the_old_sandboxs_four_dels_after_the_next_add_leave_the_new_pod_alone() {
    for up in [true, false] {
        on_a_node(|node| {
            let daemon = Daemon::start_with(node, Book::on_table_2());
            let (old, new) = (node.sandbox("old", "web-0"), node.sandbox("new", "web-0"));
            let old_result = node.add(&old);
            node.add(&new);
            assert_eq!(node.link(VETH).unwrap()["ifalias"], "ferrule:aws-cni/new/eth0");
            let before = objects_of(node, &new, "10.0.0.101");
            assert_eq!(before.len(), 7, "link, group, route, two rules, two routes inside");

            let daemon = up.then_some(daemon);
            four_dels(node, &old, &old_result);
            assert_eq!(objects_of(node, &new, "10.0.0.101"), before, "up: {up}");
            let leftover = node.pod_rules().into_iter().find(|rule| rule.contains("10.0.0.100"));
            assert_eq!(leftover, None, "the old address is gone; up: {up}");
            drop(daemon);
        });
    }
}

#[test]
fn old_dels_spare_a_new_pod_with_the_same_address() {
    for up in [true, false] {
        on_a_node(|node| {
            let daemon = Daemon::start_with(node, Book::on_table_2());
            let (old, new) = (node.sandbox("old", "web-0"), node.sandbox("new", "web-0"));
            let old_result = node.add(&old);
            node.first_del(&old, &old_result).run().is_silent_success();
            daemon.book(|book| book.next = vec!["10.0.0.100".parse().unwrap()]);
            node.add(&new);
            let before = objects_of(node, &new, "10.0.0.100");
            assert_eq!(before.len(), 7);

            let daemon = up.then_some(daemon);
            four_dels(node, &old, &old_result);
            assert_eq!(objects_of(node, &new, "10.0.0.100"), before, "up: {up}");
            drop(daemon);
        });
    }
}

#[test]
fn an_address_reassigned_to_another_pod_is_spared_also_without_a_daemon() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let (old, other) = (node.sandbox("old", "web-0"), node.sandbox("other", "db-0"));
        let old_result = node.add(&old);
        node.first_del(&old, &old_result).run().is_silent_success();
        daemon.book(|book| book.next = vec!["10.0.0.100".parse().unwrap()]);
        node.add(&other);
        let (rules, routes) = (node.pod_rules(), node.pod_routes());
        daemon.kill();
        four_dels(node, &old, &old_result);
        assert_eq!((node.pod_rules(), node.pod_routes()), (rules, routes));
    });
}

#[test]
fn the_next_add_takes_the_name_of_a_link_that_waits_to_be_reaped() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let (old, new) = (node.sandbox("old", "web-0"), node.sandbox("new", "web-0"));
        let result = node.add(&old);
        node.first_del(&old, &result).run().is_silent_success();
        node.add(&new);
        assert_eq!(node.veths(), [VETH]);
        assert_eq!(node.link(VETH).unwrap()["ifalias"], "ferrule:aws-cni/new/eth0");
    });
}

#[test]
fn an_add_of_the_same_sandbox_after_its_del_rebuilds_the_interface() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        node.first_del(&sandbox, &result).run().is_silent_success();
        // The old link cannot be reused even with the same address, because the daemon will delete it.
        let old = node.link(VETH).unwrap()["ifindex"].clone();
        daemon.book(|book| book.next = vec!["10.0.0.100".parse().unwrap()]);
        node.add(&sandbox);
        let link = node.link(VETH).unwrap();
        assert_ne!(link["ifindex"], old);
        assert_eq!(link["group"], node.link("eth0").unwrap()["group"], "not to be reaped");
        assert_eq!(node.pod_routes(), [format!("10.0.0.100 {VETH}")]);
    });
}

#[test]
fn a_link_of_another_pod_with_the_same_name_stays_and_the_add_waits() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let (victim, comer) = (node.sandbox("victim", "web-0"), node.sandbox("comer", "web-0"));
        node.add(&victim);
        let key = PodKey::new("aws-cni", "victim", "eth0").unwrap();
        let other = PodName { namespace: "shop".to_owned(), name: "web-282697".to_owned() };
        daemon.book(|book| book.names.insert(key.clone(), other));
        let before = objects_of(node, &victim, "10.0.0.100");
        let (message, details) = node.call("ADD", &comer).run().error(11);
        for part in [VETH, "default/web-0", "shop/web-282697"] {
            assert!(message.contains(part), "{message}");
        }
        assert!(!details.is_empty());
        assert_eq!(objects_of(node, &victim, "10.0.0.100"), before);
        // A link of an unknown key waits for the daemon, which deletes it if no pod owns it.
        daemon.book(|book| drop(book.held.remove(&key)));
        let (message, _) = node.call("ADD", &comer).run().error(11);
        assert!(message.contains("aws-cni/victim/eth0"), "{message}");
        assert_eq!(objects_of(node, &victim, "10.0.0.100"), before);
        node.ip(&format!("link set {VETH} group {}", registry::GROUP_REAP));
        node.add(&comer);
        assert_eq!(node.link(VETH).unwrap()["ifalias"], "ferrule:aws-cni/comer/eth0");
        assert_eq!(node.link(VETH).unwrap()["group"], "0");
    });
}

#[test]
fn a_link_without_alias_is_replaced_only_if_it_leads_nowhere() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, Book::on_table_2());
        let pod = node.sandbox("c1", "web-0");
        node.ip(&format!("link add {VETH} type veth peer name far0"));
        for end in [VETH, "far0"] {
            // With carrier the kernel adds a route to fe80::/64, which leads to no pod.
            node.ip(&format!("link set {end} up"));
        }
        node.ip(&format!("route add 10.0.0.9 dev {VETH}"));
        let (message, _) = node.call("ADD", &pod).run().error(11);
        assert!(message.contains("amazon-vpc-cni"), "{message}");
        assert!(node.link("far0").is_some());
        node.ip("route del 10.0.0.9");
        node.add(&pod);
        assert!(node.link("far0").is_none());
    });
}
