//! A node joins: its startup taint, its condition, its pods' annotations and events, and its ENIConfig.

use crate::world::{PATIENCE, World};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tests_lab::{programs, wait_for};

#[test]
fn the_taint_goes_when_the_pool_serves_and_events_name_the_reason_of_a_refusal() -> Result<()> {
    let name = "the_taint_goes_when_the_pool_serves_and_events_name_the_reason_of_a_refusal";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    let taint = json!({"key": "ferrule.io/not-ready", "effect": "NoSchedule"});
    let other = json!({"key": "example.com/kept", "effect": "NoSchedule"});
    world.make_node("node1", &json!({"spec": {"taints": [taint, other]}}))?;
    let subnets = ["--nodes", "1", "--subnet", "10.0.0.0/28", "--subnet", "10.0.1.0/28"];
    let up: Vec<&str> = subnets
        .into_iter()
        .chain(["--env", "FERRULE_STARTUP_TAINT=ferrule.io/not-ready"])
        .chain(["--env", "ANNOTATE_POD_IP=true", "--env", "FERRULE_ADD_WAIT=8"])
        .chain(["--env", "WARM_IP_TARGET=1", "--env", "IP_COOLDOWN_PERIOD=5"])
        .collect();
    let lab = world.lab(&bin, "t-kube", &up)?;
    wait_for("the removal of the startup taint, and of no other", PATIENCE, || {
        let taints = world.node("node1")?.spec.and_then(|spec| spec.taints).unwrap_or_default();
        let keys: Vec<&str> = taints.iter().map(|taint| taint.key.as_str()).collect();
        ensure!(keys.contains(&"example.com/kept"), "{keys:?}");
        Ok(!keys.contains(&"ferrule.io/not-ready"))
    })?;
    world.wait_for_condition("node1", "True", &[])?;

    world.make_pod("node1", "annotated")?;
    lab.run(&["pod", "add", "node1", "--pod", "annotated"])?;
    let pods = lab.pods("node1")?;
    let address = pods[0]["address"].as_str().context("a pod without an address")?.to_owned();
    wait_for("the pod's annotation", PATIENCE, || {
        Ok(world.annotation("annotated", "vpc.amazonaws.com/pod-ips")? == Some(address.clone()))
    })?;

    // The subnet has eleven addresses, one of them the node's. The next pod gets an event.
    lab.run(&["pod", "add", "node1", "--prefix", "more-", "--count", "9"])?;
    world.make_pod("node1", "late")?;
    lab.refused(&["pod", "add", "node1", "--pod", "late"])?;
    world.wait_for_event("late", "FailedAddressAssignment", &["subnet-"])?;
    world.wait_for_condition("node1", "False", &[])?;
    lab.run(&["pod", "delete", "more-0", "more-1"])?;
    wait_for("the pod to be served", PATIENCE, || {
        lab.run(&["pod", "add", "node1", "--pod", "late"]).map(|_| true)
    })?;
    world.wait_for_condition("node1", "True", &[])?;
    lab.down()
}

/// The host cannot reach such a pod. The runtime does not notice it, so a person must delete the pod.
#[test]
fn a_pod_without_its_link_gets_an_event() -> Result<()> {
    let Some(bin) = programs("a_pod_without_its_link_gets_an_event") else { return Ok(()) };
    let world = World::new()?;
    world.make_node("node1", &json!({}))?;
    let lab = world.lab(&bin, "t-unlinked", &["--nodes", "1"])?;
    for pod in ["linked", "unlinked"] {
        world.make_pod("node1", pod)?;
        lab.run(&["pod", "add", "node1", "--pod", pod])?;
    }
    let pods = lab.pods("node1")?;
    let pod = pods.iter().find(|pod| pod["name"] == "unlinked").context("no pod unlinked")?;
    let address = pod["address"].as_str().context("a pod without an address")?;
    let route = lab.on_node("node1", &["ip", "-j", "route", "get", address])?;
    let route: Value = serde_json::from_str(&route)?;
    let veth = route[0]["dev"].as_str().with_context(|| route.to_string())?;
    lab.on_node("node1", &["ip", "link", "del", veth])?;
    world.wait_for_event("unlinked", "LinkMissing", &[veth, address, "delete the pod"])?;
    lab.wait_for_line("node1", &["link_missing", "unlinked", veth])?;
    wait_for("the metric of the missing link", PATIENCE, || {
        let labels = ["kind=\"link_missing\""];
        Ok(lab.metric("node1", "ferrule_troubles", &labels)? == Some(1.0))
    })?;
    let others = world.notes("linked", "LinkMissing")?;
    ensure!(others.is_empty(), "a pod with its link has events: {others:?}");
    lab.down()
}

#[test]
fn custom_networking_waits_for_its_eniconfig_and_then_serves_from_its_subnet() -> Result<()> {
    let name = "custom_networking_waits_for_its_eniconfig_and_then_serves_from_its_subnet";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    let label = json!({"metadata": {"labels": {"k8s.amazonaws.com/eniConfig": "zone-a"}}});
    world.make_node("node1", &label)?;
    let subnets = ["--nodes", "1", "--subnet", "10.0.0.0/24", "--subnet", "10.0.1.0/24"];
    let up: Vec<&str> = subnets
        .into_iter()
        .chain(["--subnet", "10.0.64.0/24,zone=a"])
        .chain(["--env", "AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG=true"])
        .chain(["--env", "FERRULE_ADD_WAIT=8"])
        .collect();
    let lab = world.lab(&bin, "t-custom", &up)?;
    let printed = lab.refused(&["pod", "add", "node1", "--pod", "early"])?;
    ensure!(
        printed.contains("ENIConfig") && printed.contains("zone-a"),
        "the plugin printed: {printed}"
    );

    let config = |subnet: &str| World::eni_config("zone-a", &json!({"subnet": subnet}));
    world.apply(&config("subnet-00000000000000bad"))?;
    lab.wait_for_line("node1", &["subnet-00000000000000bad"])?;
    world.apply(&config(&lab.subnet("c")?))?;
    wait_for("a pod to be served", PATIENCE, || {
        lab.run(&["pod", "add", "node1", "--pod", "served"]).map(|_| true)
    })?;
    lab.run(&["pod", "add", "node1", "--count", "5"])?;
    for pod in lab.pods("node1")? {
        let address = pod["address"].as_str().context("a pod without an address")?;
        ensure!(address.starts_with("10.0.64."), "{address} is not of the ENIConfig's subnet");
    }
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}
