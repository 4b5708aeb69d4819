//! Moments of the boot's clock as people write them.

use config_model::Time;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// How Go writes a time that never was.
pub(super) const NEVER: &str = "0001-01-01T00:00:00Z";

/// A moment of the boot's clock in RFC 3339, given what that clock shows now.
pub(super) fn rfc3339(when: Time, now: Time) -> String {
    let ago = Duration::from_millis(now.since(when).0);
    let ahead = Duration::from_millis(when.since(now).0);
    let wall = SystemTime::now().checked_sub(ago).and_then(|wall| wall.checked_add(ahead));
    let since_epoch = wall.and_then(|wall| wall.duration_since(UNIX_EPOCH).ok());
    since_epoch.map_or_else(|| NEVER.to_owned(), |since| format(since.as_secs()))
}

fn format(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = civil(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day of a number of days since 1970: eras of 400 years that begin in March.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::format;

    #[test]
    fn moments_are_written_as_rfc_3339() {
        assert_eq!(format(0), "1970-01-01T00:00:00Z");
        assert_eq!(format(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(format(951_868_799), "2000-02-29T23:59:59Z");
        assert_eq!(format(1_755_700_000), "2025-08-20T14:26:40Z");
        assert_eq!(format(4_107_542_400), "2100-03-01T00:00:00Z");
    }
}
