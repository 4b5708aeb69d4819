//! Times of the boot clock as calendar times.

use config_model::{Time, utc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Go's zero time.
pub(super) const NEVER: &str = "0001-01-01T00:00:00Z";

/// A time of the boot clock in RFC 3339, given the clock's present value.
pub(super) fn rfc3339(when: Time, now: Time) -> String {
    let ago = Duration::from_millis(now.since(when).0);
    let ahead = Duration::from_millis(when.since(now).0);
    let wall = SystemTime::now().checked_sub(ago).and_then(|wall| wall.checked_add(ahead));
    let since_epoch = wall.and_then(|wall| wall.duration_since(UNIX_EPOCH).ok());
    let written = |since: Duration| format!("{}Z", utc::date_and_time(since.as_secs()));
    since_epoch.map_or_else(|| NEVER.to_owned(), written)
}
