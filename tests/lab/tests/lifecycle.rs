//! Reboot, stop, start and termination of a node; two labs side by side; cleanup after a killed lab.

use anyhow::{Context as _, Result, ensure};
use std::time::Duration;
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(90);

fn addresses(lab: &Lab, node: &str) -> Result<Vec<String>> {
    let pods = lab.pods(node)?;
    Ok(pods.iter().filter_map(|pod| Some(pod["address"].as_str()?.to_owned())).collect())
}

fn assigned(lab: &Lab, node: &str) -> Result<f64> {
    lab.metric(node, "awscni_assigned_ip_addresses", &[])?.context("no gauge of assigned addresses")
}

/// Checks that old DELs succeed, that old assignments are gone and that new ADDs are served.
fn is_fresh(lab: &Lab, node: &str) -> Result<()> {
    wait_for("a daemon without assignments", PATIENCE, || Ok(assigned(lab, node)? == 0.0))?;
    lab.run(&["pod", "delete", "--node", node]).context("the DELs of the earlier pods")?;
    lab.run(&["pod", "add", node, "--prefix", "after-", "--count", "6"])?;
    lab.run(&["pod", "check"])?;
    ensure!(assigned(lab, node)? == 6.0, "{} assigned", assigned(lab, node)?);
    lab.run(&["check", "--tcp", "2"]).map(drop)
}

#[test]
fn a_rebooted_node_starts_without_assignments() -> Result<()> {
    let Some(bin) = programs("a_rebooted_node_starts_without_assignments") else { return Ok(()) };
    let lab = Lab::up(&bin, "t-reboot", &["--nodes", "1"])?;
    lab.run(&["pod", "add", "node1", "--count", "8"])?;
    let before = addresses(&lab, "node1")?;
    ensure!(before.len() == 8, "{before:?}");
    lab.run(&["node", "reboot", "node1"])?;
    is_fresh(&lab, "node1")?;
    // Addresses from before the reboot cool, because other nodes may still send to them.
    for address in addresses(&lab, "node1")? {
        ensure!(!before.contains(&address), "{address} was assigned again without a cooldown");
    }
    lab.down()
}

#[test]
fn a_stopped_and_started_node_starts_without_assignments() -> Result<()> {
    let Some(bin) = programs("a_stopped_and_started_node_starts_without_assignments") else {
        return Ok(());
    };
    let lab = Lab::up(&bin, "t-stop", &["--nodes", "1"])?;
    lab.run(&["pod", "add", "node1", "--count", "8"])?;
    lab.run(&["node", "stop", "node1"])?;
    wait_for("the node to stop", PATIENCE, || Ok(lab.node("node1")?["state"] == "stopped"))?;
    lab.run(&["node", "start", "node1"])?;
    is_fresh(&lab, "node1")?;
    lab.down()
}

#[test]
fn a_terminated_node_leaves_no_eni() -> Result<()> {
    let Some(bin) = programs("a_terminated_node_leaves_no_eni") else { return Ok(()) };
    let lab = Lab::up(&bin, "t-term", &["--nodes", "1"])?;
    lab.run(&["pod", "add", "node1", "--count", "20"])?;
    let enis = |lab: &Lab| -> Result<usize> {
        Ok(lab.node("node1")?["enis"].as_array().context("a node without ENIs")?.len())
    };
    ensure!(enis(&lab)? >= 2, "20 pods need more than the primary ENI");
    lab.run(&["node", "terminate", "node1"])?;
    wait_for("every address to be back", PATIENCE, || {
        let left = lab.addresses_in_use()?;
        ensure!(left == 0, "{left} addresses still in use");
        Ok(true)
    })?;
    lab.down()
}

#[test]
fn two_labs_side_by_side_do_not_disturb_each_other() -> Result<()> {
    let name = "two_labs_side_by_side_do_not_disturb_each_other";
    let Some(bin) = programs(name) else { return Ok(()) };
    let one = Lab::up(&bin, "t-one", &["--nodes", "2"])?;
    let two = Lab::up(&bin, "t-two", &["--nodes", "2"])?;
    for lab in [&one, &two] {
        lab.run(&["pod", "add", "node1", "--count", "3"])?;
        lab.run(&["pod", "add", "node2", "--count", "3"])?;
    }
    one.run(&["check", "--tcp", "2"])?;
    one.down()?;
    two.run(&["check", "--tcp", "2"])?;
    two.down()
}

#[test]
fn a_killed_lab_is_cleaned_by_the_next_down() -> Result<()> {
    let Some(bin) = programs("a_killed_lab_is_cleaned_by_the_next_down") else { return Ok(()) };
    let mounts = || -> Result<usize> {
        let all = std::fs::read_to_string("/proc/self/mounts")?;
        Ok(all.lines().filter(|line| line.contains("t-killed")).count())
    };
    let lab = Lab::up(&bin, "t-killed", &["--nodes", "1"])?;
    lab.run(&["pod", "add", "node1", "--count", "2"])?;
    let server = lab.json(&["status"])?["pid"].as_u64().context("the server's pid")?;
    let daemon = lab.node("node1")?["daemon"]["pid"].as_u64().context("the daemon's pid")?;
    let kill = std::process::Command::new("kill").args(["-KILL", &server.to_string()]).status()?;
    ensure!(kill.success(), "kill of the server");
    lab.down()?;
    for pid in [server, daemon] {
        wait_for("the lab's processes to be gone", PATIENCE, || {
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            Ok(!comm.starts_with("ferrule"))
        })?;
    }
    ensure!(mounts()? == 0, "{} mounts are left", mounts()?);
    Ok(())
}
