//! Unschedulable nodes. Their pool keeps its size unless a setting changes that.

use crate::world::{PATIENCE, World};
use anyhow::{Result, ensure};
use serde_json::json;
use tests_lab::{programs, wait_for};

#[test]
fn the_pool_of_an_unschedulable_node_keeps_its_size_unless_the_setting_manages_it() -> Result<()> {
    let name = "the_pool_of_an_unschedulable_node_keeps_its_size_unless_the_setting_manages_it";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    let subnets = ["--subnet", "10.0.0.0/20", "--subnet", "10.0.16.0/20"];
    let lab = world.lab(&bin, "t-cordon", &subnets)?;
    let taint = json!({"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"});
    let cordoned = json!({"spec": {"unschedulable": true, "taints": [taint]}});
    let open = json!({"spec": {"unschedulable": null, "taints": null}});
    // The ADD of a pod without an address ends soon. The other node's ADDs wait for a new ENI, also on a slow machine.
    for (node, manage, wait) in [("node-stays", "false", "3"), ("node-managed", "true", "45")] {
        world.make_node(node, &json!({}))?;
        let manage = format!("AWS_MANAGE_ENIS_NON_SCHEDULABLE={manage}");
        let wait = format!("FERRULE_ADD_WAIT={wait}");
        let settings = ["--env", &wait, "--env", "WARM_IP_TARGET=2"];
        let settings = [&settings[..], &["--env", &manage]].concat();
        lab.run(&[&["node", "add", node], &settings[..]].concat())?;
        wait_for("the first addresses", PATIENCE, || {
            Ok(lab.metric(node, "awscni_total_ip_addresses", &[])?.is_some_and(|all| all >= 2.0))
        })?;
        lab.run(&["pod", "add", node, "--count", "2"])?;
        wait_for("two free addresses", PATIENCE, || {
            Ok(lab.metric(node, "awscni_total_ip_addresses", &[])? == Some(4.0))
        })?;
        world.patch_node(node, &cordoned)?;
        lab.wait_for_line(node, &["unschedulable", node_is(&manage)])?;
    }
    // Pods that tolerate the taint get the addresses of the pool. The pool grows only with the setting.
    lab.run(&["pod", "add", "node-stays", "--prefix", "stays-", "--count", "2"])?;
    world.make_pod("node-stays", "one-more")?;
    let printed = lab.refused(&["pod", "add", "node-stays", "--pod", "one-more"])?;
    ensure!(printed.contains("unschedulable") && printed.contains("uncordon"), "{printed}");
    let words = ["unschedulable", "AWS_MANAGE_ENIS_NON_SCHEDULABLE"];
    world.wait_for_event("one-more", "FailedAddressAssignment", &words)?;
    lab.run(&["pod", "add", "node-managed", "--prefix", "managed-", "--count", "20"])?;
    ensure!(lab.enis("node-managed")?.len() > 1, "22 pods on one ENI of fourteen addresses");

    world.patch_node("node-stays", &open)?;
    wait_for("the pod to be served once the node is schedulable", PATIENCE, || {
        lab.run(&["pod", "add", "node-stays", "--pod", "one-more"]).map(|_| true)
    })?;
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

/// Returns the text of the log line for a node with this setting.
fn node_is(manage: &str) -> &'static str {
    if manage.ends_with("true") { "the pool is still managed" } else { "neither grows nor shrinks" }
}
