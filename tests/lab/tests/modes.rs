//! Each mode of addresses on whole nodes, with the production daemon and plugin, a simulated EC2 and a strict router.
//! Traffic between pods shows that every rule and route is right.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{collections::BTreeSet, net::IpAddr, time::Duration};
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(120);

/// Returns all addresses of the node's pods. Fails if two are the same.
fn addresses(lab: &Lab, node: &str) -> Result<BTreeSet<IpAddr>> {
    let mut seen = BTreeSet::new();
    for pod in lab.pods(node)? {
        let own = pod["addresses"].as_array().context("a pod without addresses")?;
        for address in own {
            let address: IpAddr = address.as_str().context("an address is text")?.parse()?;
            ensure!(seen.insert(address), "{address} is held twice");
        }
    }
    Ok(seen)
}

fn enis(lab: &Lab, node: &str) -> Result<Vec<Value>> {
    let node = lab.node(node)?;
    Ok(node["enis"].as_array().context("a node without ENIs")?.clone())
}

/// Returns the number of blocks of this kind on the node's ENIs in EC2.
fn blocks(lab: &Lab, node: &str, kind: &str) -> Result<usize> {
    let enis = enis(lab, node)?;
    Ok(enis.iter().filter_map(|eni| eni[kind].as_array()).map(Vec::len).sum())
}

/// Returns the number of calls of an EC2 action by the node's daemon.
fn calls(lab: &Lab, node: &str, action: &str) -> Result<f64> {
    let label = format!("action=\"{action}\"");
    Ok(lab.metric(node, "ferrule_ec2_calls_total", &[&label])?.unwrap_or(0.0))
}

const BURST: &[&str] = &["pod", "add", "node1", "--count", "110", "--parallel", "110"];

