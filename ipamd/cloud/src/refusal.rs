//! The classes of EC2's refusals, for metrics.

use ipamd_core::THROTTLING_CODES;

/// A class of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// The role lacks a permission.
    Denied,
    /// Too many calls.
    Throttled,
    /// A limit of the instance or the account is reached.
    LimitReached,
    /// The subnet has no free address or no free whole prefix.
    NoRoom,
}

impl Refusal {
    /// The class of an error code, if it has one.
    pub fn of(code: &str) -> Option<Self> {
        match code {
            "UnauthorizedOperation" | "AccessDenied" | "AuthFailure" => Some(Self::Denied),
            "InsufficientFreeAddressesInSubnet" | "InsufficientCidrBlocks" => Some(Self::NoRoom),
            _ if THROTTLING_CODES.contains(&code) => Some(Self::Throttled),
            _ if code.ends_with("LimitExceeded") => Some(Self::LimitReached),
            _ => None,
        }
    }

    /// The value of the metric label.
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
    fn a_refusal_differs_from_other_failures() {
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
