//! `ferrule-ipamd install` as a process, beside a daemon that is there, is not yet, or is not ready.

use crate::{
    cloud::FakeCloud,
    node::{TestNode, key},
};
use config_model::{Migration, Owner};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
};
use tests_eventually::{PATIENCE, eventually};

const CONFLIST: &str = "05-ferrule.conflist";
const AWS: &str = r#"{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni"}]}"#;

/// The folders of a node, and an image with the installer and a program that stands for the plugin.
fn folders(node: &TestNode) -> [PathBuf; 3] {
    let folders = ["image", "bin", "net.d"].map(|name| node.folder.path().join(name));
    folders.iter().for_each(|folder| fs::create_dir(folder).unwrap());
    let own = env!("CARGO_BIN_EXE_ferrule-ipamd");
    fs::hard_link(own, folders[0].join("ferrule-ipamd"))
        .or_else(|_| fs::copy(own, folders[0].join("ferrule-ipamd")).map(drop))
        .unwrap();
    fs::copy("/bin/true", folders[0].join("ferrule-cni")).unwrap();
    folders
}

fn command(node: &TestNode, words: &[&str]) -> Command {
    let at = |name: &str| node.folder.path().join(name);
    let mut command = Command::new(at("image/ferrule-ipamd"));
    command
        .args(words)
        .env_clear()
        .env("FERRULE_SOCKET", node.socket())
        .env("FERRULE_STATE_DIR", node.tombstones().parent().unwrap())
        .env("AWS_VPC_K8S_CNI_BACKING_STORE", at("aws-node/ipam.json"))
        .env("HOST_CNI_BIN_PATH", at("bin"))
        .env("HOST_CNI_CONFDIR_PATH", at("net.d"))
        .env("AWS_VPC_ENI_MTU", "1500")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    command
}

fn run(node: &TestNode, words: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command(node, words).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

/// Reads the child's output up to a line with these words.
fn read_until(child: &mut Child, words: &str) -> String {
    let stderr = BufReader::new(child.stderr.as_mut().unwrap());
    let mut output = String::new();
    for line in stderr.lines() {
        let line = line.unwrap();
        output.push_str(&line);
        if line.contains(words) {
            return output;
        }
    }
    panic!("it ended without {words:?}: {output}");
}

/// The files of a folder, without the installer's lock.
fn names(folder: &PathBuf) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name != ".ferrule.lock").collect();
    names.sort();
    names
}

