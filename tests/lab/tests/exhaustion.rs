//! Two nodes in one small subnet. Each reports the full subnet, and both recover.

use anyhow::{Context as _, Result, ensure};
use std::time::Duration;
use tests_lab::{Lab, programs, wait_for};

const PATIENCE: Duration = Duration::from_secs(300);

#[test]
fn two_nodes_that_exhaust_a_subnet_report_it_and_recover() -> Result<()> {
    let Some(bin) = programs("two_nodes_that_exhaust_a_subnet_report_it_and_recover") else {
        return Ok(());
    };
    let subnets = ["--subnet", "10.0.0.0/24", "--subnet", "10.0.1.0/24"];
    let lab = Lab::up(&bin, "t-full", &subnets)?;
    for _ in ["node1", "node2"] {
        let settings = ["WARM_IP_TARGET=1", "IP_COOLDOWN_PERIOD=5", "FERRULE_ADD_WAIT=10"];
        let node = ["node", "add", "--subnet", "0", "--type", "m5.4xlarge"];
        let words = node.into_iter().chain(settings.into_iter().flat_map(|of| ["--env", of]));
        lab.run(&words.collect::<Vec<_>>())?;
    }
    // The 251 addresses of the subnet suffice for 200 pods, two primary addresses and those of further ENIs.
    for node in ["node1", "node2"] {
        lab.run(&["pod", "add", node, "--count", "100"])?;
    }
    let more = lab.output(&["pod", "add", "node1", "--prefix", "more-", "--count", "60"])?;
    ensure!(!more.status.success(), "a subnet of 251 addresses served more pods than that");
    let printed =
        String::from_utf8_lossy(&more.stdout).into_owned() + &String::from_utf8_lossy(&more.stderr);
    let subnet = lab.json(&["status"])?["subnets"][0]["id"]
        .as_str()
        .context("a subnet without an ID")?
        .to_owned();
    ensure!(
        printed.contains(&subnet) && printed.contains("code 100"),
        "the plugin printed: {printed}"
    );
    let logs = lab.run(&["logs", "node1", "--lines", "5000"])?;
    ensure!(logs.contains("subnet_exhausted") && logs.contains(&subnet), "no line in the log");
    let refused = lab.metric("node1", "ferrule_notices_total", &["subnet_exhausted"])?;
    ensure!(refused.is_some_and(|count| count > 0.0), "the metric is 0");

    // The other node's pods are deleted, and its free addresses return to the subnet.
    lab.run(&["pod", "delete", "--node", "node2"])?;
    // The node returns them in rounds. An ADD between two rounds fails, and the kubelet would repeat it.
    for pod in (0..20).map(|number| format!("late-{number}")) {
        wait_for("node1 to find addresses again", PATIENCE, || {
            lab.run(&["pod", "add", "node1", "--pod", &pod]).map(|_| true)
        })?;
    }
    lab.run(&["check", "--tcp", "2"])?;
    lab.down()
}
