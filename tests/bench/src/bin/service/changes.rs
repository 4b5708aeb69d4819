//! The time from a written EndpointSlice until it is in force.

use crate::{
    api::NODE_NAME,
    cluster::{self, Cluster, slice},
    ours::{Programs, in_node, policies},
    proxy::Proxy,
    replica::Replica,
    site::Site,
};
use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use std::{
    io::ErrorKind,
    path::Path,
    thread,
    time::{Duration, Instant},
};
use tests_bench::{figures::Samples, world};

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
        let in_force = site.client.run(arrived).with_context(|| {
            format!("kube-proxy does not follow a slice; its log:\n{}", proxy.last_lines())
        })?;
        samples.push(in_force - written);
    }
    Ok(samples)
}

/// Connects until a connection arrives at the second port of the server.
fn until_moved(site: &Site, service: u32) -> Result<Instant> {
    let arrivals = site.arrivals()?;
    let until = Instant::now() + LONGEST;
    while Instant::now() < until {
        let connected = Instant::now();
        match site.reach(&arrivals, cluster::frontend(service)) {
            Ok(1) => return Ok(connected),
            // kube-proxy refuses connections to a cluster IP that is not in force.
            Err(error) if !is_refused(&error) => return Err(error),
            _ => {}
        }
        thread::sleep(POLL);
    }
    bail!("no connection arrives at the new backend of Service {service}")
}

fn is_refused(error: &anyhow::Error) -> bool {
    let cause = error.root_cause().downcast_ref::<std::io::Error>();
    cause.is_some_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

/// Longer than the time after which unused rows are removed.
pub(crate) const PAUSE: Duration = Duration::from_millis(25);
/// kube-proxy waits 30 s after rules that it could not write.
const LONGEST: Duration = Duration::from_secs(120);
/// The time between two connections.
const POLL: Duration = Duration::from_micros(500);
const PAUSE_OF_PROXY: Duration = Duration::from_millis(1200);
