//! Labs side by side, labs that were killed, and what is left of them: nothing.

use crate::{
    Test,
    lab::{TestLab, fresh_dir, vpc},
};
use lab_fabric::{
    Fabric, NicProfile,
    process::{self, Recorded},
};
use std::{
    collections::BTreeSet,
    env, fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Command, ExitCode, Stdio},
};
use tests_eventually::eventually;

pub(crate) const TESTS: &[Test] = &[
    ("two_labs_with_the_same_addresses_do_not_meet", two_labs_side_by_side),
    ("a_directory_in_use_is_refused", a_directory_in_use_is_refused),
    ("a_wish_that_contradicts_itself_is_refused_whole", a_contradiction_is_refused),
    ("a_killed_lab_is_cleaned_by_its_directory_alone", a_killed_lab_is_cleaned),
    ("a_lab_leaves_nothing", a_lab_leaves_nothing),
];

/// The first argument with which this binary is a lab that waits to be killed.
pub(crate) const HOLD: &str = "--hold";

/// A lab in the given directory, with a program in a node and one in a pod.
#[expect(clippy::zombie_processes, reason = "this process is killed; its children are found")]
pub(crate) fn hold(dir: &str) -> ExitCode {
    let mut fabric = Fabric::create(Path::new(dir), &vpc()).unwrap();
    let mut lab = std::mem::ManuallyDrop::new(TestLab::empty());
    Fabric::remove(&lab.dir).unwrap();
    lab.want_node("a", NicProfile::EthN, "10.0.1.10");
    fabric.apply(&lab.wanted).unwrap();
    let node = fabric.node("a").unwrap();
    node.add_pod("web").unwrap();
    let children = [
        node.contained_command("sleep", [("A", "B")]).arg("1000").spawn().unwrap(),
        node.pod_command("web", "sleep").arg("1000").spawn().unwrap(),
    ];
    for (child, what) in children.iter().zip(["daemon", "pod"]) {
        let pid = i32::try_from(child.id()).unwrap();
        process::record(Path::new(dir), &Recorded::of(pid, what).unwrap()).unwrap();
        println!("{pid}");
    }
    // Not recorded: found by its namespace.
    let stray = node.command("sleep").arg("1000").spawn().unwrap();
    println!("{}", stray.id());
    println!("ready");
    loop {
        std::thread::park();
    }
}

fn two_labs_side_by_side() {
    let (one, other) = (TestLab::two_nodes(), TestLab::two_nodes());
    for lab in [&one, &other] {
        assert_eq!(lab.echo("a", "10.0.1.10", "10.0.2.10"), Ok(()));
    }
    let before = other.fabric.counters().unwrap();
    assert_eq!(one.echo("b", "10.0.2.10", "10.0.1.10"), Ok(()));
    drop(one);
    assert_eq!(other.fabric.counters().unwrap(), before);
    assert_eq!(other.echo("a", "10.0.1.10", "10.0.2.10"), Ok(()));
}

fn a_directory_in_use_is_refused() {
    let lab = TestLab::two_nodes();
    assert!(Fabric::create(&lab.dir, &vpc()).is_err());
    assert!(Fabric::create(Path::new("relative"), &vpc()).is_err());
    assert!(Fabric::open(&fresh_dir()).is_err());
    // A second process opens it and sees the same.
    let second = Fabric::open(&lab.dir).unwrap();
    assert_eq!(second.counters().unwrap(), lab.fabric.counters().unwrap());
    assert!(second.node("a").unwrap().is_up());
}

fn a_contradiction_is_refused() {
    let mut lab = TestLab::two_nodes();
    lab.want_eni("a", 1, "10.0.1.20", &["10.0.2.10"]);
    let refused = lab.fabric.apply(&lab.wanted).unwrap_err().to_string();
    assert!(refused.contains("hold 10.0.2.10"), "{refused}");
    assert!(!crate::lab::links(&lab.node("a")).contains("eth1"));
}

fn a_killed_lab_is_cleaned() {
    let dir = fresh_dir();
    let mut child = Command::new(env::current_exe().unwrap())
        .args([HOLD, dir.to_str().unwrap()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let said: Vec<String> = lines.take_while(|line| line != "ready").collect();
    let pids: Vec<i32> = said.iter().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(pids.len(), 3);
    child.kill().unwrap();
    child.wait().unwrap();
    let alive = |pid: &i32| Recorded::of(*pid, "").is_some_and(|process| process.is_alive());
    assert!(pids.iter().all(alive), "what it started outlives it");
    let cgroup = Fabric::open(&dir).unwrap().node("a").unwrap().cgroup();
    assert!(cgroup.iter().all(|cgroup| cgroup.is_dir()));
    let removed = Fabric::remove(&dir).unwrap();
    assert!(!cgroup.iter().any(|cgroup| cgroup.exists()));
    assert_eq!(removed.processes, 3);
    assert!(!pids.iter().any(alive) && !dir.exists());
    assert_eq!(Fabric::remove(&dir).unwrap(), lab_fabric::Removed::default());
}

fn a_lab_leaves_nothing() {
    let machine = || (listed(&["-o", "link"]), listed(&["netns", "list"]), own_mounts());
    let before = machine();
    let namespaces = network_namespaces();
    let mut lab = TestLab::two_nodes();
    lab.want_eni("a", 1, "10.0.1.20", &["10.0.1.21"]);
    lab.apply();
    lab.node("a").add_pod("web").unwrap();
    lab.wanted.nodes.get_mut("a").unwrap().boot = 2;
    lab.apply();
    let (links, named, _) = machine();
    assert_eq!((&links, &named), (&before.0, &before.1), "a lab adds nothing to the machine's own");
    let dir = lab.dir.clone();
    drop(lab);
    assert_eq!(machine(), before);
    assert!(!dir.exists());
    eventually("no namespace of the lab is held", tests_eventually::PATIENCE, || {
        network_namespaces() <= namespaces
    });
}

/// The lines that could be a lab's: others may use the machine meanwhile.
fn listed(args: &[&str]) -> BTreeSet<String> {
    let output = Command::new("ip").args(args).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let marks = ["p02000000", "igw", "wire", "02:00:00:00:0", "vpc", "inet", "node-", "web"];
    let is_ours = |line: &&str| marks.iter().any(|mark| line.contains(mark));
    text.lines().filter(is_ours).map(str::to_owned).collect()
}

fn own_mounts() -> Vec<String> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let own = format!("/run/ferrule-lab-test/{}-", std::process::id());
    text.lines().filter(|line| line.contains(&own)).map(str::to_owned).collect()
}

/// Namespaces that this process could still see: by its threads and its mounts.
fn network_namespaces() -> usize {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap();
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let nets = tasks.filter_map(|task| fs::read_link(task.path().join("ns/net")).ok());
    text.lines().filter(|line| line.contains(" - nsfs ")).count()
        + nets.collect::<BTreeSet<_>>().len()
}
