//! Each node's programs are in a cgroup of the node's own, which goes with it.

use crate::{Test, lab::TestLab};
use lab_fabric::{Fabric, Node, cgroup_prefix};
use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

pub(crate) const TESTS: &[Test] = &[
    ("each_program_of_a_node_is_in_the_cgroup_of_the_node", each_program_is_in_its_nodes),
    ("a_node_has_its_cgroup_as_the_root_of_version_2", a_node_has_its_cgroup_as_the_root),
    ("the_cgroup_of_a_node_goes_with_it", the_cgroup_of_a_node_goes_with_it),
    ("without_version_1_the_cgroup_of_a_node_is_its_root", without_version_1),
];

/// The node's cgroup. On a machine without cgroup v2 there is none, and the test is skipped.
fn cgroup_of(node: &Node) -> Option<PathBuf> {
    let cgroup = node.cgroup();
    if cgroup.is_none() {
        println!("SKIP cgroups: the machine has no cgroup v2 that can be written");
    }
    cgroup
}

/// True for the cgroup of the node's programs, as they read it. Without version 1 a namespace hides those above.
fn is_of_programs(node: &Node, cgroup: &str) -> bool {
    match node.cgroup_root().as_str() {
        "/" => cgroup == "/system",
        root => cgroup.ends_with(&format!("{root}/system")),
    }
}

/// The cgroup of version 2 that a command of a node is in.
fn read(command: &mut Command) -> String {
    let output = command.arg("/proc/self/cgroup").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("0::"));
    line.unwrap_or_else(|| panic!("{text}{}", String::from_utf8_lossy(&output.stderr))).to_owned()
}

fn each_program_is_in_its_nodes() {
    let lab = TestLab::two_nodes();
    if cgroup_of(&lab.node("a")).is_none() {
        return;
    }
    lab.node("a").add_pod("web").unwrap();
    for name in ["a", "b"] {
        let node = lab.node(name);
        assert!(is_of_programs(&node, &read(&mut node.command("cat"))));
        let mut contained = node.contained_command("cat", [("A", "B")]);
        assert!(is_of_programs(&node, &read(&mut contained)));
        // A child stays.
        let mut child = node.command("sh");
        assert!(is_of_programs(&node, &read(child.args(["-c", "(cat \"$0\"; true)"]))));
    }
    let node = lab.node("a");
    assert!(is_of_programs(&node, &read(&mut node.pod_command("web", "cat"))));
    // A client outside the VPC is in none.
    let outside = read(&mut lab.fabric.client_command("cat"));
    assert!(!outside.contains("ferrule-lab."), "{outside}");
}

fn a_node_has_its_cgroup_as_the_root() {
    let lab = TestLab::two_nodes();
    let Some(own) = cgroup_of(&lab.node("a")) else { return };
    let root = own.parent().unwrap();
    let inode = || fs::metadata(root).unwrap().ino();
    let of_node = lab.node("a").inside(inode).unwrap();
    assert_eq!(of_node, fs::metadata(&own).unwrap().ino());
    assert_ne!(of_node, lab.node("b").inside(inode).unwrap());
    assert_ne!(of_node, inode());
}

/// Runs the tests of this file where the tree of version 2 hides those of version 1, as if the machine had no others.
fn without_version_1() {
    if !Path::new(UNIFIED).is_dir() {
        println!("SKIP without_version_1: the machine has no trees of version 1 beside version 2");
        return;
    }
    let script = format!("mount --bind {UNIFIED} /sys/fs/cgroup && exec \"$@\"");
    // Some kernels number namespaces on each processor apart, and refuse to pin a mount namespace below a later one.
    let mut command = Command::new("taskset");
    command.args([
        "--cpu-list",
        "0",
        "unshare",
        "--mount",
        "--propagation",
        "private",
        "sh",
        "-c",
        &script,
        "sh",
    ]);
    command.arg(std::env::current_exe().unwrap());
    for (name, _) in &TESTS[..3] {
        command.arg(name);
    }
    let output = command.output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{printed}{}", String::from_utf8_lossy(&output.stderr));
    assert!(printed.contains("3 passed; 0 failed") && !printed.contains("SKIP"), "{printed}");
}

const UNIFIED: &str = "/sys/fs/cgroup/unified";

fn the_cgroup_of_a_node_goes_with_it() {
    let mut lab = TestLab::two_nodes();
    let (Some(a), Some(b)) = (cgroup_of(&lab.node("a")), lab.node("b").cgroup()) else { return };
    assert!(a.is_dir() && b.is_dir());
    // As a kubelet makes them.
    let pods = a.join("kubepods/pod1");
    fs::create_dir_all(&pods).unwrap();
    let mut sleeper = lab.node("a").command("sleep").arg("1000").spawn().unwrap();
    lab.wanted.nodes.get_mut("a").unwrap().boot = 2;
    lab.apply();
    assert!(!sleeper.wait().unwrap().success());
    assert!(a.is_dir() && !pods.exists(), "a reboot leaves an empty one");
    lab.wanted.nodes.remove("b");
    lab.wanted.enis.retain(|_, eni| eni.node != "b");
    lab.apply();
    assert!(a.is_dir() && !b.exists());
    let (dir, prefix) = (lab.dir.clone(), cgroup_prefix(&lab.dir));
    // As of a node that the state does not name.
    let lost = a.with_file_name(format!("{prefix}lost"));
    fs::create_dir_all(lost.join("system")).unwrap();
    drop(lab);
    assert!(!a.exists() && !lost.exists());
    assert_eq!(Fabric::remove(&dir).unwrap(), lab_fabric::Removed::default());
}
