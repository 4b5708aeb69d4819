//! Every ADD that could be served is served. What could be is what somebody who knows everything
//! and has much patience would grant.

use super::{Judge, Law};
use config_model::{Span, Time};

/// An ADD that waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Add {
    asked: Time,
    /// The most addresses that were wanted at once since.
    most_wanted: u64,
    /// The fewest addresses that the subnet had free since.
    least_free: u32,
}

/// How many addresses are wanted, and how many there could be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Demand {
    /// Held, cooling, and asked for.
    pub(crate) wanted: u64,
    /// What the type's limits and the settings allow.
    pub(crate) capacity: u64,
    /// Addresses that the subnet has free.
    pub(crate) subnet_free: u32,
    /// What the subnet must have free so that nothing is short of it.
    pub(crate) subnet_needs: u32,
}

/// So long after the last trouble every pause that it caused is over.
const CALM: Span = Span::seconds(330);

impl Judge {
    pub(crate) fn asks(&mut self, sandbox: u32, now: Time) {
        self.adds.insert(sandbox, Add { asked: now, most_wanted: 0, least_free: u32::MAX });
    }

    /// Something is out of order, until now at least.
    pub(crate) fn trouble(&mut self, now: Time) {
        self.calm_since = self.calm_since.max(now);
    }

    /// Addresses that are held, that rest, and that are asked for.
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

    /// The ADD's wait is over, well or badly.
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
        let healthy = add.asked >= self.calm_since + CALM;
        let fits = add.most_wanted <= demand.capacity && add.least_free >= demand.subnet_needs;
        if healthy && fits {
            self.accuse(Law::NotServed, now, || {
                format!(
                    "sandbox {sandbox} waited {} ms in vain, though {} of {} addresses were \
                     wanted at most: {why}",
                    now.since(add.asked).0,
                    add.most_wanted,
                    demand.capacity
                )
            });
        }
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn gave_up(&mut self, sandbox: u32) {
        self.adds.remove(&sandbox);
    }
}

/// Until the kernel was seen without it and the answer was told.
const SLACK: Span = Span::seconds(15);
