//! A node on which 1,000 endpoints change in a second, and its connections.

use crate::{
    changes::PAUSE,
    cluster::{self, Cluster, slice},
    ours::{Programs, in_node},
    site::Site,
};
use anyhow::{Context as _, Result, anyhow};
use control_wire::proto::Change;
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use tests_bench::{
    cores::{processor_time, thread_time},
    world,
};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Churn {
    /// The agent's use of one core, in percent.
    pub(crate) core: f64,
    pub(crate) connections: Connections,
}

/// The connections of a client.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Connections {
    pub(crate) opened: u64,
    /// Those to a backend that was removed from the Service more than [`GRACE`] before.
    pub(crate) to_removed: u64,
    /// Attempts without a connection.
    pub(crate) failed: u64,
}

/// Each Service has one backend, which moves from one port of the server to the other. Changes of 100 ms arrive together, as a
/// replica gathers them.
pub(crate) fn under_changes(
    site: &Site,
    programs: Programs<'_>,
    cluster: &Cluster,
    seconds: u32,
) -> Result<Churn> {
    let plan = Plan { services: cluster.services };
    let generations: Vec<Vec<Change>> =
        (0..seconds * A_SECOND).map(|number| plan.changes(number)).collect::<Result<_>>()?;
    let last: Vec<AtomicU64> = (0..cluster.services).map(|_| AtomicU64::new(0)).collect();
    let (begun, is_done) = (&OnceLock::new(), &AtomicBool::new(false));
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            site.client.enter()?;
            while begun.get().is_none() && !is_done.load(Ordering::Relaxed) {
                thread::sleep(REST);
            }
            let before = thread_time()?;
            let connections = connect(site, plan, &last, begun, is_done)?;
            Ok::<_, anyhow::Error>((connections, thread_time()? - before))
        });
        let driven = in_node(site, async || {
            let mut agent = programs.start_with(cluster.changes()?).await?;
            agent.rest(PAUSE).await;
            let before = processor_time()?;
            let start = *begun.get_or_init(Instant::now);
            for (number, generation) in (0..).zip(generations) {
                let due = start + GATHER * number;
                agent.rest(due.saturating_duration_since(Instant::now())).await;
                for service in plan.changed(number) {
                    last[service as usize].store(plan.written(number), Ordering::Relaxed);
                }
                agent.receive(generation).await?;
            }
            Ok((processor_time()? - before, start.elapsed()))
        });
        is_done.store(true, Ordering::Relaxed);
        let (connections, of_client) =
            client.join().map_err(|_| anyhow!("a thread panicked"))??;
        let (ran, time) = driven?;
        let core = ran.saturating_sub(of_client).as_secs_f64() / time.as_secs_f64() * 100.0;
        Ok(Churn { core, connections })
    })
}

/// The changes by the number of their generation.
#[derive(Clone, Copy)]
struct Plan {
    services: u32,
}

impl Plan {
    /// The Services that change.
    fn changed(self, generation: u32) -> impl Iterator<Item = u32> {
        (0..CHANGES).map(move |change| (generation * CHANGES + change) % self.services)
    }

    /// The port at which the backends are afterwards.
    fn port(self, generation: u32) -> u16 {
        u16::from((generation / (self.services / CHANGES)).is_multiple_of(2))
    }

    fn changes(self, generation: u32) -> Result<Vec<Change>> {
        let port = self.port(generation);
        let slices =
            self.changed(generation).map(|of| slice(of, 0, &[world::pod_address(0)], port));
        slices.map(|slice| cluster::read_slice(&slice)).collect()
    }

    /// The number that [`Last`] reads.
    fn written(self, generation: u32) -> u64 {
        u64::from(generation) << 1 | u64::from(self.port(generation))
    }
}

/// The last change of a Service.
struct Last {
    /// The start of the 100 ms in which it was written.
    at: Duration,
    /// The listener of its backend.
    port: usize,
}

impl Last {
    /// `None` for a Service that has not changed.
    fn read(number: u64) -> Option<Self> {
        let generation = u32::try_from(number >> 1).ok()?;
        let at = (GATHER * generation).checked_sub(GATHER)?;
        Some(Self { at, port: usize::from(number & 1 == 1) })
    }
}

/// Connects to Services whose backend was removed a little more than [`GRACE`] ago, one after the other.
fn connect(
    site: &Site,
    plan: Plan,
    last: &[AtomicU64],
    begun: &OnceLock<Instant>,
    is_done: &AtomicBool,
) -> Result<Connections> {
    let arrivals = site.arrivals()?;
    let mut connections = Connections::default();
    for round in 0_usize.. {
        thread::sleep(REST);
        if is_done.load(Ordering::Relaxed) {
            break;
        }
        let Some(passed) = begun.get().and_then(|begun| begun.elapsed().checked_sub(GRACE)) else {
            continue;
        };
        // The generation after it was written from then on.
        let generation = u32::try_from(passed.as_millis() / GATHER.as_millis())? + 1;
        let service = plan.changed(generation).nth(round % CHANGES as usize);
        let service = service.context("no Service changes")?;
        let number = || last[service as usize].load(Ordering::Relaxed);
        let before = number();
        let port = site.reach(&arrivals, cluster::frontend(service));
        let Ok(port) = port else {
            connections.failed += 1;
            continue;
        };
        connections.opened += 1;
        // A change meanwhile allows both backends.
        let last = Last::read(before).filter(|_| number() == before);
        let is_to_removed = |last: Last| last.at < passed && port != last.port;
        connections.to_removed += u64::from(last.is_some_and(is_to_removed));
    }
    Ok(connections)
}

/// A removed backend may receive connections for this time.
const GRACE: Duration = Duration::from_secs(1);
/// The time of which the changes arrive together.
const GATHER: Duration = Duration::from_millis(100);
/// Generations in a second.
const A_SECOND: u32 = 10;
/// The changes of a generation.
const CHANGES: u32 = 100;
/// The time between two connections.
const REST: Duration = Duration::from_millis(1);
