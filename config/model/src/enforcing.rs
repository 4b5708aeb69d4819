//! The mode of a pod whose policies are not in force.

use crate::ParseError;
use std::{fmt, str::FromStr};

/// Rule for a pod whose policies are not in force in time (`NETWORK_POLICY_ENFORCING_MODE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EnforcingMode {
    /// The pod starts without its policies.
    Standard,
    /// The pod does not start.
    Strict,
}

impl EnforcingMode {
    /// The value of the setting, also on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Standard => "standard",
            Self::Strict => "strict",
        }
    }
}

impl fmt::Display for EnforcingMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for EnforcingMode {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        match text {
            "standard" => Ok(Self::Standard),
            "strict" => Ok(Self::Strict),
            _ => Err(ParseError { text: text.to_owned(), wanted: "standard or strict" }),
        }
    }
}
