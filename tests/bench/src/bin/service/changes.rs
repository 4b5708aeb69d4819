//! The time from a written EndpointSlice until it is in force.

use crate::{
    api::NODE_NAME,
    cluster::{self, Cluster, slice},
    ours::{Programs, in_node, policies},
    proxy::Proxy,
    replica::Replica,
    site::{PATIENCE, Site},
};
use anyhow::{Context as _, Result, bail, ensure};
use control_wire::proto::Change;
use serde_json::Value;
use std::{
    net::TcpStream,
    path::Path,
    thread,
    time::{Duration, Instant},
};
use tests_bench::{cores::processor_time, figures::Samples, world};

/// The slice of a Service whose backend moves to the second port of the server, with the Service's number. Each round has
/// another Service.
fn moved(cluster: &Cluster, round: u32) -> Result<(u32, Value)> {
    ensure!(round < cluster.services, "more rounds than Services");
    // The stride shares no factor with the numbers of Services.
    let service = round * 97 % cluster.services;
    Ok((service, slice(service, 0, &[world::pod_address(0)], 1)))
}

/// From the write in the hub of a replica. An agent follows its stream.
pub(crate) fn ours(
    site: &Site,
    programs: Programs<'_>,
    cluster: &Cluster,
    rounds: u32,
) -> Result<Samples> {
    let replica = site.node.run(|| Replica::start(cluster, policies()))?;
    in_node(site, async || {
        let mut agent = programs.serve().await?;
        let mut stream = agent.follow(replica.at, &replica.trust, NODE_NAME).await?;
        agent.receive_from(&mut stream).await?;
        let mut samples = Samples::default();
        for round in 0..rounds {
            agent.rest(PAUSE).await;
            let (_, slice) = moved(cluster, round)?;
            let written = Instant::now();
            replica.put_slice(&slice)?;
            agent.receive_from(&mut stream).await?;
            samples.push(written.elapsed());
        }
        Ok(samples)
    })
}

/// From the event on the watch of kube-proxy until a connection arrives at the new backend.
pub(crate) fn theirs(
    program: &Path,
    mode: &str,
    site: &Site,
    cluster: &Cluster,
    rounds: u32,
) -> Result<Samples> {
    let proxy = Proxy::start(program, mode, site, cluster)?;
    let mut samples = Samples::default();
    for round in 0..rounds {
        // kube-proxy writes rules at most once a second.
        thread::sleep(PAUSE_OF_PROXY);
        let (service, slice) = moved(cluster, round)?;
        let written = Instant::now();
        proxy.api.put_slice(slice)?;
        let arrived = || until_moved(site, service);
        let in_force = site.client.run(arrived).context("kube-proxy does not follow a slice")?;
        samples.push(in_force - written);
    }
    Ok(samples)
}

/// Connects until a connection arrives at the second port of the server.
fn until_moved(site: &Site, service: u32) -> Result<Instant> {
    let arrivals = site.arrivals()?;
    let until = Instant::now() + PATIENCE * 10;
    let second = site.listeners.get(1).context("the server has one port")?;
    while Instant::now() < until {
        let to = cluster::frontend(service);
        let client = TcpStream::connect_timeout(&to, PATIENCE).context("connect")?;
        let (connected, own) = (Instant::now(), client.local_addr().context("read the port")?);
        // Earlier connections may wait to be accepted.
        let at = loop {
            let at = arrivals.next(PATIENCE)?.context("a connection does not arrive")?;
            if at.accept().context("accept a connection")?.1 == own {
                break at;
            }
        };
        if std::ptr::eq(at, second) {
            return Ok(connected);
        }
    }
    bail!("no connection arrives at the new backend of Service {service}")
}

/// The share of a core for 1,000 changed endpoints in a second, in percent. Changes of 100 ms arrive together, as a replica
/// gathers them.
pub(crate) fn share_of_core(
    site: &Site,
    programs: Programs<'_>,
    cluster: &Cluster,
    seconds: u32,
) -> Result<f64> {
    let generations: Vec<Vec<Change>> = (0..seconds * 10)
        .map(|generation| {
            let services = (0..100).map(|change| (generation * 100 + change) % cluster.services);
            let port = u16::from((generation / (cluster.services / 100)).is_multiple_of(2));
            let slices = services.map(|service| slice(service, 0, &[world::pod_address(0)], port));
            slices.map(|slice| cluster::read_slice(&slice)).collect()
        })
        .collect::<Result<_>>()?;
    in_node(site, async || {
        let mut agent = programs.start_with(cluster.changes()?).await?;
        agent.rest(PAUSE).await;
        let begun = (Instant::now(), processor_time()?);
        for (number, generation) in (0..).zip(generations) {
            let due = begun.0 + Duration::from_millis(100) * number;
            agent.rest(due.saturating_duration_since(Instant::now())).await;
            agent.receive(generation).await?;
        }
        let ran = (processor_time()? - begun.1).as_secs_f64();
        Ok(ran / begun.0.elapsed().as_secs_f64() * 100.0)
    })
}

/// Longer than the time after which unused rows are removed.
const PAUSE: Duration = Duration::from_millis(25);
const PAUSE_OF_PROXY: Duration = Duration::from_millis(1200);
