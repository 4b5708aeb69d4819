//! Processes of a lab, recorded by pid and start time, so that the lab does not signal unrelated processes.

use crate::{FabricError, namespace, state::State};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

/// A process. The start time distinguishes it from a later process with the same pid.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Recorded {
    /// The process id.
    pub pid: i32,
    /// Clock ticks from boot to its start (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
    /// Description of the process, for people.
    pub what: String,
}

impl Recorded {
    /// Notes a running process; `None` when there is none.
    pub fn of(pid: i32, what: &str) -> Option<Self> {
        let start_time = Stat::of(pid)?.start_time;
        Some(Self { pid, start_time, what: what.to_owned() })
    }

    /// True if it still runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        Stat::of(self.pid).is_some_and(|stat| stat.start_time == self.start_time && !stat.is_dead)
    }

    fn signal(&self, signal: Signal) {
        // The process can end between the check and the signal. Only a reuse of its pid would be a danger, and the
        // start time was compared just now.
        if self.is_alive() {
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }
}

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

struct Stat {
    start_time: u64,
    is_dead: bool,
}

impl Stat {
    fn of(pid: i32) -> Option<Self> {
        Self::parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// The command's name, field 2, may hold spaces and parentheses: count from its end.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.rsplit_once(')')?.1.split_whitespace();
        let is_dead = matches!(fields.next()?, "Z" | "X");
        Some(Self { start_time: fields.nth(18)?.parse().ok()?, is_dead })
    }
}

const POLL: Duration = Duration::from_millis(2);
const KILL_PATIENCE: Duration = Duration::from_secs(10);
const KILL_ROUNDS: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_distinguished_from_a_later_one_with_its_pid() {
        let me = Recorded::of(Pid::this().as_raw(), "this test").expect("this process runs");
        assert!(me.is_alive());
        assert!(!Recorded { start_time: me.start_time + 1, ..me }.is_alive());
    }

    #[test]
    fn a_command_named_like_a_status_line_does_not_confuse() {
        let line = "7 (a) S (b) Z 1 7 7 0 -1 4 0 0 0 0 1 2 0 0 20 0 1 0 4711 9 9";
        let stat = Stat::parse(line).expect("a status line");
        assert_eq!((stat.start_time, stat.is_dead), (4711, true));
    }
}
