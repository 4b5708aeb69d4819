//! Two pods whose host veths have one name.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{fs::File, net::Ipv4Addr, time::Duration};
use tests_lab::{
    Lab, programs,
    streams::{Streams, namespaces},
    wait_for,
};

/// Both names have one hash of 44 bits.
const VICTIM: &str = "shop/web-282697";
const COMER: &str = "tenant/x-5499148";
const VETH: &str = "eni7cecb551585";
const TIMES: usize = 100;
const PATIENCE: Duration = Duration::from_secs(30);

fn one_node(bin: &std::path::Path, name: &str) -> Result<Lab> {
    let lab = Lab::up(bin, name, &["--nodes", "1"])?;
    lab.run(&["pod", "add", "node1", "--pod", "default/peer"])?;
    lab.run(&["pod", "add", "node1", "--pod", VICTIM])?;
    Ok(lab)
}

/// The link with the veth's name: its index, alias and route.
fn link(lab: &Lab) -> Result<(Value, Value, String)> {
    let links: Value =
        serde_json::from_str(&lab.on_node("node1", &["ip", "-d", "-j", "link", "show", VETH])?)?;
    let route = lab.on_node("node1", &["sh", "-c", &format!("ip route | grep {VETH}")])?;
    Ok((links[0]["ifindex"].clone(), links[0]["ifalias"].clone(), route))
}

/// The pod's address and namespace.
fn namespace(lab: &Lab, pod: &str) -> Result<(Ipv4Addr, File)> {
    let pods = lab.pods("node1")?;
    let (namespace, name) = pod.split_once('/').context("a namespace")?;
    let is_of_pod = |it: &&Value| it["namespace"] == namespace && it["name"] == name;
    let of_pod = pods.iter().find(is_of_pod).with_context(|| format!("{pods:?}"))?;
    let address: Ipv4Addr = of_pod["address"].as_str().context("an address")?.parse()?;
    let all = namespaces(lab, "node1")?;
    all.into_iter().find(|(other, _)| *other == address).context("no namespace")
}

#[test]
fn a_second_pod_of_one_veth_name_waits_and_the_first_keeps_its_network() -> Result<()> {
    let test = "a_second_pod_of_one_veth_name_waits_and_the_first_keeps_its_network";
    let Some(bin) = programs(test) else { return Ok(()) };
    let lab = one_node(&bin, "t-veth")?;
    let before = link(&lab)?;
    let (victim, peer) = (namespace(&lab, VICTIM)?, namespace(&lab, "default/peer")?);
    let mut streams = Streams::new();
    streams.add(&victim, &peer)?;
    streams.add(&peer, &victim)?;
    for _ in 0..TIMES {
        let said = lab.refused(&["pod", "add", "node1", "--pod", COMER])?;
        for name in [VICTIM, COMER] {
            ensure!(said.contains(name), "the refusal does not name {name}: {said}");
        }
        let now = link(&lab)?;
        ensure!(now == before, "the link has changed: {now:?}, before {before:?}");
    }
    let count = streams.end()?;
    ensure!(count > 1000, "only {count} packets were sent");
    lab.run(&["pod", "check"])?;
    lab.run(&["pod", "delete", VICTIM])?;
    lab.run(&["pod", "add", "node1", "--pod", COMER])?;
    lab.run(&["pod", "check"])?;
    lab.down()
}

#[test]
fn a_pod_without_its_link_is_reported() -> Result<()> {
    let Some(bin) = programs("a_pod_without_its_link_is_reported") else { return Ok(()) };
    let lab = one_node(&bin, "t-nolink")?;
    lab.on_node("node1", &["ip", "link", "del", VETH])?;
    lab.wait_for_line("node1", &["link_missing", VICTIM, VETH, "delete the pod"])?;
    wait_for("the metric of the missing link", PATIENCE, || {
        let labels = ["kind=\"link_missing\""];
        Ok(lab.metric("node1", "ferrule_troubles", &labels)? == Some(1.0))
    })?;
    lab.down()
}
