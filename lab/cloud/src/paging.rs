//! `MaxResults` and `NextToken`.

use crate::{Ec2Error, Page};
use std::fmt::Write as _;

/// EC2 gives no fewer results per page.
const LEAST: u32 = 5;

/// Cuts a page out of results that are sorted by `key`. A token represents the last key of the page. Objects that
/// are created or deleted in between therefore neither repeat nor hide others.
pub(crate) fn cut<T>(
    mut results: Vec<T>,
    page: &Page,
    by_id: bool,
    most: u32,
    key: impl Fn(&T) -> String,
) -> Result<(Vec<T>, Option<String>), Ec2Error> {
    if by_id && page.max_results.is_some() {
        let message = "The parameter MaxResults cannot be used with a list of IDs in the request";
        return Err(Ec2Error::invalid_combination(message));
    }
    if let Some(token) = &page.next_token {
        let last = decode(token)
            .ok_or_else(|| Ec2Error::new("InvalidNextToken", "The token is not valid"))?;
        results.retain(|result| key(result) > last);
    }
    let Some(max) = page.max_results else { return Ok((results, None)) };
    if !(LEAST..=most).contains(&max) {
        let wanted = if max < LEAST {
            format!("greater than or equal to {LEAST}")
        } else {
            format!("less than or equal to {most}")
        };
        return Err(Ec2Error::invalid_value(format!(
            "Value ( {max} ) for parameter maxResults is invalid. Expecting a value {wanted}."
        )));
    }
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let more = results.len() > max;
    results.truncate(max);
    let token = results.last().filter(|_| more).map(|last| encode(&key(last)));
    Ok((results, token))
}

fn encode(key: &str) -> String {
    key.bytes().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn decode(token: &str) -> Option<String> {
    let pairs = token.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).ok());
    let bytes: Option<Vec<u8>> = pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect();
    String::from_utf8(bytes?).ok()
}
