//! Things that strangers can cause are said so often and no more.

use std::{
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

/// As many at once.
const AT_ONCE: u32 = 20;
/// One more for each of these.
const EACH: Duration = Duration::from_secs(3);

/// Limits log lines that unauthenticated clients can trigger.
#[derive(Debug)]
pub(crate) struct LogLimiter(Mutex<Left>);

#[derive(Debug)]
struct Left {
    left: u32,
    since: Instant,
    unsaid: u64,
}

impl Default for LogLimiter {
    fn default() -> Self {
        Self(Mutex::new(Left { left: AT_ONCE, since: Instant::now(), unsaid: 0 }))
    }
}

impl LogLimiter {
    /// Whether it is to be said now, and how many were not.
    pub(crate) fn now(&self) -> Option<u64> {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Option<u64> {
        let mut left = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let more = now.saturating_duration_since(left.since).as_secs() / EACH.as_secs();
        if more > 0 {
            left.since = now;
            left.left =
                left.left.saturating_add(u32::try_from(more).unwrap_or(AT_ONCE)).min(AT_ONCE);
        }
        if left.left == 0 {
            left.unsaid += 1;
            return None;
        }
        left.left -= 1;
        Some(std::mem::take(&mut left.unsaid))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_said_is_counted_until_something_is_said_again() {
        let (rarely, begun) = (LogLimiter::default(), Instant::now());
        let said = (0..100).filter(|_| rarely.at(begun).is_some()).count();
        assert_eq!(said, 20);
        assert_eq!(rarely.at(begun + EACH), Some(80));
        assert_eq!(rarely.at(begun + EACH), None);
        assert_eq!(rarely.at(begun + EACH * 2), Some(1));
    }
}
