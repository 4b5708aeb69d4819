//! Waits in tests for a state that another process, thread or kernel reaches.
//!
//! [`eventually`] panics at the caller's line after its time limit, [`within`] returns [`Late`]. Both report
//! the last observation. With the feature `async` there are [`eventually_async`] and [`within_async`].

use std::{error::Error, fmt, thread, time::Duration};

/// Enough for a machine that is several times slower than a developer's. Only a failing test waits that long.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The result of one observation: the awaited state, or a description of the present one.
pub trait Observation {
    /// The value of the awaited state.
    type Found;

    /// The awaited value.
    ///
    /// # Errors
    /// The present state, for the message, if it is not the awaited one.
    fn outcome(self) -> Result<Self::Found, String>;
}

impl Observation for bool {
    type Found = ();

    fn outcome(self) -> Result<(), String> {
        self.then_some(()).ok_or_else(|| "false".to_owned())
    }
}

impl<T> Observation for Option<T> {
    type Found = T;

    fn outcome(self) -> Result<T, String> {
        self.ok_or_else(|| "none".to_owned())
    }
}

impl<T, E: fmt::Display> Observation for Result<T, E> {
    type Found = T;

    fn outcome(self) -> Result<T, String> {
        // An `anyhow::Error` prints its causes in this form.
        self.map_err(|error| format!("{error:#}"))
    }
}

/// The awaited state was not reached in time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Late {
    what: String,
    patience: Duration,
    last: String,
}

impl fmt::Display for Late {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, patience, last } = self;
        write!(f, "waited {patience:?} for {what}; last observation: {last}")
    }
}

impl Error for Late {}

/// Observes until the awaited state is reached, and returns its value.
///
/// # Panics
/// After `patience`, with the last observation.
#[track_caller]
pub fn eventually<O: Observation>(
    what: &str,
    patience: Duration,
    observe: impl FnMut() -> O,
) -> O::Found {
    match within(what, patience, observe) {
        Ok(found) => found,
        Err(late) => panic!("{late}"),
    }
}

/// Observes until the awaited state is reached, and returns its value. It observes at least twice: once at
/// the start and once after `patience`.
///
/// # Errors
/// [`Late`] after `patience`, with the last observation.
pub fn within<O: Observation>(
    what: &str,
    patience: Duration,
    mut observe: impl FnMut() -> O,
) -> Result<O::Found, Late> {
    let start = std::time::Instant::now();
    let mut pauses = Pauses::default();
    loop {
        let is_last = start.elapsed() >= patience;
        match observe().outcome() {
            Ok(found) => return Ok(found),
            Err(last) if is_last => return Err(Late { what: what.to_owned(), patience, last }),
            Err(_) => thread::sleep(pauses.next_pause(patience.saturating_sub(start.elapsed()))),
        }
    }
}

/// As [`eventually`]. An observation that hangs is canceled after `patience`.
///
/// # Panics
/// After `patience`, with the last observation.
#[cfg(any(feature = "async", test))]
pub async fn eventually_async<O: Observation>(
    what: &str,
    patience: Duration,
    observe: impl AsyncFnMut() -> O,
) -> O::Found {
    match within_async(what, patience, observe).await {
        Ok(found) => found,
        Err(late) => panic!("{late}"),
    }
}

/// As [`within`]. An observation that hangs is canceled after `patience`.
///
/// # Errors
/// [`Late`] after `patience`, with the last observation.
#[cfg(any(feature = "async", test))]
pub async fn within_async<O: Observation>(
    what: &str,
    patience: Duration,
    mut observe: impl AsyncFnMut() -> O,
) -> Result<O::Found, Late> {
    use tokio::time::{Instant, sleep, timeout};

    let start = Instant::now();
    let mut pauses = Pauses::default();
    let mut last = "none: the first look did not return".to_owned();
    loop {
        let left = patience.saturating_sub(start.elapsed());
        // Little time is left for the last observation, but a busy machine needs some.
        match timeout(left.max(LAST_LOOK), observe()).await.map(Observation::outcome) {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(observed)) => last = observed,
            Err(_) => {}
        }
        if left.is_zero() {
            return Err(Late { what: what.to_owned(), patience, last });
        }
        sleep(pauses.next_pause(left)).await;
    }
}

#[cfg(any(feature = "async", test))]
const LAST_LOOK: Duration = Duration::from_secs(2);

/// Pauses between observations: short at first, because most states are reached soon, and longer later, to
/// reduce load.
struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(Duration::from_millis(5))
    }
}

impl Pauses {
    const LONGEST: Duration = Duration::from_millis(250);

    fn next_pause(&mut self, left: Duration) -> Duration {
        let pause = self.0;
        self.0 = (pause * 3 / 2).min(Self::LONGEST);
        pause.min(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn the_awaited_value_is_returned() {
        let looks = AtomicU32::new(0);
        let found = eventually("the third look", PATIENCE, || {
            let look = looks.fetch_add(1, Ordering::Relaxed) + 1;
            (look == 3).then_some(look)
        });
        assert_eq!((found, looks.into_inner()), (3, 3));
    }

    #[test]
    fn the_last_observation_is_reported() {
        let mut looks = 0;
        let late = within("the moon", SHORT, || {
            looks += 1;
            Err::<(), _>(format!("look {looks}"))
        })
        .expect_err("the moon does not arrive");
        assert!(looks >= 2, "a slow machine looks again after the timeout");
        assert_eq!(
            late.to_string(),
            format!("waited 1ms for the moon; last observation: look {looks}")
        );
    }

    #[test]
    #[should_panic(expected = "waited 0ns for the moon; last observation: false")]
    fn the_panic_has_the_last_observation() {
        eventually("the moon", Duration::ZERO, || false);
    }

    #[tokio::test]
    async fn a_look_that_hangs_is_canceled() {
        let late = within_async("an answer", Duration::ZERO, async || {
            std::future::pending::<()>().await;
            true
        });
        let text = late.await.expect_err("no answer arrives").to_string();
        assert!(text.ends_with("last observation: none: the first look did not return"), "{text}");
    }

    #[tokio::test]
    async fn the_async_form_returns_the_value_and_reports_the_last_observation() {
        let mut looks = 0;
        let found = eventually_async("the third look", PATIENCE, async || {
            looks += 1;
            (looks == 3).then_some("there")
        });
        assert_eq!(found.await, "there");
        let late = within_async("the moon", SHORT, async || Err::<(), _>("clouds")).await;
        let text = late.expect_err("the moon does not arrive").to_string();
        assert_eq!(text, "waited 1ms for the moon; last observation: clouds");
    }
}
