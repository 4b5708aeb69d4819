//! Both daemons on the same trace.

use super::{
    arena::Arena,
    desk::Daemon,
    meter::Tally,
    ours::Ours,
    rival::Rival,
    setting::{NodeSetting, PoolSetting},
    trace::Trace,
};
use anyhow::{Context as _, Result};

/// Whose daemon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DaemonKind {
    /// Ferrule's.
    Ours,
    /// amazon-vpc-cni's.
    Rival,
}

/// What a trace came to with each.
#[derive(Clone, Debug)]
pub struct Contest {
    /// With ours.
    pub ours: Tally,
    /// With ours, where pods are announced ([`PoolSetting::announced`]).
    pub announced: Tally,
    /// With the rival's.
    pub rival: Tally,
}

impl Contest {
    /// Runs the trace with each.
    ///
    /// # Errors
    /// If the cloud cannot be as the trace wants it.
    pub fn hold(trace: &Trace, setting: PoolSetting, seed: u64) -> Result<Self> {
        let ours = run(DaemonKind::Ours, trace, setting, seed)?;
        let announced = run(DaemonKind::Ours, trace, setting.announced(), seed)?;
        Ok(Self { ours, announced, rival: run(DaemonKind::Rival, trace, setting, seed)? })
    }

    /// Whether the rival brought every pod an address sooner or later: only then is the sum of its
    /// calls a measure for ours. Where pods went without, it saved the calls for them, and the
    /// calls for each pod that was served are.
    pub fn rival_serves_all(&self) -> bool {
        self.rival.unserved == 0
    }
}

/// Every EC2 call of a run in words, to see what each was for.
///
/// # Errors
/// If the cloud cannot be as the trace wants it.
pub fn story(
    who: DaemonKind,
    trace: &Trace,
    setting: PoolSetting,
    seed: u64,
) -> Result<Vec<String>> {
    Ok(arena(who, trace, setting, seed)?.tell_story())
}

/// Runs a trace.
///
/// # Errors
/// If the cloud cannot be as the trace wants it.
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
