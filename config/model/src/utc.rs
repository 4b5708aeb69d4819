//! Dates and times of day, as people write them.

/// Seconds since 1970 as `2026-11-21T01:42:15`, in UTC; the caller adds fractions and the `Z`.
pub fn date_and_time(unix_seconds: u64) -> String {
    let (year, month, day) = date(unix_seconds / 86_400);
    let of_day = unix_seconds % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// The date this many days after 1970-01-01.
///
/// Years start in March, so that the leap day is the last day. Counting starts at the year 0, so that
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

    #[test]
    fn times_are_written_as_date_dash_u_writes_them() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00"),
            (951_782_399, "2000-02-28T23:59:59"),
            (951_782_400, "2000-02-29T00:00:00"),
            (1_709_251_199, "2024-02-29T23:59:59"),
            (1_755_700_000, "2025-08-20T14:26:40"),
            (1_772_323_200, "2026-03-01T00:00:00"),
            (1_798_761_599, "2026-12-31T23:59:59"),
            (4_107_542_400, "2100-03-01T00:00:00"),
        ] {
            assert_eq!(date_and_time(seconds), text);
        }
    }
}
