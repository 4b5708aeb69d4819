//! `ferrule status`, `pod`, `check` and `bundle` on a whole cluster, for an account with viewer rights, and
//! interrupted.

#![expect(clippy::unwrap_used, reason = "a failing test panics with its line")]

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use std::{
    fs,
    path::Path,
    process::{Child, Command, Output, Stdio},
    time::Duration,
};
use tests_lab::wait_for;
use tests_whole::{Installed, LaneInputs, Pod};

const PATIENCE: Duration = Duration::from_secs(120);
/// The label of the objects of `ferrule check`.
const CHECKS: &str = "app.kubernetes.io/managed-by=ferrule-check";

#[test]
fn a_viewer_can_run_all_but_the_check_and_interrupted_commands_clean_up() {
    let test = "a_viewer_can_run_all_but_the_check_and_interrupted_commands_clean_up";
    let Some(inputs) = LaneInputs::or_skip(test) else { return };
    let cluster = Installed::bare(inputs, "tool", 2).unwrap();
    cluster.install(&[]).unwrap();
    let pods = cluster.probes("seen").unwrap();
    let folder = tempfile::tempdir().unwrap();
    look_as_a_viewer(&cluster, &pods, folder.path());
    interrupt_a_check(&cluster);
    interrupt_a_bundle(&cluster, folder.path());
    check_both_nodes(&cluster, folder.path());
}

fn look_as_a_viewer(cluster: &Installed, pods: &[Pod], folder: &Path) {
    let viewer = cluster.viewer(folder).unwrap();
    let ask = |args: &[&str]| cluster.ferrule_as(&viewer, args).output().unwrap();

    let status = document(&ask(&["status", "-o", "json"]));
    let nodes = status["nodes"].as_array().unwrap();
    assert_eq!((nodes.len(), &status["unasked"]), (2, &json!([])), "{status}");
    assert!(nodes.iter().all(|node| node["pool"].is_object()), "{status}");

    let version = document(&ask(&["version", "-o", "json"]));
    let programs = version["programs"].as_array().unwrap();
    let ipamd = programs.iter().find(|it| it["program"] == "ferrule-ipamd").unwrap();
    assert_eq!((&ipamd["version"], &ipamd["pods"]), (&version["ferrule"], &json!(2)), "{version}");
    assert!(programs.iter().all(|it| it["version"] == version["ferrule"]), "{version}");

    for pod in pods {
        let report = document(&ask(&["pod", &pod.name, "-n", "default", "-o", "json"]));
        assert_eq!(report["interfaces"][0]["address"], json!(pod.address), "{report}");
    }

    let list = document(&ask(&["pod", "-n", "default", "-o", "json"]));
    let addresses =
        list["pods"].as_array().unwrap().iter().map(|pod| &pod["interfaces"][0]["address"]);
    let addresses: Vec<&str> = addresses.filter_map(Value::as_str).collect();
    assert!(pods.iter().all(|pod| addresses.contains(&pod.address.as_str())), "{list}");

    let archive = folder.join("viewer.tar.gz");
    let bundle = ask(&["bundle", "-o", archive.to_str().unwrap()]);
    assert!(bundle.status.success(), "{}", printed(&bundle));
    let index = index(&archive);
    let missing = index["missing"].as_array().unwrap();
    // A kind that the cluster lacks cannot be read.
    let lacks = |it: &Value| !it["why"].as_str().unwrap().starts_with("there is no ");
    assert!(!missing.iter().any(lacks), "{index}");
    let has = |end: &str| {
        let mut files = index["files"].as_array().unwrap().iter();
        files.any(|file| file["path"].as_str().unwrap().ends_with(end))
    };
    assert!(has("/ipamd.log") && has("/metrics.txt") && has("/explain.json"), "{index}");

    let check = ask(&["check"]);
    assert_eq!(check.status.code(), Some(2), "{}", printed(&check));
    let lacking = "cannot create resource \"namespaces\"";
    assert!(printed(&check).contains(lacking), "{}", printed(&check));
    assert!(
        !printed(&check).contains("delete namespace"),
        "nothing was created: {}",
        printed(&check)
    );
}

