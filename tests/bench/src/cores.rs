//! The cores of a measurement, and processor time.

use anyhow::{Context as _, Result};
use nix::{
    sched::{CpuSet, sched_getaffinity, sched_setaffinity},
    sys::resource::{UsageWho, getrusage},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use std::time::{Duration, Instant};

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

/// The processor time of this process.
pub fn processor_time() -> Result<Duration> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).context("read the use of the processor")?;
    let time = |of: nix::sys::time::TimeVal| {
        Duration::from_secs(of.tv_sec().unsigned_abs())
            + Duration::from_micros(of.tv_usec().unsigned_abs())
    };
    Ok(time(usage.user_time()) + time(usage.system_time()))
}

/// The processor time of the calling thread.
pub fn thread_time() -> Result<Duration> {
    let time = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    time.map(Duration::from).context("read the processor time of a thread")
}
