//! Syntax of names.

use super::tree::{At, Doubt};
use crate::{DomainName, FqdnPattern};

/// A domain name of at least two labels, perhaps with `*.` before and a dot behind it.
pub(super) fn domain(at: &At<'_>) -> Result<DomainName, Doubt> {
    let text = at.text()?;
    let lower = text.strip_suffix('.').unwrap_or(text).to_ascii_lowercase();
    let (below, name) = match lower.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, lower.as_str()),
    };
    if !is_domain(name) || !name.contains('.') {
        return Err(at.doubt(format!("`{text}` is no domain name such as www.example.com")));
    }
    let name = name.to_owned();
    Ok(if below { DomainName::Below(name) } else { DomainName::Exact(name) })
}

/// A name of letters, digits, hyphens, dots and `*`.
pub(super) fn fqdn(at: &At<'_>) -> Result<FqdnPattern, Doubt> {
    let text = at.word()?;
    if !text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.*".contains(&b)) {
        return Err(at.doubt(format!("`{text}` has other characters than a-z, 0-9, `-`, `.`, `*`")));
    }
    Ok(FqdnPattern(text.to_ascii_lowercase()))
}

/// A label's key: a name of at most 63 characters, perhaps with a DNS prefix and a slash before it.
pub(crate) fn is_label_key(text: &str) -> bool {
    // Most are without a prefix.
    is_qualified(text)
        || text
            .split_once('/')
            .is_some_and(|(prefix, name)| is_subdomain(prefix) && is_qualified(name))
}

/// A label's value: empty, or like a key's name.
pub(crate) fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_qualified(text)
}

/// A container port's name: 1 to 15 of `a-z`, `0-9` and single hyphens within, at least one letter.
pub(crate) fn is_port_name(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && !text.starts_with('-')
        && !text.ends_with('-')
        && !text.contains("--")
}

/// Labels of a domain name, in either case, one dot between two.
pub(super) fn is_domain(text: &str) -> bool {
    text.len() <= 253
        && text.split('.').all(|label| {
            (1..=63).contains(&label.len())
                && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

fn is_subdomain(text: &str) -> bool {
    is_domain(text) && !text.bytes().any(|b| b.is_ascii_uppercase())
}

/// The characters of a key's name.
const QUALIFIED: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    while byte < 128 {
        table[byte as usize] = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
        byte += 1;
    }
    table
};

fn is_qualified(text: &str) -> bool {
    let bytes = text.as_bytes();
    (1..=63).contains(&bytes.len())
        && bytes.iter().all(|b| QUALIFIED[usize::from(*b)])
        && bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
}
