//! A pod that floods its node's metrics port does not stop the node.

#![expect(clippy::print_stdout, reason = "the cost of the flood is printed, not judged")]

use anyhow::{Context as _, Result, ensure};
use std::{
    fs::File,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddrV4, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use tests_lab::{
    Lab, programs,
    streams::{inside, namespaces},
    wait_for,
};

/// Idle connections that the pod tries to keep.
const IDLE: usize = 2_000;
/// Threads of the pod that send requests without a pause.
const LOOPS: usize = 32;
const ADDS: usize = 30;
const METRICS: u16 = 61_678;
/// Maximum number of connections of the daemon's metrics port.
const MOST: usize = 64;
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends one request and returns the answer.
fn request(to: SocketAddrV4) -> Result<String> {
    let mut stream = TcpStream::connect_timeout(&to.into(), Duration::from_secs(5))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: node\r\n\r\n")?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}

/// Keeps as many idle connections as the node accepts, and opens new ones for those that it ends.
fn idle(to: SocketAddrV4, stop: &AtomicBool, opened: &AtomicU64) -> Result<()> {
    let mut open: Vec<TcpStream> = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        if open.len() >= IDLE {
            open.drain(..IDLE / 4);
        }
        if let Ok(stream) = TcpStream::connect_timeout(&to.into(), Duration::from_millis(200)) {
            opened.fetch_add(1, Ordering::Relaxed);
            open.push(stream);
        }
    }
    Ok(())
}

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

    let (stop, opened, pages) =
        (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let mut flood = Vec::new();
    let (ends, count) = (stop.clone(), opened.clone());
    flood.push(inside(&hostile, move || idle(to, &ends, &count))?);
    for _ in 0..LOOPS {
        let (ends, count) = (stop.clone(), pages.clone());
        flood.push(inside(&hostile, move || {
            while !ends.load(Ordering::Relaxed) {
                // The node closes connections above the share of the pod.
                if request(to).is_ok_and(|page| page.contains("awscni_")) {
                    count.fetch_add(1, Ordering::Relaxed);
                }
            }
            Ok(())
        })?);
    }
    wait_for("the flood", PATIENCE, || Ok(opened.load(Ordering::Relaxed) > 200))?;
    let under_flood = adds(&lab, "flood")?;
    let held = connections(&lab)?;
    ensure!((1..=MOST).contains(&held), "the daemon holds {held} connections");
    ensure!(lab.is("node1", "live")?, "the daemon is not live");
    let scraped = lab.metric("node1", "awscni_assigned_ip_addresses", &[])?;
    ensure!(scraped.is_some_and(|pods| pods >= 60.0), "{scraped:?} addresses are assigned");
    ensure!(flood.iter().all(|thread| !thread.is_finished()), "the flood has ended");
    stop.store(true, Ordering::Relaxed);
    for thread in flood {
        thread.join().expect("no panic")?;
    }
    println!(
        "{} connections, {} pages; median ADD {:?}, {:?} without the flood",
        opened.load(Ordering::Relaxed),
        pages.load(Ordering::Relaxed),
        under_flood[ADDS / 2],
        quiet[ADDS / 2],
    );
    lab.down()
}
