//! A large cluster: the time until its Services are in force, and memory.

use crate::{
    cluster::Cluster,
    ours::{Programs, in_node, memory_without_services},
    proxy::{Proxy, resident},
    site::Site,
};
use anyhow::{Context as _, Result, ensure};
use runtime_process::memory;
use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};
use tests_bench::figures::Samples;

/// The times in which an agent puts all Services into force, and the memory of its maps in bytes. The second number is the
/// memory of the maps that agents without Services do not need.
pub(crate) fn ours(
    site: &Site,
    programs: Programs<'_>,
    cluster: &Cluster,
    rounds: u32,
) -> Result<(Samples, [u64; 2])> {
    let (mut samples, mut memory) = (Samples::default(), 0);
    for round in 0..rounds {
        let pins = programs.pins.join(round.to_string());
        let programs = Programs { pins: &pins, ..programs };
        let changes = cluster.changes()?;
        memory = in_node(site, async || {
            let mut agent = programs.start().await?;
            samples.push(agent.receive(changes).await?);
            Ok(agent.map_memory())
        })?;
        fs::remove_dir_all(&pins).context("remove the maps")?;
    }
    let pins = programs.pins.join("without");
    fs::create_dir_all(&pins).context("create a folder of pins")?;
    let without = memory_without_services(site, programs.object, &pins)?;
    Ok((samples, [memory, memory.saturating_sub(without)]))
}

/// Prints the resident memory of an agent's core with its backend, in MiB.
pub(crate) fn print_memory(site: &Site, programs: Programs<'_>, cluster: &Cluster) -> Result<()> {
    ensure!(memory::limit_arenas(), "the allocator refuses the limit that the agent sets");
    let memory = in_node(site, async || {
        let mut agent = programs.start().await?;
        agent.receive_parts(cluster.parts()).await?;
        agent.rest(REST).await;
        resident("self")
    })?;
    writeln!(std::io::stdout(), "{memory}").context("print the memory")
}

/// The resident memory of an agent in MiB, in a process of its own: this one has measured other clusters.
pub(crate) fn resident_of_child(object: &Path, is_small: bool) -> Result<f64> {
    let mut command = Command::new(std::env::current_exe().context("find the own program")?);
    command.arg("--memory").arg("--object").arg(object).args(is_small.then_some("--small"));
    command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = command.output().context("start the own program")?;
    ensure!(output.status.success(), "the process that measures memory failed");
    String::from_utf8_lossy(&output.stdout).trim().parse().context("read the memory")
}

/// The time until kube-proxy has put all Services into force, from its start, and its resident memory in MiB.
pub(crate) fn theirs(
    program: &Path,
    mode: &str,
    site: &Site,
    cluster: &Cluster,
) -> Result<(Duration, f64)> {
    let started = Instant::now();
    let proxy = Proxy::start(program, mode, site, cluster)?;
    let time = started.elapsed();
    thread::sleep(REST);
    Ok((time, proxy.resident()?))
}

/// The time between the state in force and the measurement of memory.
const REST: Duration = Duration::from_secs(10);
