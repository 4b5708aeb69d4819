//! Processes of a lab, recorded by pid and start time, so that the lab does not signal unrelated processes.

mod recorded;

pub use recorded::Recorded;

use crate::{FabricError, namespace, state::State};
use nix::{sys::signal::Signal, unistd::Pid};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// Notes a process in the lab's state, so that [`crate::Fabric::remove`] ends it.
///
/// # Errors
/// When the file cannot be written.
pub fn record(state_dir: &Path, process: &Recorded) -> Result<(), FabricError> {
    let state = State::at(state_dir);
    let mut all = recorded(state_dir)?;
    if !all.contains(process) {
        all.push(process.clone());
    }
    state.write_processes(&all)
}

/// The noted processes that still run.
///
/// # Errors
/// When the state cannot be read.
pub fn recorded(state_dir: &Path) -> Result<Vec<Recorded>, FabricError> {
    Ok(State::at(state_dir).processes()?.into_iter().filter(Recorded::is_alive).collect())
}

/// Ends processes: SIGTERM, then SIGKILL after `grace`. Never touches the calling process.
///
/// # Errors
/// Names those that outlived SIGKILL.
pub fn end(processes: &[Recorded], grace: Duration) -> Result<(), FabricError> {
    let others = || processes.iter().filter(|process| !is_self(process.pid));
    if !grace.is_zero() {
        others().for_each(|process| process.signal(Signal::SIGTERM));
        wait_for_end(processes, grace);
    }
    others().for_each(|process| process.signal(Signal::SIGKILL));
    wait_for_end(processes, KILL_PATIENCE);
    let survivors: Vec<i32> =
        others().filter(|process| process.is_alive()).map(|process| process.pid).collect();
    if survivors.is_empty() { Ok(()) } else { Err(FabricError::Survivors(survivors)) }
}

/// The processes whose network, mount or UTS namespace is one of these, by inode.
pub(crate) fn in_namespaces(inodes: &BTreeSet<u64>) -> Vec<Recorded> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let pids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| !is_self(*pid) && namespaces_of(*pid).any(|ns| inodes.contains(&ns)))
        .filter_map(|pid| Recorded::of(pid, "in a namespace of the lab"))
        .collect()
}

/// Kills whatever runs in these namespaces, and what it starts meanwhile.
pub(crate) fn kill_in_namespaces(inodes: &BTreeSet<u64>) -> Result<usize, FabricError> {
    let mut killed = 0;
    // A process may fork between the look and the signal; each round halves that chance at least.
    for _ in 0..KILL_ROUNDS {
        let found = in_namespaces(inodes);
        if found.is_empty() {
            return Ok(killed);
        }
        killed += found.len();
        end(&found, Duration::ZERO)?;
    }
    Err(FabricError::Survivors(in_namespaces(inodes).iter().map(|process| process.pid).collect()))
}

/// The inodes of pinned namespaces.
pub(crate) fn inodes<'a>(pins: impl IntoIterator<Item = &'a PathBuf>) -> BTreeSet<u64> {
    pins.into_iter().filter_map(|pin| namespace::inode(pin)).collect()
}

fn namespaces_of(pid: i32) -> impl Iterator<Item = u64> {
    ["net", "mnt", "uts"].into_iter().filter_map(move |kind| {
        let link = fs::read_link(format!("/proc/{pid}/ns/{kind}")).ok()?;
        let text = link.to_str()?;
        text.split_once('[')?.1.strip_suffix(']')?.parse().ok()
    })
}

fn is_self(pid: i32) -> bool {
    Pid::from_raw(pid) == Pid::this()
}

fn wait_for_end(processes: &[Recorded], patience: Duration) {
    let begun = Instant::now();
    while processes.iter().any(|p| !is_self(p.pid) && p.is_alive()) && begun.elapsed() < patience {
        thread::sleep(POLL);
    }
}

const POLL: Duration = Duration::from_millis(2);
const KILL_PATIENCE: Duration = Duration::from_secs(10);
const KILL_ROUNDS: usize = 8;
