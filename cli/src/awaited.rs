//! The condition for which a command waits, and its timeout.

use std::time::{Duration, Instant};

pub(crate) struct Awaited<W> {
    timeout: Duration,
    current: Option<(W, Instant)>,
}

impl<W: Clone> Awaited<W> {
    /// The timeout of each wait is in seconds.
    pub(crate) fn new(timeout: u64) -> Self {
        Self { timeout: Duration::from_secs(timeout), current: None }
    }

    /// Returns true if the condition is not that of the current wait. Its wait then starts now.
    pub(crate) fn is_new(&mut self, condition: &W, is_same: impl Fn(&W, &W) -> bool) -> bool {
        if self.current.as_ref().is_some_and(|(current, _)| is_same(current, condition)) {
            return false;
        }
        self.current = Some((condition.clone(), Instant::now()));
        true
    }

    /// Returns true if the current wait has lasted for the timeout.
    pub(crate) fn has_expired(&self) -> bool {
        self.current.as_ref().is_some_and(|(_, since)| since.elapsed() >= self.timeout)
    }

    /// Ends the current wait.
    pub(crate) fn end(&mut self) {
        self.current = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_expires_although_its_text_changes() {
        let is_same = |one: &(u8, &str), other: &(u8, &str)| one.0 == other.0;
        let mut awaited = Awaited::new(0);
        assert!(!awaited.has_expired(), "there is no wait");
        assert!(awaited.is_new(&(1, "two states"), is_same));
        assert!(!awaited.is_new(&(1, "one state"), is_same));
        assert!(awaited.has_expired());
        awaited.end();
        assert!(!awaited.has_expired() && awaited.is_new(&(1, "one state"), is_same));
        let mut awaited = Awaited::new(3600);
        assert!(awaited.is_new(&(1, ""), is_same) && awaited.is_new(&(2, ""), is_same));
        assert!(!awaited.has_expired());
    }
}
