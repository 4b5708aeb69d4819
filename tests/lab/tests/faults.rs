//! Faults of EC2 and IMDS. The daemon keeps running, loses no address and assigns none twice. Metrics and health show
//! the fault, and the daemon recovers after it.

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use std::{collections::BTreeSet, time::Duration};
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the addresses of all pods. Fails if two pods have the same.
fn addresses(lab: &Lab) -> Result<BTreeSet<String>> {
    let Value::Array(pods) = lab.json(&["pod", "list"])? else { anyhow::bail!("no list of pods") };
    let mut seen = BTreeSet::new();
    for pod in &pods {
        let address = pod["address"].as_str().context("a pod without an address")?;
        ensure!(seen.insert(address.to_owned()), "{address} is held twice: {pods:#?}");
    }
    Ok(seen)
}

/// Fails if the daemon was restarted.
fn never_restarted(lab: &Lab) -> Result<()> {
    let daemon = lab.node("node1")?["daemon"].clone();
    ensure!(daemon["restarts"] == 0 && daemon["state"] == "running", "the daemon: {daemon}");
    Ok(())
}

/// Returns the number of secondary addresses of the node's ENIs in EC2.
fn held_in_ec2(lab: &Lab) -> Result<usize> {
    let node = lab.node("node1")?;
    let enis = node["enis"].as_array().context("a node without ENIs")?;
    Ok(enis.iter().filter_map(|eni| eni["secondary"].as_array()).map(Vec::len).sum())
}

/// Waits until the address book has the same number of addresses as EC2.
fn book_agrees_with_ec2(lab: &Lab) -> Result<()> {
    wait_for("the address book to agree with EC2", PATIENCE, || {
        let book = lab.metric("node1", "awscni_total_ip_addresses", &[])?.unwrap_or(-1.0);
        let ec2 = held_in_ec2(lab)?;
        ensure!(book == f64::from(u32::try_from(ec2)?), "the address book has {book}, EC2 {ec2}");
        Ok(true)
    })
}

fn health(lab: &Lab, name: &str) -> Result<bool> {
    Ok(lab
        .output(&["node", "exec", "node1", "--", "ferrule-ipamd", "health", name])?
        .status
        .success())
}

fn recovers(lab: &Lab) -> Result<()> {
    lab.run(&["fault", "clear"])?;
    wait_for("the pool to be ready", PATIENCE, || health(lab, "ready"))?;
    lab.run(&["pod", "add", "node1", "--prefix", "late-", "--count", "4"])?;
    addresses(lab)?;
    book_agrees_with_ec2(lab)?;
    lab.run(&["check", "--tcp", "2"])?;
    never_restarted(lab)
}

#[test]
fn ec2_that_throttles_every_second_call_only_slows_growth() -> Result<()> {
    let name = "ec2_that_throttles_every_second_call_only_slows_growth";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-throttle", &["--nodes", "1"])?;
    lab.run(&["fault", "set", "throttle", "--every", "2"])?;
    lab.run(&["pod", "add", "node1", "--count", "40"])?;
    ensure!(addresses(&lab)?.len() == 40, "not every pod has an address");
    let throttled = lab.metric("node1", "ferrule_ec2_calls_total", &["RequestLimitExceeded"])?;
    ensure!(throttled.is_some_and(|count| count > 0.0), "no throttling was counted");
    recovers(&lab)?;
    lab.down()
}

#[test]
fn lost_replies_lose_no_address() -> Result<()> {
    let Some(bin) = programs("lost_replies_lose_no_address") else { return Ok(()) };
    let lab = Lab::up(&bin, "t-lost", &["--nodes", "1"])?;
    lab.run(&["fault", "set", "lose-replies", "--every", "2"])?;
    lab.run(&["pod", "add", "node1", "--count", "30"])?;
    ensure!(addresses(&lab)?.len() == 30, "not every pod has an address");
    recovers(&lab)?;
    // A creation with a lost reply must not leave an unattached ENI.
    wait_for("every address in use to be the node's", PATIENCE, || {
        let node = lab.node("node1")?;
        let enis = node["enis"].as_array().context("a node without ENIs")?.len();
        let on_node = u64::try_from(held_in_ec2(&lab)? + enis)?;
        let used = lab.addresses_in_use()?;
        ensure!(used == on_node, "{used} addresses in use, {on_node} of them by the node");
        Ok(true)
    })?;
    lab.down()
}

#[test]
fn a_lagging_imds_drops_no_address() -> Result<()> {
    let Some(bin) = programs("a_lagging_imds_drops_no_address") else { return Ok(()) };
    let lab = Lab::up(&bin, "t-imds", &["--nodes", "1"])?;
    lab.run(&["fault", "set", "imds-lag", "30s"])?;
    lab.run(&["pod", "add", "node1", "--count", "40"])?;
    let before = addresses(&lab)?;
    lab.run(&["check", "--tcp", "2"])?;
    // A daemon that starts now gets an answer of IMDS without most of the addresses.
    lab.run(&["daemon", "kill", "node1"])?;
    wait_for("the new daemon to have all pods", PATIENCE, || {
        Ok(lab.metric("node1", "awscni_assigned_ip_addresses", &[])? == Some(40.0))
    })?;
    lab.run(&["pod", "check"])?;
    lab.run(&["check", "--tcp", "2"])?;
    ensure!(addresses(&lab)? == before, "addresses changed");
    lab.run(&["fault", "clear"])?;
    book_agrees_with_ec2(&lab)?;
    lab.down()
}