/// Runs the whole check as an administrator. Packets of the pods' MTU pass, and both directions are measured.
fn check_both_nodes(cluster: &Installed, folder: &Path) {
    let admin = cluster.cluster().kubeconfig();
    let junit = folder.join("junit.xml");
    let junit_path = junit.to_str().unwrap();
    let words =
        ["check", "--host-port=7801", "--host-network", "-o", "json", "--junit", junit_path];
    let matrix = document(&cluster.ferrule_as(admin, &words).output().unwrap());
    assert_eq!(matrix["nodes"], json!({ "tested": 2, "all": 2 }), "{matrix}");
    let rows = matrix["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 2, "{matrix}");
    for row in rows {
        // Each target of the own node and of the other one gets one large packet.
        assert_eq!((&row["cells"]["mtu"], &row["mtu"]), (&json!([2, 2]), &json!(9001)), "{row}");
        // The host port of the own node and that of the other one lead to their targets.
        assert_eq!(row["cells"]["host-port"], json!([2, 2]), "{row}");
        for column in ["external-ip", "load-balancer"] {
            assert_eq!(row["cells"][column], json!([1, 1]), "{row}");
        }
        // The cluster IP, both addresses outside, the node ports of both nodes and a name.
        assert_eq!(row["cells"]["host-network"], json!([6, 6]), "{row}");
        let times = &row["roundTripMicros"];
        assert!(times["same-node"].is_u64() && times["other-nodes"].is_u64(), "{row}");
    }
    let cases = fs::read_to_string(&junit).unwrap();
    assert!(cases.contains("failures=\"0\" errors=\"0\""), "{cases}");
}

/// Interrupts a check after it has created its pods.
fn interrupt_a_check(cluster: &Installed) {
    let asked = &["check"];
    let mut check = started(&mut cluster.ferrule_as(cluster.cluster().kubeconfig(), asked));
    let left = || cluster.kubectl(&["get", "namespaces", "-l", CHECKS, "-o", "name"]);
    let probes = || {
        let named = left()?;
        let namespace = named.trim().trim_start_matches("namespace/");
        // An empty namespace would select the default one.
        let there = !namespace.is_empty();
        Ok(there && !cluster.kubectl(&["-n", namespace, "get", "pods", "-o", "name"])?.is_empty())
    };
    wait_for("the check's pods", PATIENCE, probes).unwrap();
    assert_eq!(check.try_wait().unwrap(), None, "the check has ended before the interrupt");
    interrupt(&check);
    let output = check.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", printed(&output));
    assert!(printed(&output).contains("interrupted"), "{}", printed(&output));
    wait_for("the removal of the check's namespace", PATIENCE, || Ok(left()?.is_empty())).unwrap();
    let pods = cluster.kubectl(&["get", "pods", "-A", "-o", "name"]).unwrap();
    assert!(!pods.contains("/probe-") && !pods.contains("/target-"), "{pods}");
}

/// Interrupts a bundle while the API server does not answer.
fn interrupt_a_bundle(cluster: &Installed, folder: &Path) {
    let archive = folder.join("cut.tar.gz");
    let status = cluster.lab().json(&["cluster", "status"]).unwrap();
    let mut programs = status["programs"].as_array().unwrap().iter();
    let server = programs.find(|program| program["name"] == "kube-apiserver").unwrap();
    let server = Pid::from_raw(i32::try_from(server["pid"].as_i64().unwrap()).unwrap());
    let admin = cluster.cluster().kubeconfig();
    kill(server, Signal::SIGSTOP).unwrap();
    let bundle =
        started(&mut cluster.ferrule_as(admin, &["bundle", "-o", archive.to_str().unwrap()]));
    let half = folder.join("cut.tar.gz.part");
    wait_for("a partial archive", PATIENCE, || Ok(half.exists())).unwrap();
    interrupt(&bundle);
    let output = bundle.wait_with_output();
    kill(server, Signal::SIGCONT).unwrap();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(130), "{}", printed(&output));
    assert_eq!(index(&archive)["interrupted"], json!(true));
    assert!(!half.exists(), "a partial archive is left");
}

fn started(tool: &mut Command) -> Child {
    tool.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// Sends SIGINT, like Ctrl-C.
fn interrupt(child: &Child) {
    kill(Pid::from_raw(i32::try_from(child.id()).unwrap()), Signal::SIGINT).unwrap();
}

fn document(output: &Output) -> Value {
    assert!(output.status.success(), "{}", printed(output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn printed(output: &Output) -> String {
    let bytes = [output.stdout.as_slice(), &output.stderr].concat();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the index of an archive.
fn index(archive: &Path) -> Value {
    let mut tar = Command::new("tar");
    tar.args(["--extract", "--gzip", "--to-stdout", "--file"]).arg(archive);
    let output = tar.arg("ferrule-bundle/index.json").output().unwrap();
    assert!(output.status.success(), "{}", printed(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}
