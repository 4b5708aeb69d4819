//! `ferrule migrate rollback` on a node of amazon-vpc-cni on which programs of ferrule-agent are left. Pins are folders here, and
//! the network namespace has no filters; tests of the backend attach programs.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics, and prints its skip")]

use nix::fcntl::{Flock, FlockArg};
use std::{
    fs::{self, File},
    os::unix::net::UnixListener,
    path::Path,
    process::Command,
    thread,
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

/// True if this process may create network namespaces; otherwise prints the skip of the test.
fn has_namespaces(test: &str) -> bool {
    let probe = Command::new("unshare").args(["--map-root-user", "--net", "true"]).status();
    let has = probe.is_ok_and(|status| status.success());
    if !has {
        println!("SKIP {test}: needs the right to make a network namespace");
    }
    has
}

#[test]
fn ferrules_programs_are_removed_on_request_while_no_agent_runs() {
    let name = "ferrules_programs_are_removed_on_request_while_no_agent_runs";
    if !has_namespaces(name) {
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

/// A daemon that exits accepts connections at amazon-vpc-cni's socket, closes them, and then closes the socket.
#[test]
fn a_daemon_that_exits_is_not_the_agent_of_amazon_vpc_cni() {
    if !has_namespaces("a_daemon_that_exits_is_not_the_agent_of_amazon_vpc_cni") {
        return;
    }
    let node = tempfile::tempdir().unwrap();
    let socket = node.path().join("aws-node/ipamd.sock");
    fs::create_dir_all(node.path().join("aws-node")).unwrap();
    let listener = UnixListener::bind(&socket).unwrap();
    let daemon = thread::spawn(move || {
        for _ in 0..3 {
            drop(listener.accept().unwrap());
        }
    });
    let (_, printed) = migrate(node.path(), &["status"]);
    daemon.join().unwrap();
    assert!(printed.contains("amazon-vpc-cni's agent serves: no"), "{printed}");
}
