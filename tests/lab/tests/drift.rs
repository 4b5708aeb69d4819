//! Drift on a node. The daemon repairs it, and checks report it until then.

use anyhow::{Context as _, Result, ensure};
use std::time::Duration;
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(60);

/// Creates pods on secondary ENIs and returns the address of one of them.
fn node_with_pods(lab: &Lab) -> Result<String> {
    lab.run(&["pod", "add", "node1", "--count", "20"])?;
    lab.run(&["pod", "add", "node2", "--count", "3"])?;
    // ENIs attach in parallel, and the pods may be on another one than device 1.
    wait_for("the table of device 1", PATIENCE, || {
        Ok(lab.on_node("node1", &["ip", "route", "show", "table", "2"])?.contains("default"))
    })?;
    let pods = lab.pods("node1")?;
    let pod = pods.iter().find(|pod| pod["device"].as_u64() > Some(0));
    let address =
        pod.and_then(|pod| pod["address"].as_str()).context("no pod on a secondary ENI")?;
    Ok(address.to_owned())
}

fn reaches_all(lab: &Lab) -> Result<bool> {
    lab.run(&["check", "--tcp", "2"]).map(|_| true)
}

#[test]
fn a_removed_rule_is_reported_while_the_daemon_is_stopped_and_repaired_after() -> Result<()> {
    let name = "a_removed_rule_is_reported_while_the_daemon_is_stopped_and_repaired_after";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-drift", &["--nodes", "2"])?;
    let address = node_with_pods(&lab)?;
    ensure!(reaches_all(&lab)?);
    lab.run(&["daemon", "signal", "node1", "STOP"])?;
    lab.on_node("node1", &["ip", "rule", "del", "priority", "1536", "from", &address])?;
    let output = lab.output(&["check", "--tcp", "0"])?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(!output.status.success(), "the check did not fail");
    ensure!(
        printed.contains("1536") && printed.contains(&address),
        "no rule in the output: {printed}"
    );
    let output = lab.output(&["pod", "check"])?;
    ensure!(!output.status.success(), "CNI CHECK did not fail");
    // Only the daemon knows the ENI's table. CHECK reports that the daemon does not answer.
    let printed = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(printed.contains("code 11"), "CHECK does not report the daemon: {printed}");
    lab.run(&["daemon", "signal", "node1", "CONT"])?;
    wait_for("the rule to be back", PATIENCE, || {
        let rules = lab.on_node("node1", &["ip", "rule", "show", "priority", "1536"])?;
        Ok(rules.contains(&format!("from {address} ")))
    })?;
    ensure!(reaches_all(&lab)?);
    lab.run(&["pod", "check"])?;
    lab.down()
}

#[test]
fn each_kind_of_drift_is_repaired() -> Result<()> {
    let Some(bin) = programs("each_kind_of_drift_is_repaired") else { return Ok(()) };
    let lab = Lab::up(&bin, "t-broken", &["--nodes", "2"])?;
    node_with_pods(&lab)?;
    let breakages: [&[&str]; 7] = [
        &["ip", "rule", "flush", "table", "2"],
        &["ip", "rule", "del", "priority", "1024"],
        &["ip", "route", "flush", "table", "2"],
        &["ip", "link", "set", "eth1", "down"],
        &["ip", "route", "add", "default", "dev", "eth1", "metric", "50"],
        &["ip", "address", "flush", "dev", "eth1"],
        &["sh", "-c", "echo 1 > /proc/sys/net/ipv4/conf/eth0/rp_filter"],
    ];
    for breakage in breakages {
        let what = breakage.join(" ");
        lab.on_node("node1", breakage).with_context(|| what.clone())?;
        wait_for(&format!("the repair of: {what}"), PATIENCE, || {
            let filter =
                lab.on_node("node1", &["cat", "/proc/sys/net/ipv4/conf/eth0/rp_filter"])?;
            ensure!(filter.trim() == "2", "rp_filter is {filter}");
            let main = lab.on_node("node1", &["ip", "route", "show", "default"])?;
            ensure!(!main.contains("eth1"), "{main}");
            reaches_all(&lab)
        })?;
    }
    lab.down()
}

#[test]
fn the_daemon_has_two_capabilities_and_a_read_only_proc_sys() -> Result<()> {
    let name = "the_daemon_has_two_capabilities_and_a_read_only_proc_sys";
    let Some(bin) = programs(name) else { return Ok(()) };
    let lab = Lab::up(&bin, "t-caps", &["--nodes", "1"])?;
    lab.run(&["pod", "add", "node1", "--count", "2"])?;
    let pid = lab.node("node1")?["daemon"]["pid"].as_u64().context("the daemon's pid")?;
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let set = |name: &str| -> Result<u64> {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).context("a set")?;
        Ok(u64::from_str_radix(line.trim_start_matches(':').trim(), 16)?)
    };
    // CAP_NET_ADMIN is bit 12, CAP_NET_RAW bit 13.
    for name in ["CapPrm", "CapEff", "CapBnd"] {
        ensure!(set(name)? == 0b11 << 12, "{name} is {:#x}", set(name)?);
    }
    let mounts = std::fs::read_to_string(format!("/proc/{pid}/mounts"))?;
    let sys = mounts.lines().rfind(|line| line.split(' ').nth(1) == Some("/proc/sys"));
    let options =
        sys.and_then(|line| line.split(' ').nth(3)).context("/proc/sys is not mounted")?;
    ensure!(options.split(',').any(|option| option == "ro"), "/proc/sys is {options}");
    lab.down()
}
