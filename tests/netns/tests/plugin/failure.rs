//! ADDs that fail after the reserve. They leave no kernel object and release the reservation.

use crate::{
    binary::Ended,
    daemon::{Book, Daemon, DaemonBehavior},
    node::{Node, on_a_node},
};
use ipamd_rpc::{Reason, Reserve};
use std::path::PathBuf;
use tests_eventually::{PATIENCE, eventually};

/// Returns a book whose daemon runs `work` between a reserve and its answer.
fn meanwhile(work: impl FnMut(&Reserve) + Send + 'static) -> Book {
    Book { before_reserve: Some(Box::new(work)), ..Book::on_table_2() }
}

fn ip(words: &str) {
    let status = std::process::Command::new("ip").args(words.split_whitespace()).status().unwrap();
    assert!(status.success(), "ip {words}");
}

/// Fails if the reservation was not released.
fn is_released(daemon: &Daemon) {
    daemon.book(|book| {
        assert_eq!(book.asked.last().unwrap(), "release SetupFailed c1", "{:?}", book.asked);
        assert!(book.held.keys().all(|key| key.container_id != "c1"));
    });
}

fn no_tombstone(node: &Node) {
    assert!(!node.path("state").exists(), "a tombstone although the daemon got the release");
}

#[test]
fn an_interface_name_in_use_is_refused_before_the_reserve() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        let sandbox = node.sandbox("c1", "web-0");
        node.ip_inside(&sandbox.netns, "link add eth0 type bridge");
        let before = node.host_state();
        let (message, details) = node.call("ADD", &sandbox).run().error(102);
        assert!(message.contains("eth0 already exists") && !details.is_empty(), "{message}");
        assert_eq!(node.host_state(), before);
        assert_eq!(node.show_inside(&sandbox.netns, "link show dev eth0").len(), 1);
        daemon.book(|book| assert!(book.asked.is_empty()));
    });
}

#[test]
fn an_add_is_rolled_back_if_the_interface_name_is_taken_during_it() {
    on_a_node(|node| {
        let sandbox = node.sandbox("c1", "web-0");
        let netns = sandbox.netns.clone();
        let before = node.host_state();
        let daemon = Daemon::start_with(
            node,
            meanwhile(move |_| inside(&netns, "link add eth0 type bridge")),
        );
        node.call("ADD", &sandbox).run().error(102);
        assert_eq!(node.host_state(), before);
        is_released(&daemon);
        no_tombstone(node);
    });
}

fn inside(netns: &PathBuf, words: &str) {
    let netns = std::fs::File::open(netns).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            nix::sched::setns(netns, nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
            ip(words);
        });
    });
}

#[test]
fn an_add_is_rolled_back_if_its_namespace_is_deleted_during_it() {
    on_a_node(|node| {
        let sandbox = node.sandbox("c1", "web-0");
        let netns = sandbox.netns.clone();
        let before = node.host_state();
        let daemon = Daemon::start_with(
            node,
            meanwhile(move |_| {
                nix::mount::umount2(&netns, nix::mount::MntFlags::MNT_DETACH).unwrap();
                std::fs::remove_file(&netns).unwrap();
            }),
        );
        let (message, _) = node.call("ADD", &sandbox).run().error(8);
        assert!(message.contains(sandbox.netns.to_str().unwrap()), "{message}");
        eventually("all objects are removed", PATIENCE, || node.host_state() == before);
        is_released(&daemon);
        no_tombstone(node);
    });
}

#[test]
fn an_address_that_another_pod_uses_is_refused_and_that_pod_is_untouched() {
    on_a_node(|node| {
        let daemon = Daemon::start_with(node, Book::on_table_2());
        node.add(&node.sandbox("other", "db-0"));
        let before = node.host_state();
        daemon.book(|book| book.next = vec!["10.0.0.100".parse().unwrap()]);
        let (message, _) = node.call("ADD", &node.sandbox("c1", "web-0")).run().error(11);
        assert!(
            message.contains("10.0.0.100") && message.contains("aws-cni/other/eth0"),
            "{message}"
        );
        assert_eq!(node.host_state(), before);
        is_released(&daemon);
    });
}

#[test]
fn a_route_of_no_pod_is_replaced() {
    on_a_node(|node| {
        let _daemon = Daemon::start(node);
        node.ip("link add enidead0 type veth peer name dead0");
        node.ip("link set enidead0 up");
        node.ip("route add 10.0.0.100 dev enidead0");
        node.add(&node.sandbox("c1", "web-0"));
        assert_eq!(node.pod_routes(), [format!("10.0.0.100 {}", crate::add::VETH)]);
    });
}

#[test]
fn an_add_is_rolled_back_if_its_reservation_lapsed() {
    on_a_node(|node| {
        let before = node.host_state();
        let daemon = Daemon::start_with(
            node,
            Book { behavior: DaemonBehavior::Forgetful, ..Book::on_table_2() },
        );
        let (message, _) = node.call("ADD", &node.sandbox("c1", "web-0")).run().error(11);
        assert!(message.contains("lapsed"), "{message}");
        assert_eq!(node.host_state(), before);
        is_released(&daemon);
    });
}