#[test]
fn a_full_subnet_is_reported_and_the_daemon_keeps_running() -> Result<()> {
    let Some(bin) = programs("a_full_subnet_is_reported_and_the_daemon_keeps_running") else {
        return Ok(());
    };
    // A /28 has eleven usable addresses: one of the node and ten for pods.
    let args = ["--nodes", "1", "--subnet", "10.0.0.0/28", "--subnet", "10.0.1.0/28"];
    let lab = Lab::up(&bin, "t-subnet", &[&args[..], &["--env", "FERRULE_ADD_WAIT=5"]].concat())?;
    let all = lab.output(&["pod", "add", "node1", "--count", "14"])?;
    ensure!(!all.status.success(), "fourteen pods in a subnet of eleven addresses");
    let printed =
        String::from_utf8_lossy(&all.stderr).into_owned() + &String::from_utf8_lossy(&all.stdout);
    ensure!(printed.contains("subnet-"), "the error does not name the subnet: {printed}");
    let served = addresses(&lab)?.len();
    ensure!((8..=10).contains(&served), "{served} pods served");
    ensure!(health(&lab, "live")?, "the daemon is not live in a full subnet");
    ensure!(!health(&lab, "ready")?, "the daemon is ready in a full subnet");
    lab.run(&["check", "--tcp", "2"])?;
    // New pods get the addresses of deleted pods.
    lab.run(&["pod", "delete", "--all"])?;
    wait_for("the pool to be ready", PATIENCE, || health(&lab, "ready"))?;
    wait_for("new pods to be served", PATIENCE, || {
        let add = ["pod", "add", "node1", "--prefix", "again-", "--count", "2"];
        Ok(lab.output(&add)?.status.success())
    })?;
    never_restarted(&lab)?;
    lab.down()
}

#[test]
fn an_attach_that_never_completes_does_not_block_the_node() -> Result<()> {
    let name = "an_attach_that_never_completes_does_not_block_the_node";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-attach", &["--nodes", "1", "--env", "WARM_IP_TARGET=2"])?;
    lab.run(&["pod", "add", "node1", "--count", "4"])?;
    lab.run(&["fault", "set", "attach-never"])?;
    // The daemon serves addresses of the primary ENI while the second one attaches.
    lab.run(&["pod", "add", "node1", "--prefix", "more-", "--count", "8"])?;
    addresses(&lab)?;
    ensure!(health(&lab, "live")?, "the daemon is not live");
    let explain = || lab.get("node1", 61679, "/v1/ferrule/explain");
    let many =
        lab.command(&["pod", "add", "node1", "--prefix", "stuck-", "--count", "6"]).spawn()?;
    wait_for("the daemon to report the missing link of an ENI", PATIENCE, || {
        let explained: Value = serde_json::from_str(&explain()?)?;
        let waits = |note: &Value| note.as_str().is_some_and(|it| it.contains("waiting for link"));
        let notes = explained["hostNetworking"]["notes"].as_array().context("no notes")?;
        ensure!(notes.iter().any(waits), "{explained:#}");
        let enis = explained["enis"].as_array().context("no ENIs")?;
        ensure!(enis.iter().any(|eni| eni["ready"] == false), "every ENI is ready: {explained:#}");
        Ok(true)
    })?;
    let mut many = many;
    many.wait()?;
    recovers(&lab)?;
    lab.down()
}

#[test]
fn an_eni_detached_behind_the_daemons_back_is_reported_and_replaced() -> Result<()> {
    let name = "an_eni_detached_behind_the_daemons_back_is_reported_and_replaced";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-detach", &["--nodes", "1"])?;
    lab.run(&["pod", "add", "node1", "--count", "20"])?;
    let pods = lab.pods("node1")?;
    let secondary = pods.iter().find(|pod| pod["device"].as_u64() > Some(0));
    let eni = secondary.and_then(|pod| pod["eni"].as_str()).context("no pod on a secondary ENI")?;
    lab.run(&["fault", "set", "detach", eni])?;
    lab.run(&["pod", "add", "node1", "--prefix", "new-", "--count", "10"])?;
    addresses(&lab)?;
    // The pods of that ENI lose their network. The daemon reports them and keeps their assignments.
    let assigned = lab.metric("node1", "awscni_assigned_ip_addresses", &[])?;
    ensure!(assigned == Some(30.0), "{assigned:?} assigned");
    never_restarted(&lab)?;
    lab.down()
}
