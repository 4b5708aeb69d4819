//! What was read, and what was not understood.

use serde::Serialize;

/// A part of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<T> {
    Known(T),
    /// Some of it is not: whoever decides lets it fail closed.
    Unknown(Unknown),
}

/// Why a part is not understood, and what of it could be read nevertheless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unknown {
    /// The object's field and the cause, for people.
    pub why: String,
    /// The rule's name, where the part is a rule that has one.
    pub name: Option<String>,
    /// The rule's action as it is written, where the part is a rule that has one.
    pub action: Option<String>,
}

impl<T> Read<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(known) => Some(known),
            Self::Unknown(_) => None,
        }
    }
}

/// Whom a policy, or a rule of it, is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject<T> {
    pub selects: T,
    /// Why not all of it is understood; then it selects at least those that were meant: a requirement
    /// that is not understood is left out.
    pub doubt: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It is enforced, perhaps not as its author thought: host bits in a CIDR.
    Warning,
    /// It is not understood and fails closed.
    Error,
}

/// What people should know of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Note {
    pub severity: Severity,
    /// The field, such as `spec.ingress[0].from[1].ipBlock.cidr`.
    pub field: String,
    /// What is odd or not understood, what becomes of it, and what to do.
    pub text: String,
}
