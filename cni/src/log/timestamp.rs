//! The time of a log line, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

/// `2026-11-20T10:30:00.123Z`
pub(super) fn rfc3339(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let (days, second) = (since.as_secs() / 86_400, since.as_secs() % 86_400);
    let (year, month, day) = date(days);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:03}Z",
        second / 3600,
        second / 60 % 60,
        second % 60,
        since.subsec_millis()
    )
}

/// The date this many days after 1970-01-01.
///
/// Years are counted from March, so that the leap day is the last one, and from the year 0, so that
/// a period of 400 years (146,097 days) starts with it.
fn date(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let (period, in_period) = (days / 146_097, days % 146_097);
    let year_in_period =
        (in_period - in_period / 1_460 + in_period / 36_524 - in_period / 146_096) / 365;
    let in_year = in_period - (365 * year_in_period + year_in_period / 4 - year_in_period / 100);
    let month_from_march = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    (period * 400 + year_in_period + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn times_are_written_as_date_dash_u_writes_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_399, "2000-02-28T23:59:59.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_772_323_200, "2026-03-01T00:00:00.000Z"),
            (1_798_761_599, "2026-12-31T23:59:59.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
    }
}
