//! Processes that belong to a lab: noted by pid and start time, so that no stranger is hit.

use crate::FabricError;
use serde::{Deserialize, Serialize};
use std::{path::Path, time::Duration};

/// A process, told from a later one of the same pid by its start time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Recorded {
    /// The process id.
    pub pid: i32,
    /// Clock ticks after boot when it began (field 22 of `/proc/PID/stat`).
    pub start_time: u64,
    /// What it is, for people.
    pub what: String,
}

impl Recorded {
    /// Notes a running process; `None` when there is none.
    pub fn of(pid: i32, what: &str) -> Option<Self> {
        todo!()
    }

    /// Whether it still runs (a zombie does not).
    pub fn is_alive(&self) -> bool {
        todo!()
    }
}

/// Notes a process in the lab's state, so that [`crate::Fabric::remove`] ends it.
///
/// # Errors
/// When the file cannot be written.
pub fn record(state_dir: &Path, process: &Recorded) -> Result<(), FabricError> {
    todo!()
}

/// The noted processes that still run.
///
/// # Errors
/// When the state cannot be read.
pub fn recorded(state_dir: &Path) -> Result<Vec<Recorded>, FabricError> {
    todo!()
}

/// Ends processes: SIGTERM, then SIGKILL after `grace`. Never touches the calling process.
///
/// # Errors
/// Names those that outlived SIGKILL.
pub fn end(processes: &[Recorded], grace: Duration) -> Result<(), FabricError> {
    todo!()
}
