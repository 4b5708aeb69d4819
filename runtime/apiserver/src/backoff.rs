use std::{
    hash::{BuildHasher as _, RandomState},
    time::Duration,
};

/// Pauses between attempts that double up to a bound. Each pause is drawn from its upper half, so that clients of
/// one server do not retry at the same time.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub fn between(first: Duration, longest: Duration) -> Self {
        Self { first, longest, next: first }
    }

    /// Restarts the pauses after a success.
    pub fn reset(&mut self) {
        self.next = self.first;
    }

    /// Returns true if the pauses have reached the bound.
    pub fn is_long(&self) -> bool {
        self.next == self.longest
    }

    /// The pause before the next attempt.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.longest);
        pause / 2 + up_to(pause / 2)
    }
}

/// A random duration up to this one.
pub fn up_to(most: Duration) -> Duration {
    let drawn = RandomState::new().hash_one(()) % 1024;
    most * u32::try_from(drawn).unwrap_or(0) / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_restart_after_a_success() {
        let (first, longest) = (Duration::from_millis(250), Duration::from_secs(30));
        let mut backoff = Backoff::between(first, longest);
        let pauses: Vec<Duration> = (0..12).map(|_| backoff.pause()).collect();
        assert!(pauses[0] <= first && pauses[0] >= first / 2);
        assert!(pauses.iter().all(|pause| *pause <= longest));
        assert!(pauses[11] >= longest / 2 && backoff.is_long());
        backoff.reset();
        assert!(!backoff.is_long() && backoff.pause() <= first);
    }
}
