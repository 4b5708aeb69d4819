//! All agents in one process. Each agent follows the replica, keeps a snapshot, and reconnects when its
//! stream ends.

use anyhow::{Context as _, Result, bail};
use control_rpc::{Follow, StreamEvent, Trust};
use control_wire::{NodeSnapshot, Progress, proto::Hello};
use prost::Message as _;
use std::{
    io::{BufRead as _, Write as _},
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// Time limit until all agents hold all objects.
const PATIENCE: Duration = Duration::from_secs(300);

/// The state that one agent holds.
#[derive(Default)]
struct Agent {
    /// The first byte of the replica's epoch.
    epoch: AtomicU64,
    generation: AtomicU64,
    /// Time at which the agent received that generation, in nanoseconds of the monotonic clock.
    since: AtomicU64,
    bytes: AtomicU64,
}

pub(crate) fn run(at: SocketAddr, authority: &Path, number: usize) -> Result<()> {
    let pem = std::fs::read(authority).context("read the authority's certificate")?;
    let trust = Trust::new(&pem, tests_bench::authority::NAME)?;
    let runtime = tokio::runtime::Runtime::new().context("start tokio")?;
    let agents: Vec<Arc<Agent>> = (0..number).map(|_| Arc::default()).collect();
    for (which, agent) in agents.iter().enumerate() {
        let (trust, agent) = (trust.clone(), agent.clone());
        runtime.spawn(async move { follow(at, &trust, &format!("n{which}"), &agent).await });
    }
    let mut epoch = 1;
    for line in std::io::stdin().lock().lines() {
        let line = line.context("read a command")?;
        let (what, generation) = line.split_once(' ').context("a command has two words")?;
        let generation: u64 = generation.parse().context("the generation is not a number")?;
        if what == "restarted" {
            epoch += 1;
        }
        let holds = |agent: &Arc<Agent>| {
            agent.epoch.load(Ordering::Acquire) == epoch
                && agent.generation.load(Ordering::Acquire) >= generation
        };
        let until = Instant::now() + PATIENCE;
        while !agents.iter().all(holds) {
            if Instant::now() > until {
                let missing = agents.iter().filter(|agent| !holds(agent)).count();
                bail!("{missing} of {number} agents lack generation {generation}");
            }
            std::thread::sleep(Duration::from_micros(500));
        }
        let since = |agent: &Arc<Agent>| agent.since.load(Ordering::Acquire);
        let last = agents.iter().map(since).max().unwrap_or_default();
        let bytes: u64 = agents.iter().map(|agent| agent.bytes.swap(0, Ordering::AcqRel)).sum();
        writeln!(std::io::stdout(), "{last} {bytes}").context("print an answer")?;
    }
    Ok(())
}

async fn follow(at: SocketAddr, trust: &Trust, node: &str, agent: &Agent) {
    let mut snapshot = NodeSnapshot::default();
    loop {
        let follow = Follow::begin(at, trust, node, hello(&snapshot)).await;
        if let Ok(mut follow) = follow {
            snapshot.start_stream(&follow.welcome().epoch);
            agent.generation.store(0, Ordering::Release);
            agent.epoch.store(
                snapshot.epoch.first().copied().unwrap_or_default().into(),
                Ordering::Release,
            );
            while let Ok(event) = follow.receive().await {
                match event {
                    StreamEvent::Part(part) => {
                        agent.bytes.fetch_add(part.encoded_len() as u64, Ordering::AcqRel);
                        match snapshot.receive(part) {
                            Ok(Progress::Applied(_)) => {
                                agent.since.store(crate::now(), Ordering::Release);
                                agent.generation.store(snapshot.generation, Ordering::Release);
                                if follow.acknowledge(snapshot.generation).await.is_err() {
                                    break;
                                }
                            }
                            Ok(Progress::Incomplete) => {}
                            Err(_) => break,
                        }
                    }
                    StreamEvent::Bookmark(bookmark) => {
                        agent.bytes.fetch_add(bookmark.encoded_len() as u64, Ordering::AcqRel);
                        snapshot.apply_bookmark(&bookmark);
                    }
                }
            }
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn hello(snapshot: &NodeSnapshot) -> Hello {
    snapshot.hello(false, false)
}
