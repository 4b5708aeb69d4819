//! How long to pause between attempts.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

const FIRST: Duration = Duration::from_millis(200);
/// Short: an API server that comes back is asked by a few replicas, and every node waits for what they read.
const LONGEST: Duration = Duration::from_secs(10);

/// Doubles up to a bound; each pause is drawn from its upper half, so that replicas do not keep in step.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// It worked.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST;
    }

    /// Whether it has not worked for a while.
    pub(crate) fn is_long(&self) -> bool {
        self.next == LONGEST
    }

    /// The pause before the next attempt.
    pub(crate) fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(LONGEST);
        pause / 2 + up_to(pause / 2)
    }
}

/// A length of time up to this one, at random.
pub(crate) fn up_to(most: Duration) -> Duration {
    let drawn = RandomState::new().hash_one(()) % 1024;
    most * u32::try_from(drawn).unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_a_bound_until_it_works() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = (0..10).map(|_| backoff.pause()).collect();
        assert!(pauses[0] <= FIRST && pauses[0] >= FIRST / 2);
        assert!(pauses[9] <= LONGEST && pauses[9] >= LONGEST / 2);
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }
}
