//! Durations on the command line, such as `800ms`.

use std::time::Duration;

pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let number: u64 = digits.parse().map_err(|_| "not of the form 800ms, 2s or 1m")?;
    match &text[digits.len()..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" | "" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number * 60)),
        _ => Err("not of the form 800ms, 2s or 1m".to_owned()),
    }
}

/// Saturates at the largest number of milliseconds.
pub(crate) fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_needs_a_known_unit() {
        assert_eq!(duration("800ms"), Ok(Duration::from_millis(800)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for bad in ["", "s", "2h", "-1s", "1.5s"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }
}
