//! Both daemons on the same trace.

use super::{
    arena::Arena,
    meter::Tally,
    ours::Ours,
    requests::Daemon,
    rival::Rival,
    setting::{NodeSetting, PoolSetting},
    trace::Trace,
};
use anyhow::{Context as _, Result};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonKind {
    /// Ferrule.
    Ours,
    /// amazon-vpc-cni.
    Rival,
}

/// The results of one trace.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Ferrule.
    pub ours: Tally,
    /// Ferrule with announced pods ([`PoolSetting::announced`]).
    pub announced: Tally,
    /// amazon-vpc-cni.
    pub rival: Tally,
}

impl Comparison {
    /// Runs the trace with each daemon.
    ///
    /// # Errors
    /// If the cloud refuses the trace's specification.
    pub fn run(trace: &Trace, setting: PoolSetting, seed: u64) -> Result<Self> {
        let ours = run(DaemonKind::Ours, trace, setting, seed)?;
        let announced = run(DaemonKind::Ours, trace, setting.announced(), seed)?;
        Ok(Self { ours, announced, rival: run(DaemonKind::Rival, trace, setting, seed)? })
    }

    /// True if the rival gave every pod an address. Only then are the sums of calls comparable: the rival
    /// makes no calls for pods that it does not serve. Calls per served pod are always comparable.
    pub fn rival_serves_all(&self) -> bool {
        self.rival.unserved == 0
    }
}

/// Runs a trace and returns a line for every EC2 call.
///
/// # Errors
/// If the cloud refuses the trace's specification.
pub fn call_log(
    who: DaemonKind,
    trace: &Trace,
    setting: PoolSetting,
    seed: u64,
) -> Result<Vec<String>> {
    Ok(arena(who, trace, setting, seed)?.run_with_call_log())
}

/// Runs a trace.
///
/// # Errors
/// If the cloud refuses the trace's specification.
pub fn run(who: DaemonKind, trace: &Trace, setting: PoolSetting, seed: u64) -> Result<Tally> {
    Ok(arena(who, trace, setting, seed)?.run().0)
}

fn arena(who: DaemonKind, trace: &Trace, setting: PoolSetting, seed: u64) -> Result<Arena<'_>> {
    let make = move |node: NodeSetting, seed: u64| -> Box<dyn Daemon> {
        match who {
            DaemonKind::Ours => Box::new(Ours::new(setting, node, seed)),
            DaemonKind::Rival => Box::new(Rival::new(setting, node, seed)),
        }
    };
    let arena = Arena::new(trace, seed, make);
    arena.with_context(|| format!("a cloud for the trace {}", trace.name))
}
