//! Two sandboxes of one pod name. The DEL of the old one must not touch the new one.

use crate::{
    add::VETH,
    binary::Sandbox,
    daemon::{Book, Daemon},
    node::{Node, on_a_node},
};
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
