//! The processes of a run.
//!
//! A process belongs to the run if it descends from it, or if its environment carries the run's tag. Servers of tests
//! may outlive the test program that was their parent.

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    thread::sleep,
    time::{Duration, Instant},
};

const TAG: &str = "FERRULE_XTASK_RUN";

/// The variable that marks a process of this run, and all that it starts.
pub(crate) fn tag() -> [(&'static str, String); 1] {
    [(TAG, std::process::id().to_string())]
}

/// The processes of a run, except itself.
pub(crate) fn ours(run: u32) -> BTreeSet<u32> {
    let (mut parents, mut found) = (BTreeMap::new(), BTreeSet::new());
    let tag = format!("{TAG}={run}");
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let read = |name: &str| fs::read(entry.path().join(name)).unwrap_or_default();
        if let Some(parent) = parent_of(&String::from_utf8_lossy(&read("stat"))) {
            parents.insert(pid, parent);
        }
        if read("environ").split(|byte| *byte == 0).any(|variable| variable == tag.as_bytes()) {
            found.insert(pid);
        }
    }
    for pid in parents.keys() {
        let mut ancestors = std::iter::successors(Some(*pid), |pid| parents.get(pid).copied());
        // The bound ends a walk that a reused process id has led in a circle.
        if ancestors.by_ref().take(64).skip(1).any(|ancestor| ancestor == run) {
            found.insert(*pid);
        }
    }
    found.remove(&run);
    found
}

/// The parent in `/proc/PID/stat`; none of a zombie, which has exited already.
fn parent_of(stat: &str) -> Option<u32> {
    // The name in parentheses may hold anything.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let state = fields.next()?;
    (state != "Z").then(|| fields.next()?.parse().ok()).flatten()
}

/// Stops processes: SIGTERM first, SIGKILL for those that are left after a while.
pub(crate) fn stop_all(processes: &BTreeSet<u32>) {
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        for process in processes {
            if let Ok(pid) = i32::try_from(*process) {
                // A process that is gone is as wanted.
                let _ = kill(Pid::from_raw(pid), signal);
            }
        }
        let patience = Instant::now() + PATIENCE;
        while Instant::now() < patience && processes.iter().any(|pid| is_alive(*pid)) {
            sleep(Duration::from_millis(50));
        }
    }
}

const PATIENCE: Duration = Duration::from_secs(5);

fn is_alive(pid: u32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| parent_of(&stat).is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_process_whose_parent_is_gone_is_found_by_its_tag_and_stopped() {
        // A run's id that no process has, so that this test stops nothing else.
        let run = u32::MAX;
        let mut parent = Command::new("sh")
            .args(["-c", "sleep 600 &"])
            .env(TAG, run.to_string())
            .stdin(Stdio::null())
            .spawn()
            .expect("a shell");
        parent.wait().expect("the shell's end");
        let found = ours(run);
        assert_eq!(found.len(), 1, "{found:?}");
        stop_all(&found);
        assert_eq!(ours(run), BTreeSet::new());
    }

    #[test]
    fn descendants_are_found_and_stopped() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 600; true"])
            .stdin(Stdio::null())
            .spawn()
            .expect("a shell");
        let found = loop {
            let found = ours(shell.id());
            if !found.is_empty() {
                break found;
            }
            sleep(Duration::from_millis(10));
        };
        assert!(found.iter().all(|pid| is_alive(*pid)));
        stop_all(&found);
        shell.wait().expect("the shell's end");
        assert!(!found.iter().any(|pid| is_alive(*pid)));
    }

    #[test]
    fn a_name_with_parentheses_does_not_hide_the_parent() {
        assert_eq!(parent_of("7 (a) b (c) S 42 7 7 0"), Some(42));
        assert_eq!(parent_of("7 (gone) Z 42 7 7 0"), None);
    }
}
