//! The time of a log line, in UTC.

use config_model::utc;
use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-11-20T10:30:00.123Z`
pub(super) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}.{:03}Z", utc::date_and_time(since.as_secs()), since.subsec_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_time_has_milliseconds_and_its_zone() {
        let time = UNIX_EPOCH + Duration::from_millis(1_772_323_200_007);
        assert_eq!(rfc3339(time), "2026-03-01T00:00:00.007Z");
    }
}
