//! The pauses between attempts on a disk that refuses.

use std::time::Duration;

/// Pauses that double up to a longest one.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    next: Duration,
    last: Duration,
}

impl Backoff {
    /// The first pause is `first`; none is longer than `last`.
    pub fn new(first: Duration, last: Duration) -> Self {
        Self { next: first, last }
    }

    /// The pause after one more failure.
    pub fn pause(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(self.last);
        pause
    }
}
