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
pub enum Who {
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
    /// With the rival's.
    pub rival: Tally,
}

impl Contest {
    /// Runs the trace twice.
    ///
    /// # Errors
    /// If the cloud cannot be as the trace wants it.
    pub fn hold(trace: &Trace, setting: PoolSetting, seed: u64) -> Result<Self> {
        let ours = run(Who::Ours, trace, setting, seed)?;
        Ok(Self { ours, rival: run(Who::Rival, trace, setting, seed)? })
    }

    /// Whether the rival brought every pod as many addresses, as surely: only then can its calls
    /// be held against ours.
    pub fn rival_serves_as_many(&self) -> bool {
        let failures = |tally: &Tally| (tally.failed_adds, tally.unserved);
        failures(&self.rival) <= failures(&self.ours)
    }
}

/// Runs a trace.
///
/// # Errors
/// If the cloud cannot be as the trace wants it.
pub fn run(who: Who, trace: &Trace, setting: PoolSetting, seed: u64) -> Result<Tally> {
    let make = |node: NodeSetting, seed: u64| -> Box<dyn Daemon> {
        match who {
            Who::Ours => Box::new(Ours::new(setting, node, seed)),
            Who::Rival => Box::new(Rival::new(setting, node, seed)),
        }
    };
    let arena = Arena::new(trace, seed, make);
    let arena = arena.with_context(|| format!("a cloud for the trace {}", trace.name))?;
    Ok(arena.run().0)
}
