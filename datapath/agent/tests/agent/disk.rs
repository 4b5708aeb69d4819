//! The snapshot on the disk.

use crate::{
    node::{Agent, Node, PATIENCE},
    replica::{Authority, Replica, hub},
};
use config_model::EnforcingMode;
use datapath_rpc::Admitted;
use std::{fs, path::Path, process::Command};
use tests_eventually::eventually;

fn holds(node: &Node, file: &str, text: &str) -> bool {
    let found = fs::read(node.path("state").join(file)).unwrap_or_default();
    found.windows(text.len()).any(|part| part == text.as_bytes())
}

/// A node with a pod and a policy on its disk, and without a controller.
fn node_without_controller(authority: &Authority) -> (Node, Vec<std::net::SocketAddr>) {
    let replica = Replica::start(authority, hub(1, 100));
    replica.pod("n1", "web-0", "u-0");
    replica.policy("p");
    let node = Node::new(authority);
    let agent = node.start(&[&replica]);
    node.until("the node has the snapshot", |status| status.pods == 1 && status.policies == 1);
    eventually("it is on the disk", PATIENCE, || {
        holds(&node, "policy.log", "uid-of-p").then_some(())
    });
    agent.kill();
    let at = vec![replica.at];
    replica.kill();
    (node, at)
}

#[test]
fn a_killed_agent_restores_its_snapshot_without_a_controller() {
    let authority = Authority::new();
    let (node, at) = node_without_controller(&authority);
    let _agent = node.start_at(&at);
    let status = node.until("it is in force", |status| status.revision == status.applied);
    assert_eq!((status.pods, status.policies), (1, 1));
    assert_eq!(node.admit("web-0", "u-0", EnforcingMode::Strict).unwrap(), Admitted::Enforced);
    let Admitted::Refused(why) = node.admit("web-1", "u-1", EnforcingMode::Strict).unwrap() else {
        panic!("an unknown pod was admitted")
    };
    assert!(why.contains("no replica of the controller is followed"), "{why}");
}

#[test]
fn a_damaged_file_is_kept_aside_and_the_controller_sends_the_missing_objects() {
    let authority = Authority::new();
    let (node, at) = node_without_controller(&authority);
    let file = node.path("state").join("policy.log");
    let mut bytes = fs::read(&file).unwrap();
    bytes[20] ^= 0xff;
    fs::write(&file, bytes).unwrap();
    let agent = node.start_at(&at);
    node.until_log("the policy journal is damaged");
    node.until_log("kept the damaged policy journal aside");
    assert!(holds(&node, "policy.log.damaged-1", "uid-of-p"));
    let refused = node.admit("web-0", "u-0", EnforcingMode::Strict).unwrap();
    assert!(matches!(refused, Admitted::Refused(_)), "{refused:?}");
    drop(agent);
    let replica = Replica::start(&authority, hub(1, 100));
    replica.pod("n1", "web-0", "u-0");
    let _agent = node.start(&[&replica]);
    node.until("the node has the snapshot", |status| status.pods == 1);
    assert_eq!(node.admit("web-0", "u-0", EnforcingMode::Strict).unwrap(), Admitted::Enforced);
}

/// An agent that may write files of 12 KiB (some shells: 24) and no longer ones, until that is lifted.
fn confined(node: &Node, replica: &Replica) -> Agent {
    let command = node.command(&[replica.at]);
    let mut shell = Command::new("sh");
    // Without the trap the kernel would end it instead of refusing.
    shell.args(["-c", "trap '' XFSZ; ulimit -S -f 24; exec \"$@\"", "sh"]);
    shell.arg(command.get_program()).args(command.get_args()).env_clear();
    shell.env("PATH", "/usr/bin:/bin");
    shell.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.env("FERRULE_AGENT_LOGLEVEL", "info");
    node.spawn(shell)
}

