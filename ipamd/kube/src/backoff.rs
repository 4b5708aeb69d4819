//! How long to pause between attempts.

use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

/// Doubles up to a bound; each pause is drawn from its upper half, so that many nodes do not come
/// back in step.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { next: FIRST }
    }

    /// It worked.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST;
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
    let drawn = u32::try_from(drawn).unwrap_or(0);
    most * drawn / 1024
}

const FIRST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_anew() {
        let mut backoff = Backoff::new();
        let pauses: Vec<Duration> = (0..12).map(|_| backoff.pause()).collect();
        assert!(pauses[0] <= FIRST && pauses[0] >= FIRST / 2);
        assert!(pauses.iter().all(|pause| *pause <= LONGEST));
        assert!(pauses[11] >= LONGEST / 2);
        backoff.reset();
        assert!(backoff.pause() <= FIRST);
    }
}
