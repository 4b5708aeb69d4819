//! Settings with which a program does not start.

/// Settings with which the daemon must not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("{setting}={value} is refused: it must be {wanted}")]
    Invalid {
        setting: &'static str,
        /// The value, as far as it may be shown.
        value: String,
        wanted: &'static str,
    },
    /// Two settings that cannot both hold.
    #[error("{first} and {second} contradict each other: {why}")]
    Contradiction {
        /// One, with its value.
        first: String,
        /// The other, with its value.
        second: String,
        /// What the rule is, and what to do.
        why: &'static str,
    },
    /// A mode that this version does not have.
    #[error("{setting} asks for what this version does not have: {why}")]
    Unsupported { setting: &'static str, why: &'static str },
}
