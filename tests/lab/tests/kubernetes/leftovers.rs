//! Leaked ENIs. One elected daemon deletes the unused ENIs of dead nodes of its cluster and node group, and no others.

use crate::world::{PATIENCE, World};
use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use tests_lab::{Lab, programs, wait_for};

const CREATED_AT: &str = "node.k8s.amazonaws.com/createdAt";
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

fn enis(lab: &Lab) -> Result<Vec<Value>> {
    Ok(lab.json(&["eni", "list"])?.as_array().context("no list of ENIs")?.clone())
}

fn ids(lab: &Lab) -> Result<BTreeSet<String>> {
    Ok(enis(lab)?.iter().filter_map(|eni| Some(eni["id"].as_str()?.to_owned())).collect())
}

/// Creates an ENI with the tags of the lab's cluster, except for the tags in `otherwise`; `None` leaves a tag out.
fn made_like_ours(lab: &Lab, otherwise: &[(&str, Option<&str>)]) -> Result<String> {
    let mut tags = vec![
        ("cluster.k8s.amazonaws.com/name", "lab"),
        ("ferrule.io/node-group", "default"),
        ("node.k8s.amazonaws.com/instance_id", "i-00000000000000001"),
        (CREATED_AT, LONG_AGO),
    ];
    for (key, value) in otherwise {
        tags.retain(|(known, _)| known != key);
        tags.extend(value.map(|value| (*key, value)));
    }
    let tags: Vec<String> = tags.iter().map(|(key, value)| format!("{key}={value}")).collect();
    let args = ["eni", "add", "a", "--description", "aws-K8S-i-00000000000000001"];
    let args = args.into_iter().chain(tags.iter().flat_map(|tag| ["--tag", tag]));
    let made = lab.json(&args.collect::<Vec<_>>())?;
    Ok(made["id"].as_str().context("an ENI without an ID")?.to_owned())
}

#[test]
fn one_daemon_deletes_the_leaked_enis_of_a_dead_node_and_no_others() -> Result<()> {
    let name = "one_daemon_deletes_the_leaked_enis_of_a_dead_node_and_no_others";
    let Some(bin) = programs(name) else { return Ok(()) };
    let world = World::new()?;
    let subnets = ["--subnet", "10.0.0.0/20", "--subnet", "10.0.16.0/20"];
    let lab = world.lab(&bin, "t-leaks", &subnets)?;

    // A node is terminated, and one of its ENIs is not deleted with it.
    world.make_node("dead", &json!({}))?;
    lab.run(&["node", "add", "dead", "--env", "DISABLE_LEAKED_ENI_CLEANUP=true"])?;
    lab.run(&["pod", "add", "dead", "--count", "16"])?;
    let of_dead = lab.enis("dead")?;
    let second = of_dead.iter().find(|eni| eni["device"] == 1).context("no second ENI")?;
    let leaked = second["id"].as_str().context("an ENI without an ID")?.to_owned();
    wait_for("the ENI's attribute DeleteOnTermination", PATIENCE, || {
        let all = enis(&lab)?;
        let found = all.iter().find(|eni| eni["id"] == leaked.as_str());
        Ok(found.context("the ENI is gone")?["delete_on_termination"] == true)
    })?;
    lab.run(&["eni", "keep", &leaked])?;
    lab.run(&["node", "terminate", "dead"])?;
    wait_for("the ENI to be available", PATIENCE, || {
        let all = enis(&lab)?;
        let found = all.iter().find(|eni| eni["id"] == leaked.as_str());
        Ok(found.context("the ENI is deleted with the node")?["status"] == "available")
    })?;

    // Other ENIs that no daemon may delete, and one more leaked ENI.
    let young = made_like_ours(&lab, &[(CREATED_AT, Some("2999-01-01T00:00:00Z"))])?;
    let ageless = made_like_ours(&lab, &[(CREATED_AT, Some("yesterday"))])?;
    let spared = [
        young,
        ageless.clone(),
        made_like_ours(&lab, &[(CREATED_AT, None)])?,
        made_like_ours(&lab, &[("cluster.k8s.amazonaws.com/name", Some("other"))])?,
        made_like_ours(&lab, &[("ferrule.io/node-group", Some("other"))])?,
        made_like_ours(&lab, &[("node.k8s.amazonaws.com/instance_id", None)])?,
        lab.json(&["eni", "add", "a"])?["id"].as_str().context("an ENI without an ID")?.to_owned(),
    ];
    let in_use = ids(&lab)?;
    let old = made_like_ours(&lab, &[])?;
    // The dead node's ENI is too young to count as leaked, so the test changes its creation time.
    lab.run(&["eni", "tag", &leaked, &format!("{CREATED_AT}={LONG_AGO}")])?;

    for node in ["node1", "node2"] {
        world.make_node(node, &json!({}))?;
        lab.run(&["node", "add", node])?;
    }
    wait_for("the deletion of both leaked ENIs", PATIENCE, || {
        let left = ids(&lab)?;
        ensure!(!left.contains(&leaked), "the dead node's ENI is still there");
        ensure!(!left.contains(&old), "the old ENI is still there");
        Ok(true)
    })?;
    let left = ids(&lab)?;
    let gone: Vec<&String> = in_use.difference(&left).filter(|eni| **eni != leaked).collect();
    ensure!(gone.is_empty(), "{gone:?} were deleted as well");
    ensure!(spared.iter().all(|eni| left.contains(eni)), "{spared:?}, {left:?}");

    let holder = world.collector("default")?.context("the Lease has no holder")?;
    let (collector, other) =
        if holder.starts_with("node1_") { ("node1", "node2") } else { ("node2", "node1") };
    lab.wait_for_line(collector, &["leaked_eni", &leaked, "deleted"])?;
    lab.wait_for_line(collector, &["leaked_eni", &ageless, "createdAt is no time", "fix the tag"])?;
    // An ENI is gone before its deletion is answered, and the daemon counts answered calls.
    wait_for("the collector's count of both deletions", PATIENCE, || {
        let calls = lab.calls(collector, "DeleteNetworkInterface")?;
        ensure!(calls >= 2.0, "{collector} has counted {calls} deletions");
        Ok(true)
    })?;
    ensure!(!lab.logs(other)?.contains("leaked_eni"), "{other} works without the Lease");
    lab.run(&["check"])?;
    lab.down()
}