#[test]
fn the_network_is_installed_when_an_add_would_succeed_and_removed_completely() {
    let node = TestNode::new(FakeCloud::new(50));
    let [_, bin, conf] = folders(&node);
    fs::write(conf.join("10-aws.conflist"), AWS).unwrap();
    let mut installer = command(&node, &["install"]).spawn().unwrap();
    read_until(&mut installer, "does not exist");
    assert_eq!(names(&bin), ["ferrule-cni"]);
    // The daemon is there and cannot serve.
    node.cloud.state().imds = false;
    let daemon = node.start();
    read_until(&mut installer, "the metadata service");
    assert_eq!(names(&conf), ["10-aws.conflist"]);
    node.cloud.state().imds = true;
    read_until(&mut installer, "installed");
    assert!(installer.wait().unwrap().success());
    assert_eq!(node.status().unavailable, Vec::<String>::new());
    assert_eq!(names(&conf), [CONFLIST, "10-aws.conflist.ferrule-aside"]);
    let text = fs::read_to_string(conf.join(CONFLIST)).unwrap();
    // The version of the cached results of what was there before.
    for part in
        [r#""cniVersion": "0.4.0""#, r#""mtu": "1500""#, &node.socket().display().to_string()]
    {
        assert!(text.contains(part), "{text}");
    }
    let (code, said) = run(&node, &["install"]);
    assert_eq!((code, said.lines().count()), (Some(0), 2), "{said}");
    assert!(said.contains("portmap is not in the plugins' folder"), "{said}");
    daemon.terminate();
    for _ in 0..2 {
        let (code, said) = run(&node, &["uninstall"]);
        assert_eq!(code, Some(0), "{said}");
        assert_eq!((names(&conf), names(&bin)), (vec!["10-aws.conflist".to_owned()], vec![]));
    }
    assert_eq!(fs::read_to_string(conf.join("10-aws.conflist")).unwrap(), AWS);
}

#[test]
fn a_node_of_amazon_vpc_cni_is_left_to_migrate_and_a_migrated_one_keeps_its_pods() {
    let node = TestNode::new(FakeCloud::new(50));
    let [_, bin, conf] = folders(&node);
    let daemon = node.start();
    fs::write(conf.join("10-aws.conflist"), AWS).unwrap();
    let aws_node = node.folder.path().join("aws-node");
    fs::create_dir(&aws_node).unwrap();
    let listed = r#"{"version":"vpc-cni-ipam/1","allocations":[{"networkName":"aws-cni"}]}"#;
    fs::write(aws_node.join("ipam.json"), listed).unwrap();
    let mut installer = command(&node, &["install", "--stay"]).spawn().unwrap();
    let said = read_until(&mut installer, "ferrule migrate apply");
    assert!(said.contains("10-aws.conflist stays"), "{said}");
    assert_eq!((names(&bin).len(), names(&conf)), (1, vec!["10-aws.conflist".to_owned()]));
    // The daemon reports it in the meantime.
    let is_reported = || {
        let network_report =
            fs::read_to_string(node.folder.path().join("network.json")).unwrap_or_default();
        let network_report: serde_json::Value =
            serde_json::from_str(&network_report).unwrap_or_default();
        network_report["not_taken_over"].is_string()
    };
    assert!(is_reported());
    // A takeover that has started is not complete.
    let journal = node.tombstones().parent().unwrap().join(Migration::FILE);
    let begun = Migration::to(Owner::Ferrule);
    fs::write(&journal, serde_json::to_vec(&begun).unwrap()).unwrap();
    let (code, said) = run(&node, &["install", "--timeout", "1"]);
    assert_eq!((code, names(&conf).len()), (Some(1), 1), "{said}");
    fs::write(&journal, serde_json::to_vec(&Migration { done: true, ..begun }).unwrap()).unwrap();
    read_until(&mut installer, "installed");
    assert_eq!(names(&conf), [CONFLIST, "10-aws.conflist.ferrule-aside"]);
    eventually("the daemon reports the takeover", PATIENCE, || !is_reported());
    installer.kill().unwrap();
    installer.wait().unwrap();

    let pod = key("a");
    node.add(&pod);
    daemon.terminate();
    for words in [&["uninstall"][..], &["uninstall", "--keep-programs"]] {
        let (code, said) = run(&node, words);
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("ferrule migrate rollback"), "{said}");
        assert_eq!(names(&conf), [CONFLIST, "10-aws.conflist.ferrule-aside"]);
        assert_eq!(names(&bin), ["ferrule-cni"]);
    }
    // A missing folder, as in a container that does not mount it, is no evidence about its content.
    let state = journal.parent().unwrap();
    fs::rename(state, state.with_extension("away")).unwrap();
    let (code, said) = run(&node, &["uninstall"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("FERRULE_STATE_DIR") && said.contains("mount it"), "{said}");
    assert_eq!(names(&conf), [CONFLIST, "10-aws.conflist.ferrule-aside"]);
}

#[test]
fn without_a_ready_daemon_no_network_is_installed_and_the_cause_is_reported() {
    let node = TestNode::new(FakeCloud::new(50));
    let [_, bin, conf] = folders(&node);
    let (code, said) = run(&node, &["install", "--timeout", "1"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("ipamd.sock does not exist") && said.contains("--timeout"), "{said}");
    assert_eq!((names(&bin).len(), names(&conf).len()), (1, 0));
    // An init container needs only the programs.
    let (code, said) = run(&node, &["install", "--only-programs"]);
    assert_eq!((code, &*said), (Some(0), ""));
    let (code, said) = run(&node, &["install", "--soon"]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("install --soon") && said.contains("--help"), "{said}");
}

#[test]
fn a_staying_installer_restores_changed_files_and_exits_on_sigterm() {
    let node = TestNode::new(FakeCloud::new(50));
    let [_, bin, conf] = folders(&node);
    let daemon = node.start();
    let mut installer = command(&node, &["install", "--stay"]).spawn().unwrap();
    read_until(&mut installer, "installed");
    fs::remove_file(conf.join(CONFLIST)).unwrap();
    fs::write(bin.join("ferrule-cni"), "something else").unwrap();
    read_until(&mut installer, &format!("write {CONFLIST}"));
    assert_eq!(fs::read(bin.join("ferrule-cni")).unwrap(), fs::read("/bin/true").unwrap());
    // The daemon's metrics report it while the installer runs.
    let network_report = node.folder.path().join("network.json");
    let report = || -> serde_json::Value {
        let text = fs::read_to_string(&network_report).unwrap_or_default();
        serde_json::from_str(&text).unwrap_or_default()
    };
    eventually("the daemon reports it", PATIENCE, || {
        let network_report = report();
        network_report["restored"] == 1
            && network_report["failing"].is_null()
            && network_report["last"].is_string()
    });
    fs::remove_dir_all(&conf).unwrap();
    read_until(&mut installer, "net.d");
    eventually("the daemon reports the failure", PATIENCE, || report()["failing"].is_string());
    fs::create_dir(&conf).unwrap();
    read_until(&mut installer, &format!("write {CONFLIST}"));
    let id = nix::unistd::Pid::from_raw(i32::try_from(installer.id()).unwrap());
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGTERM).unwrap();
    assert!(installer.wait().unwrap().success());
    assert_eq!(names(&conf), [CONFLIST]);
    assert!(!network_report.exists(), "the report of an installer that is gone");
    daemon.terminate();
}

#[test]
fn a_process_that_locks_the_folders_stops_no_installer() {
    let node = TestNode::new(FakeCloud::new(50));
    let [_, bin, conf] = folders(&node);
    // Each user that can read the folders can lock them.
    let _locks = [&bin, &conf].map(|folder| {
        let folder = fs::File::open(folder).unwrap();
        folder.try_lock().unwrap();
        folder
    });
    let (code, said) = run(&node, &["install", "--only-programs"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(names(&bin).contains(&"ferrule-cni".to_owned()), "{said}");
    let lock = fs::metadata(conf.join(".ferrule.lock")).unwrap();
    assert_eq!(lock.permissions().mode() & 0o777, 0o600);
}

#[test]
fn obstacles_are_reported_and_nothing_changes() {
    let node = TestNode::new(FakeCloud::new(50));
    let [image, bin, conf] = folders(&node);
    fs::write(image.join("ferrule-cni"), "#!/bin/sh\n").unwrap();
    let (code, said) = run(&node, &["install"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("ferrule-cni is not a complete program"), "{said}");
    fs::remove_dir_all(&conf).unwrap();
    let (code, said) = run(&node, &["install"]);
    assert_eq!(code, Some(1));
    assert!(said.contains("HOST_CNI_CONFDIR_PATH") && said.contains("net.d"), "{said}");
    assert_eq!(names(&bin), Vec::<String>::new());
    fs::write(&conf, "a file").unwrap();
    assert!(run(&node, &["uninstall"]).1.contains("is not a folder"));
    let mode = fs::metadata(&bin).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o755, "as it was");
}
