//! UIDs in little room.

use std::{borrow::Cow, fmt::Write as _};

/// An API server's are UUIDs; anything else is kept as it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Uid {
    Uuid([u8; 16]),
    Other(Box<str>),
}

impl Uid {
    pub(super) fn of(text: &str) -> Self {
        parse(text).map_or_else(|| Self::Other(text.into()), Self::Uuid)
    }

    pub(super) fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Uuid(bytes) => Cow::Owned(write(bytes)),
            Self::Other(text) => Cow::Borrowed(text),
        }
    }
}

/// Only what [`write`] would write again.
fn parse(text: &str) -> Option<[u8; 16]> {
    let text: &[u8; 36] = text.as_bytes().try_into().ok()?;
    if DASHES.iter().any(|at| text[*at] != b'-') {
        return None;
    }
    let mut bytes = [0; 16];
    let mut odd = 0;
    for (byte, at) in bytes.iter_mut().zip(PAIRS) {
        let (high, low) = (VALUES[usize::from(text[at])], VALUES[usize::from(text[at + 1])]);
        odd |= high | low;
        *byte = high << 4 | low & 15;
    }
    (odd < 16).then_some(bytes)
}

/// Offsets of the two digits of each byte.
const PAIRS: [usize; 16] = [0, 2, 4, 6, 9, 11, 14, 16, 19, 21, 24, 26, 28, 30, 32, 34];

/// Value of each digit; more than 15 if the character is not a digit.
const VALUES: [u8; 256] = {
    let mut values = [255; 256];
    let mut value = 0;
    while value < 16 {
        values[b"0123456789abcdef"[value as usize] as usize] = value;
        value += 1;
    }
    values
};

fn write(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for byte in bytes {
        if DASHES.contains(&text.len()) {
            text.push('-');
        }
        let _ = write!(text, "{byte:02x}");
    }
    text
}

const DASHES: [usize; 4] = [8, 13, 18, 23];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_uid_comes_out_as_it_went_in(
            text in "([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})|([0-9A-Fa-f-]{30,40})|.{0,40}"
        ) {
            let uid = Uid::of(&text);
            prop_assert_eq!(uid.text(), text);
        }
    }

    #[test]
    fn a_uuid_needs_no_memory_of_its_own() {
        let uid = Uid::of("8c8bb4a1-0f44-4ef1-9d0c-0d2a3c6f0b7e");
        assert!(matches!(uid, Uid::Uuid(_)));
    }
}
