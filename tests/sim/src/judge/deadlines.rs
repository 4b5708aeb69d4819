//! Law: every ADD that could be served is served. A patient observer with full knowledge decides what could be.

use super::{Judge, Law};
use config_model::{Span, Time};

/// An ADD that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Add {
    asked: Time,
    /// The highest demand for addresses since its start.
    most_wanted: u64,
    /// The lowest number of free addresses in the subnet since its start.
    least_free: u32,
}

/// The demand for addresses and the possible supply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Assigned, cooling and requested.
    pub(crate) wanted: u64,
    /// By the type's limits and the settings.
    pub(crate) capacity: u64,
    /// Free addresses in the subnet.
    pub(crate) subnet_free: u32,
    /// Free addresses that the subnet needs for the demand.
    pub(crate) subnet_needs: u32,
}

/// The time after the last fault at which every pause is over.
const CALM: Span = Span::seconds(330);

impl Judge {
    pub(crate) fn asks(&mut self, sandbox: u32, now: Time) {
        self.adds.insert(sandbox, Add { asked: now, most_wanted: 0, least_free: u32::MAX });
    }

    /// Extends the current fault to now.
    pub(crate) fn extend_fault(&mut self, now: Time) {
        self.calm_since = self.calm_since.max(now);
    }

    /// The number of assigned, cooling and requested addresses.
    pub(crate) fn wanted(&self, now: Time) -> u64 {
        let used = |from: Time| now < from + self.cooldown + SLACK;
        let held = self.holds.values().filter(|hold| {
            let lapsed = hold.reserved + self.lifetime;
            hold.running || used(hold.over.unwrap_or(lapsed))
        });
        let resting = self.resting.values().filter(|from| used(**from));
        (held.count() + resting.count() + self.adds.len()) as u64
    }

    pub(crate) fn observe(&mut self, demand: Demand) {
        for add in self.adds.values_mut() {
            add.most_wanted = add.most_wanted.max(demand.wanted);
            add.least_free = add.least_free.min(demand.subnet_free);
        }
    }

    /// The ADD has ended, with or without success.
    pub(crate) fn waited(
        &mut self,
        sandbox: u32,
        refused: Option<&str>,
        demand: Demand,
        now: Time,
    ) {
        self.observe(demand);
        let Some(add) = self.adds.remove(&sandbox) else { return };
        let Some(why) = refused else { return };
        if why.contains(ONE_VETH) {
            return;
        }
        let healthy = add.asked >= self.calm_since + CALM;
        let fits = add.most_wanted <= demand.capacity && add.least_free >= demand.subnet_needs;
        if healthy && fits {
            self.report_violation(Law::NotServed, now, || {
                format!(
                    "sandbox {sandbox} waited {} ms without an address, though {} of {} addresses were \
                     wanted at most: {why}",
                    now.since(add.asked).0,
                    add.most_wanted,
                    demand.capacity
                )
            });
        }
    }

    /// The sender no longer waits for the answer.
    pub(crate) fn gave_up(&mut self, sandbox: u32) {
        self.adds.remove(&sandbox);
    }
}

/// The refusal of a pod whose host veth has the name of another pod's.
const ONE_VETH: &str = "have one hash";
/// The time for the observation of the kernel and the reply.
const SLACK: Span = Span::seconds(15);
