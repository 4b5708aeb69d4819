//! Settings with which a program does not start.

/// Settings with which the daemon must not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("cannot use {setting}={value}: it must be {wanted}")]
    Invalid {
        setting: &'static str,
        /// The value, as far as it may be shown.
        value: String,
        wanted: &'static str,
    },
    /// Two settings that cannot both hold.
    #[error("cannot combine {first} and {second}: {why}")]
    Contradiction {
        /// One, with its value.
        first: String,
        /// The other, with its value.
        second: String,
        /// The rule, and the next step.
        why: &'static str,
    },
    /// A mode that this version does not have.
    #[error("cannot use {setting}: this version lacks the mode: {why}")]
    Unsupported { setting: &'static str, why: &'static str },
}
