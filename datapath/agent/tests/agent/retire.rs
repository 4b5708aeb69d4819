//! The end of enforcement: `ferrule-agent retire`.

use crate::{node::Node, replica::Authority};
use std::{
    fs,
    process::{Command, Output},
};

/// Runs the command in a network namespace of its own, so that it finds no filters.
fn retire(node: &Node) -> Output {
    let agent = env!("CARGO_BIN_EXE_ferrule-agent");
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--net", agent, "retire"])
        .env("FERRULE_AGENT_SOCKET", node.path("agent.sock"))
        .env("FERRULE_AGENT_STATE_DIR", node.path("state"))
        .env("FERRULE_AGENT_BPF_PINS", node.path("pins"))
        .output()
        .unwrap()
}

/// The exit code, the output and the errors.
fn result(of: &Output) -> (Option<i32>, String, String) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (of.status.code(), text(&of.stdout), text(&of.stderr))
}

#[test]
fn enforcement_is_removed_only_while_no_agent_runs() {
    let name = "enforcement_is_removed_only_while_no_agent_runs";
    let node = Node::new(&Authority::new());
    let probe = Command::new("unshare").args(["--map-root-user", "--net", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("SKIP {name}: needs the right to make a network namespace");
        return;
    }
    let pins = node.path("pins/maps-0");
    fs::create_dir_all(&pins).unwrap();
    let agent = node.start_at(&[]);
    let (code, _, why) = result(&retire(&node));
    assert!(code == Some(1) && why.contains("a ferrule-agent serves"), "{why}");
    // An agent whose socket was removed has locked its state.
    fs::remove_file(node.path("agent.sock")).unwrap();
    let (code, _, why) = result(&retire(&node));
    assert!(code == Some(1) && why.contains("stop ferrule-agent and run this again"), "{why}");
    assert!(pins.exists(), "nothing was removed");

    agent.kill();
    let (code, said, log) = result(&retire(&node));
    assert_eq!((code, said.contains("folders of pins: 1")), (Some(0), true), "{said} {log}");
    assert!(log.contains("the pods of this node are open") && log.contains("WARN"), "{log}");
    assert!(!pins.exists());
    let (code, said, log) = result(&retire(&node));
    assert_eq!(code, Some(0), "{log}");
    assert!(said.contains("no programs of ferrule-agent are on this node"), "{said}");
    assert!(!log.contains("enforcement is removed"), "{log}");
}
