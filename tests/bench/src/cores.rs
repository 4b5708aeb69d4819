//! The cores of a measurement.

use anyhow::{Context as _, Result};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    unistd::Pid,
};
use std::time::Instant;

/// The cores on which this process may run.
pub fn cores() -> Result<Vec<usize>> {
    let set = sched_getaffinity(Pid::from_raw(0)).context("read the allowed cores")?;
    Ok((0..CpuSet::count()).filter(|core| set.is_set(*core) == Ok(true)).collect())
}

/// Keeps the calling thread on one core.
pub fn stay_on(core: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(core).with_context(|| format!("select core {core}"))?;
    sched_setaffinity(Pid::from_raw(0), &set).with_context(|| format!("use only core {core}"))
}

/// The mean time of a call in microseconds.
pub fn timed(calls: u32, call: impl Fn() -> Result<()>) -> Result<f64> {
    let started = Instant::now();
    for _ in 0..calls {
        call()?;
    }
    Ok(started.elapsed().as_secs_f64() * 1e6 / f64::from(calls))
}
