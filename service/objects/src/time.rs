//! Times of the API server.

/// Parses a time such as `2026-11-29T13:20:05.25Z`, in UTC. Returns the milliseconds since 1970; `None` for other text and
/// for an earlier time.
pub(crate) fn milliseconds(text: &str) -> Option<u64> {
    let (date, clock) = text.strip_suffix('Z')?.split_once('T')?;
    let [year, month, day] = numbers(date, '-')?;
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = numbers(clock, ':')?;
    let is_time = (1..=12).contains(&month) && (1..=31).contains(&day);
    // A leap second counts as the second after it.
    if !is_time || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let seconds = ((days(year, month, day)? * 24 + hour) * 60 + minute) * 60 + second;
    Some(seconds * 1000 + thousandths(fraction)?)
}

/// Three numbers of decimal digits.
fn numbers(text: &str, separator: char) -> Option<[u64; 3]> {
    let mut parts = text.split(separator).map(|part| number(part).filter(|_| part.len() <= 4));
    let three = [parts.next()??, parts.next()??, parts.next()??];
    parts.next().is_none().then_some(three)
}

fn number(digits: &str) -> Option<u64> {
    let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// The first three digits after the point; others are cut.
fn thousandths(digits: &str) -> Option<u64> {
    number(digits)?;
    number(&format!("{digits:0<3}")[..3])
}

/// The days since 1970, in the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> Option<u64> {
    // The year starts in March, so that the leap day is its last one.
    let (year, month) =
        if month > 2 { (year, month - 3) } else { (year.checked_sub(1)?, month + 9) };
    let leaps = year / 4 - year / 100 + year / 400;
    let since_march = (153 * month + 2) / 5 + day - 1;
    (year * 365 + leaps + since_march).checked_sub(DAYS_TO_1970)
}

/// From the first of March of the year 0.
const DAYS_TO_1970: u64 = 719_468;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_in_utc_is_read_to_the_millisecond() {
        for (text, expected) in [
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00:00.001Z", 1),
            ("1970-03-01T00:00:00Z", 59 * 86_400_000),
            ("2000-02-29T23:59:59.9Z", 951_868_799_900),
            ("2000-03-01T00:00:00Z", 951_868_800_000),
            ("2026-03-01T00:00:00.007999999Z", 1_772_323_200_007),
            ("2100-03-01T00:00:00Z", 4_107_542_400_000),
        ] {
            assert_eq!(milliseconds(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_text_is_no_time() {
        for text in [
            "",
            "Z",
            "now",
            "1969-12-31T23:59:59Z",
            "2026-03-01T00:00:00",
            "2026-03-01T00:00:00+01:00",
            "2026-03-01 00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:61Z",
            "2026-01-01T00:00:00.Z",
            "2026-01-01T00:00:00.+1Z",
            "2026-01-01T00:00Z",
            "2026-01-01-01T00:00:00Z",
            "20260-01-01T00:00:00Z",
            "+026-01-01T00:00:00Z",
        ] {
            assert_eq!(milliseconds(text), None, "{text:?}");
        }
    }
}
