//! A pod that floods its node's metrics port does not stop the node.

#![expect(clippy::print_stdout, reason = "the cost of the flood is printed, not judged")]

use anyhow::{Context as _, Result, ensure};
use std::{
    fs::File,
    net::{Ipv4Addr, SocketAddrV4},
    time::{Duration, Instant},
};
use tests_lab::{Lab, flood::Flood, programs, streams::namespaces, wait_for};

const ADDS: usize = 30;
const METRICS: u16 = 61_678;
/// Maximum number of connections of the daemon's metrics port.
const MOST: usize = 64;
const PATIENCE: Duration = Duration::from_secs(60);

/// The number of connections that the daemon has accepted. Others wait in the kernel and have no process.
fn connections(lab: &Lab) -> Result<usize> {
    let port = format!("sport = :{METRICS}");
    let list = lab.on_node("node1", &["ss", "-Htnp", "state", "established", &port])?;
    Ok(list.lines().filter(|line| line.contains("ferrule-ipamd")).count())
}

/// The duration of each ADD, the shortest first.
fn adds(lab: &Lab, prefix: &str) -> Result<Vec<Duration>> {
    let mut took = Vec::new();
    for number in 0..ADDS {
        let pod = format!("default/{prefix}-{number}");
        let began = Instant::now();
        lab.run(&["pod", "add", "node1", "--pod", &pod])?;
        took.push(began.elapsed());
    }
    took.sort();
    Ok(took)
}

#[test]
fn a_pod_that_floods_the_metrics_port_stops_no_add() -> Result<()> {
    let Some(bin) = programs("a_pod_that_floods_the_metrics_port_stops_no_add") else {
        return Ok(());
    };
    let target = ["--env", "MINIMUM_IP_TARGET=80", "--env", "WARM_IP_TARGET=1"];
    let lab = Lab::up(&bin, "t-flood", &["--nodes", "0"])?;
    lab.run(&[&["node", "add", "node1", "--type", "m5.4xlarge"], &target[..]].concat())?;
    lab.run(&["pod", "add", "node1", "--pod", "default/hostile"])?;
    let node = lab.node("node1")?;
    let node: Ipv4Addr = node["address"].as_str().context("a node's address")?.parse()?;
    let to = SocketAddrV4::new(node, METRICS);
    let (_, hostile): (Ipv4Addr, File) =
        namespaces(&lab, "node1")?.into_iter().next().context("the pod")?;
    let quiet = adds(&lab, "quiet")?;

    let flood = Flood::start(&hostile, to)?;
    wait_for("the flood", PATIENCE, || Ok(flood.opened() > 200))?;
    let under_flood = adds(&lab, "flood")?;
    let held = connections(&lab)?;
    ensure!((1..=MOST).contains(&held), "the daemon holds {held} connections");
    ensure!(lab.is("node1", "live")?, "the daemon is not live");
    let scraped = lab.metric("node1", "awscni_assigned_ip_addresses", &[])?;
    ensure!(scraped.is_some_and(|pods| pods >= 60.0), "{scraped:?} addresses are assigned");
    ensure!(flood.runs(), "the flood has ended");
    println!(
        "{} connections, {} pages; median ADD {:?}, {:?} without the flood",
        flood.opened(),
        flood.pages(),
        under_flood[ADDS / 2],
        quiet[ADDS / 2],
    );
    flood.end()?;
    lab.down()
}
