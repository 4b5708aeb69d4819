//! Why EC2 refuses, in words for metrics.

use ipamd_core::THROTTLING_CODES;

/// Why EC2 did not do what it was asked, in a word for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The role may not.
    Denied,
    /// Too many calls.
    Throttled,
    /// A limit of the instance or the account is reached.
    LimitReached,
    /// The subnet has no address or no whole prefix left.
    NoRoom,
}

impl Refusal {
    /// What an error's code says, if it is one of these.
    pub fn of(code: &str) -> Option<Self> {
        match code {
            "UnauthorizedOperation" | "AccessDenied" | "AuthFailure" => Some(Self::Denied),
            "InsufficientFreeAddressesInSubnet" | "InsufficientCidrBlocks" => Some(Self::NoRoom),
            _ if THROTTLING_CODES.contains(&code) => Some(Self::Throttled),
            _ if code.ends_with("LimitExceeded") => Some(Self::LimitReached),
            _ => None,
        }
    }

    /// The word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Denied => "denied",
            Self::Throttled => "throttled",
            Self::LimitReached => "limit_reached",
            Self::NoRoom => "no_room",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_told_from_other_failures() {
        for (code, wanted) in [
            ("UnauthorizedOperation", Some(Refusal::Denied)),
            ("RequestLimitExceeded", Some(Refusal::Throttled)),
            ("AttachmentLimitExceeded", Some(Refusal::LimitReached)),
            ("InsufficientCidrBlocks", Some(Refusal::NoRoom)),
            ("InternalError", None),
        ] {
            assert_eq!(Refusal::of(code), wanted, "{code}");
        }
    }
}
