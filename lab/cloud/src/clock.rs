//! Dates as EC2 prints them.

use config_model::Time;

/// Where the model's clock stands on the wall.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch(pub(crate) u64);

impl Epoch {
    /// For example `2026-11-21T01:42:15.000Z`, as in EC2's XML.
    pub(crate) fn with_millis(self, time: Time) -> String {
        let unix_ms = self.0.saturating_add(time.0);
        format!("{}.{:03}Z", seconds(unix_ms / 1000), unix_ms % 1000)
    }

    /// For example `2026-11-21T01:42:15Z`, as in IMDS.
    pub(crate) fn to_the_second(self, time: Time) -> String {
        format!("{}Z", seconds(self.0.saturating_add(time.0) / 1000))
    }
}

fn seconds(unix: u64) -> String {
    let (year, month, day) = civil(unix / 86_400);
    let of_day = unix % 86_400;
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}")
}

/// Days since 1970 to a Gregorian date, counting years from March so that leap days come last.
fn civil(days: u64) -> (u64, u64, u64) {
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    (year_of_era + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_gregorian() {
        for (unix_ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (1_709_251_199_999, "2024-02-29T23:59:59.999Z"),
            (1_795_225_335_000, "2026-11-21T01:42:15.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(Epoch(unix_ms).with_millis(Time(0)), text);
        }
        assert_eq!(Epoch(1_000).to_the_second(Time(86_399_000)), "1970-01-02T00:00:00Z");
    }
}
