//! `ferrule migrate rollback` on a node of amazon-vpc-cni on which programs of ferrule-agent are left. Pins are folders here, and
//! the network namespace has no filters; tests of the backend attach programs.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics, and prints its skip")]

use nix::fcntl::{Flock, FlockArg};
use std::{
    fs::{self, File},
    path::Path,
    process::Command,
};

/// Runs the command in a network namespace of its own. Returns the exit code and the output.
fn migrate(node: &Path, words: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new("unshare");
    command
        .args(["--map-root-user", "--net", env!("CARGO_BIN_EXE_ferrule"), "migrate"])
        .args(words);
    for (flag, at) in [
        ("--net-d", "net.d"),
        ("--bin", "bin"),
        ("--results", "results"),
        ("--aws-node", "aws-node"),
        ("--pins", "aws-pins"),
        ("--state-dir", "state"),
        ("--socket", "ipamd.sock"),
        ("--agent", "agent.sock"),
        ("--agent-pins", "pins"),
    ] {
        command.arg(flag).arg(node.join(at));
    }
    let output = command.args(["--imds", "http://127.0.0.1:9"]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

#[test]
fn ferrules_programs_are_removed_on_request_while_no_agent_runs() {
    let name = "ferrules_programs_are_removed_on_request_while_no_agent_runs";
    let probe = Command::new("unshare").args(["--map-root-user", "--net", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("SKIP {name}: needs the right to make a network namespace");
        return;
    }
    let node = tempfile::tempdir().unwrap();
    let pins = node.path().join("pins");
    fs::create_dir_all(pins.join("maps-0")).unwrap();
    fs::create_dir_all(pins.join("begun")).unwrap();
    fs::create_dir_all(node.path().join("state/agent")).unwrap();

    let (code, printed) = migrate(node.path(), &["rollback"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(
        printed.contains("2 filters, TCX links and folders of pins of Ferrule stay"),
        "{printed}"
    );
    assert!(printed.contains("no steps remain") && pins.join("maps-0").exists());

    // An agent that has no socket yet has locked its state.
    let lock = File::create(node.path().join("state/agent/lock")).unwrap();
    let lock = Flock::lock(lock, FlockArg::LockExclusive).unwrap();
    let (code, printed) = migrate(node.path(), &["rollback", "--policy", "drop", "--wait", "0"]);
    assert_eq!(code, Some(2), "{printed}");
    assert!(printed.contains("ferrule-agent has stopped"), "{printed}");
    assert!(pins.join("maps-0").exists(), "nothing was removed");

    drop(lock);
    let (code, printed) = migrate(node.path(), &["rollback", "--policy", "drop"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(printed.contains("remove Ferrule's eBPF programs"), "{printed}");
    assert!(!pins.exists());
    let (code, printed) = migrate(node.path(), &["rollback", "--policy", "drop"]);
    assert_eq!(code, Some(0), "{printed}");
    assert!(!printed.contains("remove") && printed.contains("no steps remain"), "{printed}");
}
