//! The clock and the random numbers of the agent.

use config_model::{Span, Time};
use std::{
    hash::{BuildHasher as _, RandomState},
    time::{Duration, Instant},
};

/// Counts from its creation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn now(self) -> Time {
        Time(u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    /// The time until `when`; zero if it has passed.
    pub(crate) fn until(self, when: Time) -> Duration {
        let Span(millis) = when.since(self.now());
        Duration::from_millis(millis)
    }
}

/// A random number.
pub(crate) fn draw() -> u64 {
    RandomState::new().hash_one(())
}
