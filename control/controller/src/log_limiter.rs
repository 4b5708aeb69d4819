//! Rate limit of log lines that unauthenticated clients can trigger.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

/// Size of a burst, in lines.
const AT_ONCE: u32 = 20;
/// Interval at which one more line is allowed.
const EACH: Duration = Duration::from_secs(3);

#[derive(Debug)]
pub(crate) struct LogLimiter(Mutex<Left>);

#[derive(Debug)]
struct Left {
    left: u32,
    since: Instant,
    suppressed: u64,
}

impl Default for LogLimiter {
    fn default() -> Self {
        Self(Mutex::new(Left { left: AT_ONCE, since: Instant::now(), suppressed: 0 }))
    }
}

impl LogLimiter {
    /// Returns the number of suppressed lines before this one; `None` if this one is suppressed too.
    pub(crate) fn now(&self) -> Option<u64> {
        self.at(Instant::now())
    }

    fn at(&self, now: Instant) -> Option<u64> {
        let mut left = runtime_lock::lock(&self.0);
        let more = now.saturating_duration_since(left.since).as_secs() / EACH.as_secs();
        if more > 0 {
            left.since = now;
            left.left =
                left.left.saturating_add(u32::try_from(more).unwrap_or(AT_ONCE)).min(AT_ONCE);
        }
        if left.left == 0 {
            left.suppressed += 1;
            return None;
        }
        left.left -= 1;
        Some(std::mem::take(&mut left.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suppressed_lines_are_counted_until_the_next_line() {
        let (log_limiter, start) = (LogLimiter::default(), Instant::now());
        let logged = (0..100).filter(|_| log_limiter.at(start).is_some()).count();
        assert_eq!(logged, 20);
        assert_eq!(log_limiter.at(start + EACH), Some(80));
        assert_eq!(log_limiter.at(start + EACH), None);
        assert_eq!(log_limiter.at(start + EACH * 2), Some(1));
    }
}
