//! Replicas that start, die, and lag behind.

use crate::{
    node::{Node, PATIENCE},
    replica::{Authority, Replica, hub},
};
use config_model::EnforcingMode;
use control_wire::proto::ReportRequest;
use datapath_rpc::Admitted;
use std::fs;
use tests_eventually::eventually;

#[test]
fn an_agent_continues_with_another_replica_and_loses_nothing() {
    let authority = Authority::new();
    let mut replicas: Vec<Replica> =
        [1, 2].map(|epoch| Replica::start(&authority, hub(epoch, 100))).into();
    for replica in &replicas {
        replica.pod("n1", "web-0", "u-0");
        replica.policy("p");
    }
    let node = Node::new(&authority);
    let _agent = node.start(&[&replicas[0], &replicas[1]]);
    let status = node.until("the node was told", |s| s.pods == 1 && s.policies == 1);
    let followed = replicas.iter().position(|r| r.at.to_string() == status.replica).unwrap();
    replicas.remove(followed).kill();
    let other = &replicas[0];
    other.pod("n1", "web-1", "u-1");
    node.until("the other tells it", |s| s.pods == 2 && s.replica == other.at.to_string());
    for (name, uid) in [("web-0", "u-0"), ("web-1", "u-1")] {
        assert_eq!(node.admit(name, uid, EnforcingMode::Strict).unwrap(), Admitted::Enforced);
    }
}

/// A replica ends a stream whose node does not acknowledge its generation, also without changes.
#[test]
fn the_generation_is_acknowledged_on_each_stream_also_without_changes() {
    let authority = Authority::new();
    let replica = Replica::start(&authority, hub(1, 100));
    replica.pod("n1", "web-0", "u-0");
    let node = Node::new(&authority);
    let _agent = node.start(&[&replica]);
    let generation = replica.hub.with(|hub| hub.generation());
    let said = || {
        let held = replica.calls.held.lock().unwrap();
        held.iter().filter(|held| **held == generation).count()
    };
    for times in 1..=3 {
        eventually("the replica hears what the node holds", PATIENCE, || {
            (said() >= times).then_some(())
        });
        replica.hub.dismiss("n1");
    }
}

#[test]
fn a_replica_that_has_read_less_is_not_followed() {
    let authority = Authority::new();
    let ahead = Replica::start(&authority, hub(1, 100));
    ahead.pod("n1", "web-0", "u-0");
    let node = Node::new(&authority);
    let agent = node.start(&[&ahead]);
    node.until("the node was told", |status| status.pods == 1);
    assert!(agent.terminate());
    assert!(!node.path("agent.sock").exists(), "the socket stays behind");
    let lagging = Replica::start(&authority, hub(2, 99));
    let _agent = node.start(&[&lagging]);
    let status =
        node.until("it says so", |s| s.disconnected.contains("has read less than this node"));
    assert_eq!((status.pods, status.replica.as_str()), (1, ""));
    lagging.hub.with(|hub| hub.reach("Pod", 100));
    lagging.pod("n1", "web-0", "u-0");
    node.until("it has caught up", |s| s.replica == lagging.at.to_string() && !s.behind);
}

#[test]
fn if_all_replicas_have_read_less_the_newest_is_followed_and_reported_as_behind() {
    let authority = Authority::new();
    let ahead = Replica::start(&authority, hub(1, 100));
    ahead.pod("n1", "web-0", "u-0");
    let node = Node::new(&authority);
    let agent = node.start(&[&ahead]);
    node.until("the node was told", |status| status.pods == 1);
    assert!(agent.terminate());
    ahead.kill();
    let [older, newer] =
        [(2, 97), (3, 99)].map(|(epoch, reached)| Replica::start(&authority, hub(epoch, reached)));
    newer.pod("n1", "web-1", "u-1");
    newer.pod("n1", "web-2", "u-2");
    let _agent = node.start(&[&older, &newer]);
    let status = node.until("both are refused", |s| s.disconnected.contains("has read less than"));
    assert_eq!((status.pods, status.behind), (1, false), "what is held stays");
    let status = node.until("one is taken all the same", |s| !s.replica.is_empty());
    assert_eq!((status.replica, status.behind), (newer.at.to_string(), true));
    node.until_log("every replica is behind this node; following the newest one");
    let page = node.page("/metrics");
    for line in ["ferrule_agent_behind 1", "ferrule_agent_streams_total{behind=\"true\"} 1"] {
        assert!(page.contains(line), "{line}: {page}");
    }
    // Its snapshot counts as far as it has read, and is in force.
    node.until("its word counts", |s| s.pods == 2 && s.behind);
    assert_eq!(node.admit("web-1", "u-1", EnforcingMode::Strict).unwrap(), Admitted::Enforced);
    // It has read as much as the node held before.
    newer.hub.with(|hub| hub.reach("Pod", 100));
    newer.pod("n1", "web-3", "u-3");
    node.until("it has caught up", |s| s.pods == 3 && !s.behind);
    assert!(node.page("/metrics").contains("ferrule_agent_behind 0"));
}