#[test]
fn a_burst_of_110_pods_on_an_empty_node_is_served_with_single_addresses() -> Result<()> {
    let name = "a_burst_of_110_pods_on_an_empty_node_is_served_with_single_addresses";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-burst", &["--nodes", "1", "--type", "m5.4xlarge"])?;
    lab.run(BURST)?;
    ensure!(addresses(&lab, "node1")?.len() == 110, "not every pod has an address");
    // Each ENI has thirty addresses: one call for each ENI, not for each pod.
    let creates = calls(&lab, "node1", "CreateNetworkInterface")?;
    ensure!(creates <= 5.0, "{creates} calls of CreateNetworkInterface");
    let assigns = calls(&lab, "node1", "AssignPrivateIpAddresses")?;
    ensure!(assigns <= 5.0, "{assigns} calls of AssignPrivateIpAddresses");
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

#[test]
fn a_burst_of_110_pods_on_an_empty_node_is_served_with_prefixes() -> Result<()> {
    let name = "a_burst_of_110_pods_on_an_empty_node_is_served_with_prefixes";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(
        &bin,
        "t-burst-pd",
        &["--nodes", "1", "--type", "m5.4xlarge", "--env", "ENABLE_PREFIX_DELEGATION=true"],
    )?;
    lab.run(BURST)?;
    ensure!(addresses(&lab, "node1")?.len() == 110, "not every pod has an address");
    // Seven prefixes suffice for 110 pods, and one more is kept free. All are on the primary ENI.
    let prefixes = blocks(&lab, "node1", "prefixes")?;
    ensure!((7..=9).contains(&prefixes), "{prefixes} prefixes");
    ensure!(enis(&lab, "node1")?.len() == 1, "prefixes on several ENIs");
    ensure!(calls(&lab, "node1", "AssignPrivateIpAddresses")? <= 4.0, "one call for each prefix");
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

#[test]
fn a_fragmented_subnet_gives_single_addresses_and_prefixes_again_later() -> Result<()> {
    let name = "a_fragmented_subnet_gives_single_addresses_and_prefixes_again_later";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-frag", &["--nodes", "1", "--env", "ENABLE_PREFIX_DELEGATION=true"])?;
    lab.run(&["pod", "add", "node1", "--count", "10"])?;
    ensure!(blocks(&lab, "node1", "secondary")? == 0, "single addresses beside prefixes");
    lab.run(&["subnet", "fragment", "a"])?;
    lab.run(&["pod", "add", "node1", "--prefix", "more-", "--count", "30"])?;
    ensure!(addresses(&lab, "node1")?.len() == 40, "not every pod has an address");
    ensure!(blocks(&lab, "node1", "secondary")? > 0, "no single address was assigned");
    lab.run(&["check", "--tcp", "2"])?;
    // A daemon retries prefixes after some minutes. A restarted daemon retries at once.
    lab.run(&["subnet", "free", "a"])?;
    lab.run(&["daemon", "kill", "node1"])?;
    let before = blocks(&lab, "node1", "prefixes")?;
    lab.run(&["pod", "add", "node1", "--prefix", "late-", "--count", "14"])?;
    wait_for("prefixes again", PATIENCE, || Ok(blocks(&lab, "node1", "prefixes")? > before))?;
    lab.run(&["pod", "check"])?;
    lab.down()
}

#[test]
fn switching_to_prefixes_and_back_keeps_every_pod() -> Result<()> {
    let Some(bin) = programs("switching_to_prefixes_and_back_keeps_every_pod") else {
        return Ok(());
    };
    let lab = Lab::up(&bin, "t-toggle", &["--nodes", "1"])?;
    lab.run(&["pod", "add", "node1", "--count", "8"])?;
    let before = addresses(&lab, "node1")?;
    lab.run(&["daemon", "start", "node1", "--env", "ENABLE_PREFIX_DELEGATION=true"])?;
    wait_for("prefixes", PATIENCE, || Ok(blocks(&lab, "node1", "prefixes")? > 0))?;
    wait_for("the return of free single addresses", PATIENCE, || {
        Ok(blocks(&lab, "node1", "secondary")? == 8)
    })?;
    lab.run(&["pod", "add", "node1", "--prefix", "more-", "--count", "4"])?;
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "2"])?;
    ensure!(addresses(&lab, "node1")?.is_superset(&before), "a pod lost its address");
    lab.run(&["daemon", "start", "node1", "--env", "ENABLE_PREFIX_DELEGATION=false"])?;
    wait_for("the return of free prefixes", PATIENCE, || {
        Ok(blocks(&lab, "node1", "prefixes")? == 1)
    })?;
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

#[test]
fn ipv6_only_nodes_reach_each_other() -> Result<()> {
    let Some(bin) = programs("ipv6_only_nodes_reach_each_other") else { return Ok(()) };
    let env = [
        "--env",
        "ENABLE_IPv6=true",
        "--env",
        "ENABLE_IPv4=false",
        "--env",
        "ENABLE_PREFIX_DELEGATION=true",
    ];
    let lab = Lab::up(&bin, "t-v6", &[&["--nodes", "2", "--ipv6"], &env[..]].concat())?;
    for node in ["node1", "node2"] {
        lab.run(&["pod", "add", node, "--count", "20"])?;
        let own = addresses(&lab, node)?;
        ensure!(own.len() == 20 && own.iter().all(IpAddr::is_ipv6), "{node}: {own:?}");
        ensure!(blocks(&lab, node, "prefixes")? == 1, "{node} has more than one /80");
    }
    lab.run(&["check", "--tcp", "4"])?;
    lab.run(&["pod", "delete", "--all"])?;
    lab.run(&["pod", "add", "node1", "--prefix", "again-", "--count", "5"])?;
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}

#[test]
fn a_pod_of_several_cards_has_an_interface_on_each() -> Result<()> {
    let Some(bin) = programs("a_pod_of_several_cards_has_an_interface_on_each") else {
        return Ok(());
    };
    let up = ["--nodes", "2", "--type", "p4d.24xlarge", "--env", "ENABLE_MULTI_NIC=true"];
    let lab = Lab::up(&bin, "t-cards", &up)?;
    let annotation = "k8s.amazonaws.com/nicConfig=multi-nic-attachment";
    for node in ["node1", "node2"] {
        let wide = format!("wide-{node}");
        let pod = ["pod", "add", node, "--pod", &wide, "--annotation", annotation];
        lab.run(&pod)?;
        ensure!(addresses(&lab, node)?.len() == 4, "{node}: not one address for each card");
        lab.run(&["pod", "add", node, "--count", "2"])?;
        ensure!(addresses(&lab, node)?.len() == 6, "{node}: a plain pod has several addresses");
    }
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "2"])?;
    lab.run(&["pod", "delete", "wide-node1"])?;
    ensure!(addresses(&lab, "node1")?.len() == 2, "addresses of the deleted pod are left");
    lab.down()
}
