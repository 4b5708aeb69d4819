//! Pods that are bound to a node before their ADD.

use crate::world::{PATIENCE, World};
use anyhow::{Context as _, Result, ensure};
use serde_json::json;
use tests_lab::{Lab, programs, wait_for};

const COMING: usize = 20;

/// Returns the number of addresses of the node's pool, assigned and free.
fn total(lab: &Lab, node: &str) -> Result<f64> {
    lab.metric(node, "awscni_total_ip_addresses", &[])?.context("no gauge of addresses")
}

#[test]
fn a_burst_finds_free_addresses_if_bound_pods_count_as_demand() -> Result<()> {
    let name = "a_burst_finds_free_addresses_if_bound_pods_count_as_demand";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    let subnets = ["--subnet", "10.0.0.0/20", "--subnet", "10.0.16.0/20"];
    let lab = world.lab(&bin, "t-coming", &subnets)?;
    let nodes = [("node-pods", "pods"), ("node-off", "off")];
    for (node, anticipate) in nodes {
        world.make_node(node, &json!({}))?;
        let anticipate = format!("FERRULE_ANTICIPATE={anticipate}");
        let settings = ["--env", &anticipate, "--env", "WARM_IP_TARGET=2"];
        lab.run(&[&["node", "add", node, "--type", "m5.4xlarge"], &settings[..]].concat())?;
        wait_for("the warm addresses", PATIENCE, || Ok(total(&lab, node)? >= 2.0))?;
    }
    let idle = total(&lab, "node-off")?;
    for (node, _) in nodes {
        for number in 0..COMING {
            world.make_pod(node, &format!("{node}-{number}"))?;
        }
    }
    // No ADD has been sent yet.
    wait_for("an address for each bound pod", PATIENCE, || {
        ensure!(total(&lab, "node-pods")? >= 20.0, "{} addresses", total(&lab, "node-pods")?);
        Ok(true)
    })?;
    let off = total(&lab, "node-off")?;
    ensure!(off == idle, "bound pods count with the setting off: {off} addresses, not {idle}");
    for (node, _) in nodes {
        let count = COMING.to_string();
        lab.run(&["pod", "add", node, "--count", &count, "--parallel", &count])?;
    }
    // The addresses were in the pool, so the burst adds warm addresses only.
    let (pods, off) = (total(&lab, "node-pods")?, total(&lab, "node-off")?);
    ensure!(pods <= 25.0 && off >= 20.0, "{pods} and {off} addresses for {COMING} pods each");
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}