#[test]
fn credentials_that_are_missing_or_wrong_are_named_and_read_again() {
    let authority = Authority::new();
    let replica = Replica::start(&authority, hub(1, 100));
    replica.pod("n1", "web-0", "u-0");
    let node = Node::new(&authority);
    fs::remove_file(node.path("ca.crt")).unwrap();
    fs::write(node.path("token"), "stranger").unwrap();
    let _agent = node.start(&[&replica]);
    node.until("the authority is named", |s| s.disconnected.contains("FERRULE_CONTROLLER_CA"));
    fs::write(node.path("ca.crt"), Authority::new().pem).unwrap();
    node.until("it is the wrong one", |s| s.disconnected.to_lowercase().contains("certificate"));
    fs::write(node.path("ca.crt"), &authority.pem).unwrap();
    node.until("the token is refused", |s| s.disconnected.contains("no such token"));
    fs::write(node.path("token"), "node:n1").unwrap();
    node.until("the node was told", |status| status.pods == 1);
}

#[test]
fn a_second_agent_does_not_disturb_the_first() {
    let authority = Authority::new();
    let replica = Replica::start(&authority, hub(1, 100));
    replica.pod("n1", "web-0", "u-0");
    let node = Node::new(&authority);
    let _agent = node.start(&[&replica]);
    let second = node.command(&[replica.at]).status().unwrap();
    assert!(!second.success());
    node.until_log("another process serves it");
    let health = |what: &str| {
        let mut command = node.command(&[]);
        let program = command.get_program().to_owned();
        command = std::process::Command::new(program);
        let command = command.args(["health", what]).env_clear();
        command.env("FERRULE_AGENT_SOCKET", node.path("agent.sock")).status().unwrap().success()
    };
    eventually("the first is ready", PATIENCE, || health("ready").then_some(()));
    assert!(health("live"));
}

#[test]
fn reports_go_to_the_recipient_also_from_nodes_that_follow_another_replica() {
    let authority = Authority::new();
    let [followed, other] = [1, 2].map(|epoch| Replica::start(&authority, hub(epoch, 100)));
    followed.pod("n1", "web-0", "u-0");
    followed.policy("p");
    followed.hub.with(|hub| hub.set_reports_to(&other.at.to_string()));
    let node = Node::new(&authority);
    let _agent = node.start(&[&followed]);
    let report_of = |replica: &Replica, uid: &str| {
        let reports = replica.calls.reports.lock().unwrap();
        let of = |report: &ReportRequest| report.realized.iter().any(|of| of.uid == uid);
        reports.iter().find(|report| of(report)).cloned()
    };
    let first = eventually("all was reported", PATIENCE, || report_of(&other, "uid-of-p"));
    assert!(first.unenforced, "the program has no backend");
    let [policy] = first.realized.as_slice() else { panic!("{first:?}") };
    assert_eq!((policy.generation, policy.error.as_str()), (3, ""));
    assert!(other.calls.reports.lock().unwrap()[0].full, "the first report is full");
    followed.policy("q");
    let second =
        eventually("what changed was reported", PATIENCE, || report_of(&other, "uid-of-q"));
    assert!(!second.full && second.realized.len() == 1, "{second:?}");
    assert!(report_of(&followed, "uid-of-p").is_none(), "it takes no reports");
    // A new recipient receives a full report.
    followed.hub.with(|hub| hub.set_reports_to(&followed.at.to_string()));
    let third = eventually("all was reported again", PATIENCE, || report_of(&followed, "uid-of-q"));
    assert!(third.full && third.realized.len() == 2, "{third:?}");
}
