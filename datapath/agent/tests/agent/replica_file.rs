//! Replicas that are found through the file of the daemon.

use crate::{
    node::{Node, PATIENCE},
    replica::{Authority, Replica, hub},
};
use config_model::EnforcingMode;
use datapath_rpc::Admitted;
use std::fs;
use tests_eventually::eventually;

/// Replaces the file at once, as the daemon does.
fn list(node: &Node, replicas: &[&Replica]) {
    let text: String = replicas.iter().map(|replica| format!("{}\n", replica.at)).collect();
    write(node, &text);
}

fn write(node: &Node, text: &str) {
    fs::write(node.path("replicas.new"), text).unwrap();
    fs::rename(node.path("replicas.new"), node.path("replicas")).unwrap();
}

fn follows(node: &Node, replica: &Replica) {
    let at = replica.at.to_string();
    node.until(&format!("{at} is followed"), |status| status.replica == at && status.pods > 0);
}

/// Waits until the agent knows of the replica: it announces pods to all that it knows.
fn knows(node: &Node, replica: &Replica) {
    replica.calls.announced.lock().unwrap().clear();
    eventually(&format!("{} is known", replica.at), PATIENCE, || {
        assert_eq!(node.admit("web-0", "u-0", EnforcingMode::Strict).unwrap(), Admitted::Enforced);
        (!replica.calls.announced.lock().unwrap().is_empty()).then_some(())
    });
}

#[test]
fn replicas_are_found_left_and_kept_by_the_file_of_the_daemon() {
    let authority = Authority::new();
    let [first, second, third] = [1, 2, 3].map(|number| {
        let replica = Replica::start(&authority, hub(number, 100));
        replica.pod("n1", "web-0", "u-0");
        replica
    });
    let node = Node::new(&authority);
    let mut command = node.command(&[]);
    command.env("FERRULE_CONTROLLER_REPLICAS", node.path("replicas"));
    let _agent = node.spawn(command);
    node.until("it knows of none", |status| {
        status.disconnected.contains("check that ferrule-ipamd runs")
    });
    node.until_log("cannot find the controller's replicas");

    list(&node, &[&first]);
    follows(&node, &first);
    list(&node, &[&first, &second]);
    knows(&node, &second);
    // The replica may have lost the API server only; its stream continues.
    list(&node, &[&second]);
    follows(&node, &second);
    node.until_log("the replica is no longer ready, and others are");

    list(&node, &[&first, &second]);
    knows(&node, &first);
    // Without the file and with a damaged one, the known replicas stay.
    fs::remove_file(node.path("replicas")).unwrap();
    node.until_log("No such file");
    second.kill();
    follows(&node, &first);
    write(&node, "no address\n");
    node.until_log("is no address");
    knows(&node, &first);

    list(&node, &[&third]);
    follows(&node, &third);
}
