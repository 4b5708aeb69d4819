//! DEL: the removed and the spared objects, and repetitions.

use crate::{
    add::VETH,
    daemon::{Book, Daemon, DaemonBehavior},
    node::{Node, on_a_node},
};
use config_model::{PodKey, Tombstone, registry};
use std::fs;
use tests_eventually::{PATIENCE, eventually};

/// Returns the node's tombstones.
pub(crate) fn tombstones(node: &Node) -> Vec<Tombstone> {
    let Ok(folder) = fs::read_dir(node.path("state").join(registry::TOMBSTONE_DIR)) else {
        return Vec::new();
    };
    folder
        .map(|entry| serde_json::from_slice(&fs::read(entry.unwrap().path()).unwrap()).unwrap())
        .collect()
}

pub(crate) fn group(node: &Node) -> Option<String> {
    let group = node.link(VETH)?["group"].clone();
    Some(group.as_str().map_or_else(|| group.to_string(), str::to_owned))
}

#[test]
fn del_releases_removes_rules_and_route_and_gives_the_link_to_the_daemon() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert_eq!(node.pod_rules(), Vec::<String>::new());
        assert_eq!(node.pod_routes(), Vec::<String>::new());
        assert_eq!(group(node), Some(registry::GROUP_REAP.to_string()));
        daemon.book(|book| {
            assert_eq!(book.asked.last().unwrap(), "release PodDeleted c1");
            assert!(book.held.is_empty());
        });
        assert_eq!(tombstones(node), []);
    });
}

#[test]
fn del_removes_every_rule_from_the_pod_also_earlier_ones() {
    on_a_node(|node| {
        let _daemon = Daemon::start_with(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        // Rules of older releases of amazon-vpc-cni, one for each CIDR of the VPC, and a twin with another protocol.
        node.ip("rule add from 10.0.0.100 to 10.0.0.0/16 lookup 2 pref 1536");
        node.ip("rule add to 10.0.0.100 lookup main pref 512 protocol boot");
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert_eq!(node.pod_rules(), Vec::<String>::new());
    });
}

#[test]
fn del_may_be_repeated_with_and_without_namespace_and_result() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let before = node.host_state();
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        for _ in 0..2 {
            node.first_del(&sandbox, &result).run().is_silent_success();
        }
        node.delete_netns("c1");
        for _ in 0..2 {
            node.first_del(&sandbox, &result).run().is_silent_success();
            node.late_del(&sandbox).run().is_silent_success();
        }
        eventually("the link went with its namespace", PATIENCE, || node.host_state() == before);
    });
}

#[test]
fn del_of_an_unknown_sandbox_succeeds_and_needs_no_pod_name() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        let before = node.host_state();
        let sandbox = node.sandbox("c9", "never");
        node.late_del(&sandbox).run().is_silent_success();
        node.late_del(&sandbox).without("CNI_ARGS").run().is_silent_success();
        assert_eq!(node.host_state(), before);
    });
}

#[test]
fn del_without_a_pod_name_finds_the_interface_by_its_key() {
    on_a_node(|node| {
        for up in [true, false] {
            let daemon = Daemon::start_with(node, Book::on_table_2());
            let sandbox = node.sandbox("c1", "web-0");
            node.add(&sandbox);
            let kept = up.then_some(daemon);
            node.late_del(&sandbox).without("CNI_ARGS").run().is_silent_success();
            assert_eq!((node.pod_rules(), node.pod_routes()), (vec![], vec![]), "up: {up}");
            drop(kept);
        }
    });
}

#[test]
fn del_without_a_daemon_cleans_the_kernel_and_leaves_a_tombstone() {
    on_a_node(|node| {
        let before = node.host_state();
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        daemon.kill();
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert_eq!(node.host_state(), before, "the plugin deletes the link itself");
        let key = PodKey::new("aws-cni", "c1", "eth0").unwrap();
        let [tombstone] = tombstones(node).try_into().unwrap();
        assert_eq!((&tombstone.key, tombstone.version), (&key, 1));
        assert_eq!(tombstone.addresses, ["10.0.0.100".parse::<std::net::Ipv4Addr>().unwrap()]);
        assert_eq!(tombstone.pod.unwrap().to_string(), "default/web-0");

        // Later DELs have fewer fields. The tombstone must keep those of the first one.
        node.late_del(&sandbox).run().is_silent_success();
        node.late_del(&sandbox).without("CNI_ARGS").run().is_silent_success();
        let [tombstone] = tombstones(node).try_into().unwrap();
        assert_eq!(tombstone.addresses.len(), 1);
        assert!(tombstone.pod.is_some());
    });
}

#[test]
fn del_without_daemon_namespace_and_result_leaves_a_tombstone() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        node.add(&sandbox);
        daemon.kill();
        node.delete_netns("c1");
        eventually("the link went with its namespace", PATIENCE, || node.link(VETH).is_none());
        node.late_del(&sandbox).run().is_silent_success();
        assert_eq!(tombstones(node).len(), 1);
    });
}

#[test]
fn del_without_the_link_uses_the_result_that_the_runtime_kept() {
    on_a_node(|node| {
        let before = node.host_state();
        let daemon = Daemon::start_with(node, Book::on_table_2());
        let sandbox = node.sandbox("c1", "web-0");
        let result = node.add(&sandbox);
        daemon.kill();
        node.ip(&format!("link del {VETH}"));
        assert_eq!(node.pod_rules().len(), 2, "rules do not go with the link");
        node.first_del(&sandbox, &result).run().is_silent_success();
        assert_eq!(node.host_state(), before);
    });
}

#[test]
fn del_at_a_daemon_that_hangs_or_is_of_another_version_is_a_tombstone_too() {
    on_a_node(|node| {
        let before = node.host_state();
        let sandbox = node.sandbox("c1", "web-0");
        for hanging in [true, false] {
            let daemon = Daemon::start(node);
            let result = node.add(&sandbox);
            let _daemon = if hanging {
                daemon.book(|book| book.behavior = DaemonBehavior::Hanging);
                daemon
            } else {
                daemon.kill();
                Daemon::start_of_another_version(node)
            };
            node.first_del(&sandbox, &result).run().is_silent_success();
            assert_eq!(node.host_state(), before);
            assert_eq!(tombstones(node).len(), 1);
            fs::remove_dir_all(node.path("state")).unwrap();
        }
    });
}

#[test]
fn del_fails_if_neither_the_daemon_nor_a_tombstone_can_record_it() {
    on_a_node(|node| {
        let sandbox = node.sandbox("c1", "web-0");
        fs::write(node.path("state"), "a file, no folder").unwrap();
        let (message, _) = node.call("DEL", &sandbox).run().error(5);
        assert!(message.contains("aws-cni/c1/eth0"), "{message}");
    });
}
