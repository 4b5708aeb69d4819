//! Subnets of new ENIs: discovery by tags, excluded subnets, and subnets of other clusters.

use anyhow::{Context as _, Result, ensure};
use std::{collections::BTreeSet, time::Duration};
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// Returns the subnets of the node's pods, as the first three numbers of their addresses.
fn subnets_of_pods(lab: &Lab, node: &str) -> Result<BTreeSet<String>> {
    let pods = lab.pods(node)?;
    let of = |pod: &serde_json::Value| {
        let address = pod["address"].as_str().context("a pod without an address")?;
        Ok(address.rsplit_once('.').context("not an IPv4 address")?.0.to_owned())
    };
    pods.iter().map(of).collect()
}

fn set<const N: usize>(subnets: [&str; N]) -> BTreeSet<String> {
    subnets.map(str::to_owned).into()
}

/// The node is in subnet a. Subnet b is in another zone. The others are in the node's zone: c is tagged for its
/// cluster, d for another cluster, e has no tag, and f is excluded.
const SUBNETS: [&str; 12] = [
    "--subnet",
    "10.0.0.0/24",
    "--subnet",
    "10.0.1.0/24,kubernetes.io/role/cni=1",
    "--subnet",
    "10.0.2.0/24,zone=a,kubernetes.io/role/cni=1,cni.networking.k8s.aws/cluster/lab=shared",
    "--subnet",
    "10.0.3.0/24,zone=a,kubernetes.io/role/cni=1,cni.networking.k8s.aws/cluster/other=shared",
    "--subnet",
    "10.0.4.0/24,zone=a",
    "--subnet",
    "10.0.5.0/24,zone=a,kubernetes.io/role/cni=0",
];

#[test]
fn new_enis_go_into_the_tagged_subnet_of_the_zone_that_has_most_room() -> Result<()> {
    let name = "new_enis_go_into_the_tagged_subnet_of_the_zone_that_has_most_room";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-disc", &[&["--nodes", "1"], &SUBNETS[..]].concat())?;
    // The primary ENI has fourteen addresses. Further pods are on other ENIs.
    lab.run(&["pod", "add", "node1", "--count", "30"])?;
    ensure!(
        subnets_of_pods(&lab, "node1")? == set(["10.0.0", "10.0.2"]),
        "{:?}",
        lab.pods("node1")
    );
    lab.run(&["check", "--tcp", "4"])?;

    // With the setting off, the daemon uses the node's own subnet only.
    lab.run(&["node", "add", "plain", "--subnet", "0", "--env", "ENABLE_SUBNET_DISCOVERY=false"])?;
    lab.run(&["pod", "add", "plain", "--count", "20"])?;
    ensure!(subnets_of_pods(&lab, "plain")? == set(["10.0.0"]), "{:?}", lab.pods("plain"));
    lab.down()
}

/// Excludes a subnet from use for pods.
fn shut(lab: &Lab, subnet: &str) -> Result<()> {
    lab.run(&["subnet", "tag", subnet, "kubernetes.io/role/cni=0"]).map(drop)
}

#[test]
fn an_excluded_subnet_gets_no_new_pods_and_keeps_its_pods() -> Result<()> {
    let Some(bin) = programs("an_excluded_subnet_gets_no_new_pods_and_keeps_its_pods") else {
        return Ok(());
    };
    let up = [&["--nodes", "1", "--env", "WARM_IP_TARGET=2"], &SUBNETS[..]].concat();
    let lab = Lab::up(&bin, "t-shut", &up)?;
    // A starting daemon reads the tags once, so EC2's answers must not lag behind the test's changes.
    lab.run(&["fault", "set", "read-lag", "0s"])?;
    lab.run(&["pod", "add", "node1", "--prefix", "old-", "--count", "3"])?;
    ensure!(subnets_of_pods(&lab, "node1")? == set(["10.0.0"]), "{:?}", lab.pods("node1"));

    // The node's own subnet is excluded. The daemon reads tags at its start and before it creates an ENI.
    shut(&lab, "a")?;
    lab.run(&["daemon", "kill", "node1"])?;
    lab.wait_for_line("node1", &["kubernetes.io/role/cni=0", "no new pods"])?;
    lab.run(&["pod", "add", "node1", "--prefix", "new-", "--count", "5"])?;
    let pods = lab.pods("node1")?;
    for pod in &pods {
        let name = pod["name"].as_str().context("a pod without a name")?;
        let address = pod["address"].as_str().context("a pod without an address")?;
        let wanted = if name.starts_with("old-") { "10.0.0." } else { "10.0.2." };
        ensure!(address.starts_with(wanted), "pod {name} has {address}");
    }
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "4"])?;

    // Without a usable subnet, the daemon logs the zone and the next step.
    shut(&lab, "c")?;
    lab.run(&["daemon", "start", "node1", "--env", "FERRULE_ADD_WAIT=3"])?;
    wait_for("the daemon to exclude both subnets", PATIENCE, || {
        let printed = lab.refused(&["pod", "add", "node1", "--pod", "nowhere"])?;
        ensure!(printed.contains("no subnet of the zone may be used for pods"), "{printed}");
        Ok(true)
    })?;
    lab.wait_for_line("node1", &["ERROR", "no_subnet", "eu-west-1a", "tag a subnet"])?;
    lab.run(&["subnet", "untag", "a", "kubernetes.io/role/cni"])?;
    lab.run(&["daemon", "kill", "node1"])?;
    wait_for("a pod to be served again", PATIENCE, || {
        lab.run(&["pod", "add", "node1", "--pod", "nowhere"]).map(|_| true)
    })?;
    lab.down()
}

#[test]
fn security_groups_are_rewritten_when_they_differ_and_only_then() -> Result<()> {
    let Some(bin) = programs("security_groups_are_rewritten_when_they_differ_and_only_then") else {
        return Ok(());
    };
    let lab = Lab::up(&bin, "t-groups", &["--nodes", "1"])?;
    lab.run(&["pod", "add", "node1", "--count", "16"])?;
    let second = || -> Result<serde_json::Value> {
        let enis = lab.json(&["eni", "list"])?;
        let enis = enis.as_array().context("no list of ENIs")?;
        let found = enis.iter().find(|eni| eni["node"] == "node1" && eni["device"] == 1);
        found.cloned().context("no second ENI")
    };
    let eni = second()?["id"].as_str().context("an ENI without an ID")?.to_owned();
    let groups = second()?["groups"].clone();
    // A starting daemon compares the groups of all ENIs. It writes nothing if they are equal.
    let looked = |lab: &Lab| -> Result<bool> {
        Ok(lab.calls("node1", "DescribeNetworkInterfaces")? > 0.0 && lab.is("node1", "ready")?)
    };
    lab.run(&["daemon", "kill", "node1"])?;
    wait_for("the daemon to read the ENIs from EC2", PATIENCE, || looked(&lab))?;
    lab.run(&["pod", "add", "node1", "--prefix", "more-", "--count", "2"])?;
    ensure!(!lab.logs("node1")?.contains("groups_changed"), "equal groups were rewritten");
    lab.run(&["group", "add", "strange"])?;
    lab.run(&["eni", "groups", &eni, "strange"])?;
    lab.run(&["daemon", "kill", "node1"])?;
    wait_for("the groups of the primary ENI", PATIENCE, || Ok(second()?["groups"] == groups))?;
    lab.wait_for_line("node1", &["groups_changed", &eni])?;
    let rewrites =
        lab.logs("node1")?.lines().filter(|line| line.contains("groups_changed")).count();
    ensure!(rewrites == 1, "groups were rewritten {rewrites} times");
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}
