//! A message about a lasting condition.

use std::time::{Duration, Instant};

const REPEAT_AFTER: Duration = Duration::from_secs(30);

/// The last message and its time. A message is repeated if it changes or is old.
#[derive(Default)]
pub(crate) struct RepeatedMessage(Option<(String, Instant)>);

impl RepeatedMessage {
    pub(crate) fn print(&mut self, text: String, print: &mut impl FnMut(&str)) {
        let stale = |(last, at): &(String, Instant)| *last != text || at.elapsed() >= REPEAT_AFTER;
        if self.0.as_ref().is_none_or(stale) {
            print(&text);
            self.0 = Some((text, Instant::now()));
        }
    }
}