#[test]
fn a_host_link_that_is_not_a_veth_is_not_touched() {
    on_a_node(|node| {
        let daemon = Daemon::start(node);
        node.ip(&format!("link add {} type bridge", crate::add::VETH));
        let before = node.host_state();
        let (message, _) = node.call("ADD", &node.sandbox("c1", "web-0")).run().error(102);
        assert!(message.contains(crate::add::VETH), "{message}");
        assert_eq!(node.host_state(), before);
        is_released(&daemon);
    });
}

#[test]
fn an_add_without_an_answer_to_its_confirm_leaves_a_tombstone() {
    on_a_node(|node| {
        let before = node.host_state();
        let daemon = Daemon::start(node);
        daemon.book(|book| book.hangs_on_confirm = true);
        let mut conf = node.conf();
        conf["addWait"] = serde_json::json!(5);
        let sandbox = node.sandbox("c1", "web-0");
        node.call_with("ADD", &sandbox, &conf).run().error(11);
        assert_eq!(node.host_state(), before);
        let folder = node.path("state").join("tombstones");
        assert_eq!(std::fs::read_dir(folder).unwrap().count(), 1);
    });
}

#[test]
fn a_stopping_daemon_fails_no_add_before_its_deadline() {
    on_a_node(|node| {
        let behavior = DaemonBehavior::Empty(Reason::Stopping);
        let first = Daemon::start_with(node, Book { behavior, ..Book::on_table_2() });
        let add = node.call("ADD", &node.sandbox("c1", "web-0")).start();
        eventually("the plugin repeats its request", PATIENCE, || {
            first.book(|book| book.asked.len() > 1)
        });
        first.kill();
        let second = Daemon::start_with(node, Book::on_table_2());
        assert_eq!(Ended::of(add).result()["ips"][0]["address"], "10.0.0.100/32");
        second.kill();
        // The error names the reason if the daemon stays in this state.
        let _third = Daemon::start_with(node, Book { behavior, ..Book::on_table_2() });
        let mut conf = node.conf();
        conf["addWait"] = serde_json::json!(5);
        let late = node.call_with("ADD", &node.sandbox("c2", "web-1"), &conf).run();
        let (message, _) = late.error(11);
        assert!(message.contains("default/web-1") && message.contains("subnet-0"), "{message}");
    });
}

#[test]
fn the_last_answer_of_a_stopped_daemon_is_reported_if_none_starts() {
    on_a_node(|node| {
        let behavior = DaemonBehavior::Empty(Reason::Stopping);
        let daemon = Daemon::start_with(node, Book { behavior, ..Book::on_table_2() });
        let mut conf = node.conf();
        conf["addWait"] = serde_json::json!(5);
        let add = node.call_with("ADD", &node.sandbox("c1", "web-0"), &conf).start();
        eventually("the plugin repeats its request", PATIENCE, || {
            daemon.book(|book| book.asked.len() > 1)
        });
        daemon.kill();
        let (message, _) = Ended::of(add).error(11);
        assert!(message.contains("default/web-0") && message.contains("subnet-0"), "{message}");
    });
}

#[test]
fn the_answer_of_the_restarted_daemon_is_reported_instead_of_the_old_one() {
    on_a_node(|node| {
        let behavior = DaemonBehavior::Empty(Reason::Stopping);
        let daemon = Daemon::start_with(node, Book { behavior, ..Book::on_table_2() });
        let add = node.call("ADD", &node.sandbox("c1", "web-0")).start();
        eventually("the plugin repeats its request", PATIENCE, || {
            daemon.book(|book| book.asked.len() > 1)
        });
        daemon.kill();
        let _of_another_version = Daemon::start_of_another_version(node);
        let (message, _) = Ended::of(add).error(11);
        assert!(message.contains("version"), "{message}");
    });
}

#[test]
fn a_daemon_restart_during_a_confirm_fails_no_add() {
    on_a_node(|node| {
        let first = Daemon::start_with(node, Book { hangs_on_confirm: true, ..Book::on_table_2() });
        let add = node.call("ADD", &node.sandbox("c1", "web-0")).start();
        eventually("the plugin sends a confirm", PATIENCE, || {
            first.book(|book| book.asked.iter().any(|asked| asked == "confirm c1"))
        });
        // The assignments in a checkpoint.
        let held = first.book(|book| book.held.clone());
        first.kill();
        let second = Daemon::start_with(node, Book { held, ..Book::on_table_2() });
        assert_eq!(Ended::of(add).result()["ips"][0]["address"], "10.0.0.100/32");
        second.book(|book| {
            assert!(book.held.values().all(|(_, confirmed)| *confirmed));
            assert_eq!(book.asked, ["confirm c1"]);
        });
    });
}
