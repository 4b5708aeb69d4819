//! The daemon's container: what it may and what it may not.

use crate::{Test, lab::TestLab};
use std::process::Command;

pub(crate) const TESTS: &[Test] = &[
    ("a_contained_process_has_exactly_two_capabilities", exactly_two_capabilities),
    ("a_contained_process_writes_sysctls_at_the_named_path_alone", sysctls),
    ("a_contained_process_keeps_no_pods_namespace_alive", keeps_no_namespace),
    ("a_program_that_does_not_exist_is_named", a_program_that_does_not_exist),
];

fn contained(lab: &TestLab, script: &str) -> (bool, String) {
    let mut command = lab.node("a").contained_command("sh", [("CANARY", "yes")]);
    output_of(command.args(["-c", script]))
}

fn output_of(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap().trim().to_owned())
}

fn exactly_two_capabilities() {
    let lab = TestLab::two_nodes();
    let (ok, status) = contained(&lab, "grep ^Cap /proc/self/status");
    assert!(ok);
    // CAP_NET_ADMIN is bit 12, CAP_NET_RAW is bit 13.
    let two = "0000000000003000";
    let none = "0000000000000000";
    for (set, wanted) in
        [("CapEff", two), ("CapPrm", two), ("CapBnd", two), ("CapInh", none), ("CapAmb", none)]
    {
        let line = status.lines().find(|line| line.starts_with(set)).unwrap();
        assert_eq!(line.split_whitespace().nth(1), Some(wanted), "{status}");
    }
    assert_eq!(contained(&lab, "id -u"), (true, "0".to_owned()));
    assert_eq!(contained(&lab, "echo $CANARY$CARGO_MANIFEST_DIR$HOME"), (true, "yes".to_owned()));
    assert!(contained(&lab, "ip link set eth0 mtu 9000 && ip link set eth0 mtu 9001").0);
    assert!(!contained(&lab, "hostname other").0);
    assert!(!contained(&lab, "mount -t tmpfs none /tmp").0);
}

fn sysctls() {
    let lab = TestLab::two_nodes();
    let (ok, text) = contained(&lab, "echo 2 > /proc/sys/net/ipv4/conf/eth0/rp_filter");
    assert!(!ok && text.contains("Read-only"), "{text}");
    let (ok, text) = contained(&lab, "echo 2 > /host/proc/sys/net/ipv4/conf/eth0/rp_filter");
    assert!(ok, "{text}");
    let read = "cat /proc/sys/net/ipv4/conf/eth0/rp_filter";
    assert_eq!(contained(&lab, read), (true, "2".to_owned()));
    let node_sees = output_of(lab.node("a").command("sh").args(["-c", read]));
    assert_eq!(node_sees, (true, "2".to_owned()));
    let boot_id = contained(&lab, "cat /proc/sys/kernel/random/boot_id").1;
    assert_eq!(boot_id, lab.node("a").boot_id().unwrap());
    // The node itself, unlike its container, may write.
    let write = "echo 0 > /proc/sys/net/ipv4/conf/eth0/rp_filter";
    assert!(output_of(lab.node("a").command("sh").args(["-c", write])).0);
}

fn keeps_no_namespace() {
    let lab = TestLab::two_nodes();
    lab.node("a").add_pod("web").unwrap();
    let count = "grep -c ' - nsfs ' /proc/self/mountinfo";
    assert_eq!(output_of(lab.node("a").command("sh").args(["-c", count])).1, "1");
    assert_eq!(contained(&lab, count).1, "0");
}

fn a_program_that_does_not_exist() {
    let lab = TestLab::two_nodes();
    let output = lab.node("a").command("/no/such/program").output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(String::from_utf8(output.stderr).unwrap().contains("/no/such/program"));
    let output = lab.node("a").pod_command("nobody", "true").output().unwrap();
    assert_eq!(output.status.code(), Some(125));
}
