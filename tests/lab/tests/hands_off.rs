//! ENIs of other owners: tagged ENIs, EFA devices, and nodes without provisioning. The daemon uses the addresses that
//! it may use and changes nothing.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);
/// IMDS shows attached ENIs at once.
const PROMPT: [&str; 4] = ["--imds-lag", "0s", "--attach-delay", "200ms"];

/// Returns an ENI with all its attributes in EC2.
fn eni(lab: &Lab, id: &str) -> Result<Value> {
    let enis = lab.json(&["eni", "list"])?;
    let mut enis = enis.as_array().context("no list of ENIs")?.iter();
    enis.find(|eni| eni["id"] == id).cloned().with_context(|| format!("{id} is gone"))
}

/// Returns the IDs of the ENIs that have addresses of the node's pods.
fn enis_of_pods(lab: &Lab, node: &str) -> Result<BTreeSet<String>> {
    let pods = lab.pods(node)?;
    pods.iter()
        .map(|pod| Ok(pod["eni"].as_str().context("a pod without an ENI")?.to_owned()))
        .collect()
}

/// Actions that change EC2 resources.
const CHANGES: [&str; 8] = [
    "CreateNetworkInterface",
    "AttachNetworkInterface",
    "DetachNetworkInterface",
    "DeleteNetworkInterface",
    "AssignPrivateIpAddresses",
    "UnassignPrivateIpAddresses",
    "ModifyNetworkInterfaceAttribute",
    "CreateTags",
];

fn nothing_was_changed(lab: &Lab, node: &str) -> Result<()> {
    for action in CHANGES {
        let calls = lab.calls(node, action)?;
        ensure!(calls == 0.0, "{node}: {calls} calls of {action}");
    }
    Ok(())
}

#[test]
fn enis_that_are_marked_or_not_tagged_as_ours_are_left_alone() -> Result<()> {
    let Some(bin) = programs("enis_that_are_marked_or_not_tagged_as_ours_are_left_alone") else {
        return Ok(());
    };
    let lab = Lab::up(&bin, "t-theirs", &PROMPT)?;
    let tag = |value: &str| format!("node.k8s.amazonaws.com/no_manage={value}");
    let (theirs, ours) = (tag("true"), tag("false"));
    for (node, untagged) in [("all", "true"), ("tagged", "false")] {
        let add = ["node", "add", node, "--subnet", "0", "--no-daemon", "--env"];
        lab.run(&[&add[..], &[&format!("MANAGE_UNTAGGED_ENI={untagged}")]].concat())?;
        let with =
            |more: &[&str]| lab.attach_theirs(node, &[&["a", "--addresses", "4"], more].concat());
        let (left, used) = (with(&["--tag", &theirs])?, with(&["--tag", &ours])?);
        let untagged = with(&[])?;
        let before = [eni(&lab, &left)?, eni(&lab, &untagged)?];
        lab.run(&["daemon", "start", node])?;
        wait_for("the pool to be ready", PATIENCE, || lab.is(node, "ready"))?;
        // More pods than the usable ENIs have addresses, so the daemon attaches one ENI in the last free device.
        lab.run(&["pod", "add", node, "--count", "28"])?;
        let enis = enis_of_pods(&lab, node)?;
        ensure!(!enis.contains(&left), "{node}: pods have addresses of {left}");
        ensure!(enis.contains(&used), "{node}: {used} was not used: {enis:?}");
        ensure!(enis.contains(&untagged) == (node == "all"), "{node}: {untagged}, {enis:?}");
        ensure!(eni(&lab, &left)? == before[0], "{node}: {left} was changed");
        ensure!(
            node == "all" || eni(&lab, &untagged)? == before[1],
            "{node}: {untagged} was changed"
        );
        // The unused ENIs still count: the type allows four.
        ensure!(lab.enis(node)?.len() == 4, "{node}: {:?}", lab.enis(node)?);
    }
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

#[test]
fn an_efa_serves_pods_an_efa_only_uses_a_device_and_both_stay_attached() -> Result<()> {
    let Some(bin) = programs("an_efa_serves_pods_an_efa_only_uses_a_device_and_both_stay_attached")
    else {
        return Ok(());
    };
    let adapters = ["--interface", "0:1:efa", "--interface", "1:0:efa-only"];
    let node = ["--nodes", "1", "--type", "p5.48xlarge", "--env", "ENABLE_MULTI_NIC=true"];
    let lab = Lab::up(&bin, "t-efa", &[&node[..], &adapters].concat())?;
    let enis = lab.json(&["eni", "list"])?;
    let of_kind = |kind: &str| -> Result<String> {
        let mut enis = enis.as_array().context("no list of ENIs")?.iter();
        let found = enis.find(|eni| eni["kind"] == kind).and_then(|eni| eni["id"].as_str());
        found.map(str::to_owned).with_context(|| format!("no {kind}"))
    };
    let (efa, efa_only) = (of_kind("efa")?, of_kind("efa-only")?);
    // A p5 has 49 addresses for each ENI. Its card 0 has two devices, and both are in use.
    lab.run(&["pod", "add", "node1", "--count", "60", "--parallel", "60"])?;
    let used = enis_of_pods(&lab, "node1")?;
    ensure!(used.contains(&efa), "no pod has an address of the EFA: {used:?}");
    ensure!(!used.contains(&efa_only), "pods have addresses of {efa_only}");
    lab.run(&["check", "--tcp", "2"])?;
    lab.run(&["pod", "delete", "--all"])?;
    for id in [&efa, &efa_only] {
        ensure!(eni(&lab, id)?["status"] == "in-use", "{id} was detached");
    }
    ensure!(eni(&lab, &efa_only)?["addresses"].as_array().is_some_and(Vec::is_empty), "addresses");
    lab.down()
}

#[test]
fn a_daemon_without_provisioning_serves_existing_addresses_and_changes_nothing() -> Result<()> {
    let name = "a_daemon_without_provisioning_serves_existing_addresses_and_changes_nothing";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-handsoff", &PROMPT)?;
    for (node, mode) in
        [("by-ec2", "DISABLE_NETWORK_RESOURCE_PROVISIONING"), ("by-imds", "ENABLE_IMDS_ONLY_MODE")]
    {
        let add = ["node", "add", node, "--subnet", "0", "--no-daemon"];
        let settings = ["--env", &format!("{mode}=true"), "--env", "FERRULE_ADD_WAIT=3"];
        lab.run(&[&add[..], &settings].concat())?;
        let theirs = lab.attach_theirs(node, &["a", "--addresses", "6"])?;
        if mode == "ENABLE_IMDS_ONLY_MODE" {
            lab.run(&["iam", "deny", "*"])?;
        }
        lab.run(&["daemon", "start", node])?;
        wait_for("the pool to be ready", PATIENCE, || lab.is(node, "ready"))?;
        lab.run(&["pod", "add", node, "--count", "6"])?;
        ensure!(enis_of_pods(&lab, node)? == [theirs].into(), "{:?}", lab.pods(node));
        let printed = lab.refused(&["pod", "add", node, "--pod", &format!("{node}-more")])?;
        ensure!(
            printed.contains("leave ENIs and addresses to another program"),
            "{node}: {printed}"
        );
        ensure!(printed.contains(mode), "{node}: the next step is not named: {printed}");
        nothing_was_changed(&lab, node)?;
        if mode == "ENABLE_IMDS_ONLY_MODE" {
            // Every call would have been denied.
            let denied = lab.metric(node, "ferrule_ec2_calls_total", &["UnauthorizedOperation"])?;
            ensure!(denied.is_none(), "EC2 was asked {denied:?} times");
        }
    }
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}
