//! MAC addresses and firewall marks.

use serde::{Deserialize, Serialize};
use std::{fmt, str::FromStr};

/// Text that is not what it should be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not {wanted}")]
pub struct ParseError {
    pub text: String,
    /// Expected form of the value, with an article.
    pub wanted: &'static str,
}

/// An Ethernet address; written as six lower-case hex pairs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Mac(pub [u8; 6]);

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Mac {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let err = || ParseError { text: text.to_owned(), wanted: "a MAC address" };
        let mut bytes = [0; 6];
        let mut pairs = text.split(':');
        for byte in &mut bytes {
            let pair = pairs.next().filter(|p| p.len() == 2).ok_or_else(err)?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| err())?;
        }
        if pairs.next().is_some() { Err(err()) } else { Ok(Self(bytes)) }
    }
}

impl From<Mac> for String {
    fn from(mac: Mac) -> Self {
        mac.to_string()
    }
}

impl TryFrom<String> for Mac {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        text.parse()
    }
}

/// A firewall mark and the bits of it that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Mark {
    /// The bits that are set.
    pub value: u32,
    /// The bits that are looked at.
    pub mask: u32,
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}/{:#x}", self.value, self.mask)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mac_survives_its_text() {
        let mac: Mac = "02:0A:ff:00:10:01".parse().expect("a valid MAC");
        assert_eq!(mac.to_string(), "02:0a:ff:00:10:01");
        for bad in
            ["", "02:0a:ff:00:10", "02:0a:ff:00:10:01:02", "2:a:f:0:1:1", "zz:0a:ff:00:10:01"]
        {
            assert!(bad.parse::<Mac>().is_err(), "{bad}");
        }
    }
}
