//! `ferrule migrate --root`, as in a container that has the node's files below a mount point.

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a test panics, and prints its skip")]

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

/// Runs the command in a network namespace and a mount namespace of its own. The node's root has a procfs.
fn migrate(root: &Path, words: &[&str]) -> Output {
    // A process with the name and the settings of amazon-vpc-cni's agent runs meanwhile: a copy of `cat`.
    const SCRIPT: &str = "mount --rbind /proc \"$0/proc\" && cp /bin/cat \"$0/aws-k8s-agent\" && \
        rm -f \"$0/pipe\" && mkfifo \"$0/pipe\" || exit 9
        WARM_IP_TARGET=5 MY_PASSWORD=hidden \"$0/aws-k8s-agent\" <\"$0/pipe\" >/dev/null 2>&1 &
        exec 3>\"$0/pipe\"
        until grep -qx aws-k8s-agent /proc/$!/comm; do sleep 0.01; done
        \"$@\"; code=$?; exec 3>&-; wait; exit $code";
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--net", "--mount", "sh", "-c", SCRIPT]).arg(root);
    command.args([env!("CARGO_BIN_EXE_ferrule"), "migrate", "--root"]).arg(root).args(words);
    command.args(["--imds", "http://127.0.0.1:9"]).output().unwrap()
}

fn printed(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

#[test]
fn each_verb_uses_the_files_below_the_root() {
    let name = "each_verb_uses_the_files_below_the_root";
    let probe =
        Command::new("unshare").args(["--map-root-user", "--net", "--mount", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        println!("SKIP {name}: needs the right to make a network namespace");
        return;
    }
    // The node has no program, no library and no shell.
    let node = tempfile::tempdir().unwrap();
    let root = node.path();
    for folder in ["proc", "run/aws-node", "etc/cni/net.d", "opt/cni/bin", "var/lib/cni/results"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    // A link that a container would follow to its own files.
    std::os::unix::fs::symlink("/run", root.join("var/run")).unwrap();
    let conflist = r#"{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni","mtu":"9001","vethPrefix":"eni"}]}"#;
    fs::write(root.join("etc/cni/net.d/10-aws.conflist"), conflist).unwrap();
    fs::write(root.join("run/aws-node/ipam.json"), "not JSON").unwrap();

    let plan = migrate(root, &["plan"]);
    let text = printed(&plan);
    assert_eq!(plan.status.code(), Some(1), "{text}");
    assert!(text.contains("REFUSED ipam.json"), "{text}");
    let setting = r#"setting WARM_IP_TARGET: aws-node has "5", Ferrule by default has "0""#;
    assert!(text.contains(setting) && !text.contains("hidden"), "{text}");
    assert!(text.contains("ferrule-ipamd does not run here yet"), "{text}");
    let status = migrate(root, &["status"]);
    let text = printed(&status);
    assert!(text.contains("the runtime's configuration: 10-aws.conflist"), "{text}");

    fs::remove_file(root.join("run/aws-node/ipam.json")).unwrap();
    let back = migrate(root, &["rollback"]);
    assert_eq!(back.status.code(), Some(0), "{}", printed(&back));
    let apply = migrate(root, &["apply", "--wait", "0"]);
    let text = printed(&apply);
    assert_eq!(apply.status.code(), Some(1), "{text}");
    assert!(text.contains("REFUSED the metadata service"), "{text}");
}

#[test]
fn a_folder_that_is_no_root_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ferrule"));
    let output = command.args(["migrate", "plan", "--root"]).arg(folder.path()).output().unwrap();
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("has no procfs; mount the node's `/` there"), "{text}");
}
