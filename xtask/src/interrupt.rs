//! SIGINT and SIGTERM: every process and lab that this run started is gone before it exits.
//!
//! A process belongs to the run if it descends from it, or if its environment carries the run's tag. Servers of tests
//! may outlive the test program that was their parent.

use crate::{binaries::Binaries, say};
use anyhow::{Context as _, Result};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::{Mutex, Once, PoisonError},
    thread::sleep,
    time::{Duration, Instant},
};

/// Labs that must not outlive this process: the tool, and the folder with one lab or several.
static LABS: Mutex<Vec<Labs>> = Mutex::new(Vec::new());

#[derive(Clone, PartialEq, Eq)]
struct Labs {
    tool: PathBuf,
    folder: PathBuf,
    name: Option<String>,
}

/// Removes labs when it is dropped or when the process is interrupted.
pub(crate) struct Guard(Labs);

impl Guard {
    /// Guards one lab in the usual folder. Its creator removes it in all other cases.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
    pub(crate) fn lab(programs: &Binaries, name: &str) -> Result<Self> {
        let folder =
            std::env::var_os("FERRULE_LAB_DIR").unwrap_or_else(|| "/run/ferrule-lab".into());
        Self::watch(Labs {
            tool: programs.lab(),
            folder: folder.into(),
            name: Some(name.to_owned()),
        })
    }

    /// Guards all labs that other programs create in this folder.
    ///
    /// # Errors
    /// If the signal handler cannot be installed.
    pub(crate) fn folder(programs: &Binaries, folder: &Path) -> Result<Self> {
        Self::watch(Labs { tool: programs.lab(), folder: folder.to_owned(), name: None })
    }

    fn watch(labs: Labs) -> Result<Self> {
        install()?;
        lock().push(labs.clone());
        Ok(Self(labs))
    }

    /// Keeps the guarded labs.
    pub(crate) fn release(self) {
        lock().retain(|labs| *labs != self.0);
    }
}

/// Handles SIGINT, SIGTERM and SIGHUP from now on; further calls change nothing.
///
/// # Errors
/// When the handler cannot be installed.
pub(crate) fn install() -> Result<()> {
    static HANDLER: Once = Once::new();
    let mut installed = Ok(());
    HANDLER.call_once(|| installed = ctrlc::set_handler(interrupted));
    installed.context("install the handler of SIGINT and SIGTERM")
}

const TAG: &str = "FERRULE_XTASK_RUN";

/// The variable that marks a process of this run, and all that it starts.
pub(crate) fn tag() -> [(&'static str, String); 1] {
    [(TAG, std::process::id().to_string())]
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut labs = lock();
        if let Some(at) = labs.iter().position(|labs| *labs == self.0) {
            let labs = labs.swap_remove(at);
            if labs.name.is_none() {
                take_down(&labs);
            }
        }
    }
}

fn lock() -> std::sync::MutexGuard<'static, Vec<Labs>> {
    LABS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn interrupted() {
    say::step("interrupted: stopping every process of this run");
    stop_all(&ours(std::process::id()));
    for labs in lock().iter() {
        take_down(labs);
    }
    // A lab's servers stop with their lab; a process that is left is stopped here.
    stop_all(&ours(std::process::id()));
    std::process::exit(130);
}

/// The processes of a run, except itself.
fn ours(run: u32) -> BTreeSet<u32> {
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
fn stop_all(processes: &BTreeSet<u32>) {
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

fn take_down(labs: &Labs) {
    let names: Vec<String> = match &labs.name {
        Some(name) => vec![name.clone()],
        None => {
            let found = std::fs::read_dir(&labs.folder).into_iter().flatten().flatten();
            found.filter_map(|entry| entry.file_name().into_string().ok()).collect()
        }
    };
    for name in names {
        let down = Command::new(&labs.tool)
            .args(["--name", &name, "down"])
            .env("FERRULE_LAB_DIR", &labs.folder)
            .status();
        if !down.is_ok_and(|status| status.success()) {
            let (tool, folder) = (labs.tool.display(), labs.folder.display());
            say::fail(&format!(
                "lab {name} is left; run: FERRULE_LAB_DIR={folder} {tool} --name {name} down"
            ));
        }
    }
    if labs.name.is_none() {
        // The remaining files were reported above.
        let _ = std::fs::remove_dir(&labs.folder);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Stdio;

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
