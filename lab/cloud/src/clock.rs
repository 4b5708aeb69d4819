//! Dates as EC2 prints them.

use config_model::{Time, utc};

/// Wall-clock time at which the model's clock starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Epoch(pub(crate) u64);

impl Epoch {
    /// For example `2026-11-21T01:42:15.000Z`, as in EC2's XML.
    pub(crate) fn with_millis(self, time: Time) -> String {
        let unix_ms = self.0.saturating_add(time.0);
        format!("{}.{:03}Z", utc::date_and_time(unix_ms / 1000), unix_ms % 1000)
    }

    /// For example `2026-11-21T01:42:15Z`, as in IMDS.
    pub(crate) fn to_the_second(self, time: Time) -> String {
        format!("{}Z", utc::date_and_time(self.0.saturating_add(time.0) / 1000))
    }
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