#[test]
fn a_full_disk_is_reported_and_stops_no_other_work() {
    const PODS: u64 = 1000;
    let authority = Authority::new();
    let replica = Replica::start(&authority, hub(1, 100));
    for pod in 0..PODS {
        replica.pod("n1", &format!("web-{pod}"), &format!("u-{pod}"));
    }
    let node = Node::new(&authority);
    let agent = confined(&node, &replica);
    let status = node.until("the disk refuses", |s| s.pods == PODS && !s.disk.is_empty());
    assert!(status.disk.contains("policy.log"), "{}", status.disk);
    assert_eq!(node.admit("web-0", "u-0", EnforcingMode::Strict).unwrap(), Admitted::Enforced);
    node.until_log("the agent continues from memory");
    let lifted = Command::new("prlimit")
        .args(["--pid", &agent.pid().to_string(), "--fsize=unlimited"])
        .status();
    assert!(lifted.unwrap().success());
    // Continuous changes do not delay the next attempt.
    let mut pods = PODS;
    node.until("the disk has it", |status| {
        replica.pod("n1", &format!("web-{pods}"), &format!("u-{pods}"));
        pods += 1;
        status.disk.is_empty()
    });
    let last = format!("u-{}", pods - 1);
    eventually("the disk has all pods", PATIENCE, || {
        holds(&node, "policy.log", &last).then_some(())
    });
    agent.kill();
    let at = [replica.at];
    replica.kill();
    let _agent = node.start_at(&at);
    node.until("the agent has restored all pods", |status| status.pods == pods);
}

/// An agent whose log is on a full disk of one page. Its standard error goes to a file.
fn with_a_full_disk_for_the_log(node: &Node, replica: &Replica) -> Agent {
    const SCRIPT: &str = "mount -t tmpfs -o size=4k none \"$0\" && \
                          head -c 4096 /dev/zero >\"$0/ballast\" && exec \"$@\"";
    let command = node.command(&[replica.at]);
    let folder = node.path("log");
    fs::create_dir(&folder).unwrap();
    let mut unshared = Command::new("unshare");
    unshared.args(["--map-root-user", "--mount", "sh", "-c", SCRIPT]).arg(&folder);
    unshared.arg(command.get_program()).args(command.get_args()).env_clear();
    unshared.env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    unshared.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    unshared.env("FERRULE_AGENT_LOG_FILE", folder.join("agent.log"));
    unshared.stderr(fs::File::create(node.path("stderr")).unwrap());
    node.spawn(unshared)
}

#[test]
fn a_full_disk_under_the_log_is_reported_once_and_stops_no_work() {
    let authority = Authority::new();
    let replica = Replica::start(&authority, hub(1, 100));
    replica.pod("n1", "web-0", "u-0");
    let node = Node::new(&authority);
    let agent = with_a_full_disk_for_the_log(&node, &replica);
    node.until("the agent has the pod", |status| status.pods == 1);
    assert_eq!(node.admit("web-0", "u-0", EnforcingMode::Strict).unwrap(), Admitted::Enforced);
    // Its first lines are about its start and the replica.
    let reported = fs::read_to_string(node.path("stderr")).unwrap();
    assert_eq!(reported.lines().count(), 1, "{reported}");
    assert!(
        reported.contains("cannot write the log") && reported.contains("agent.log: No space left"),
        "{reported}"
    );
    // The log continues after the disk has room again.
    let folder = format!("/proc/{}/root{}", agent.pid(), node.path("log").display());
    let log = Path::new(&folder).join("agent.log");
    assert_eq!(fs::metadata(&log).unwrap().len(), 0);
    fs::remove_file(Path::new(&folder).join("ballast")).unwrap();
    replica.kill();
    eventually("the log has lines", PATIENCE, || {
        let text = fs::read_to_string(&log).unwrap();
        text.lines().next().is_some_and(|line| line.starts_with('{')).then_some(())
    });
    let reported = fs::read_to_string(node.path("stderr")).unwrap();
    assert!(reported.lines().nth(1).unwrap().contains("lines are lost"), "{reported}");
}
