//! Parts of objects that were read, and parts that were not understood.

use serde::Serialize;

/// A part of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read<T> {
    Known(T),
    /// A part is not understood: the component that decides lets it fail closed.
    Unknown(Unknown),
}

/// Reason why a part is not understood, and the content that could still be read.
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

/// Subject of a policy or of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject<T> {
    pub selects: T,
    /// Reason why a part is not understood. The subject then selects at least the intended pods: a requirement
    /// that is not understood is omitted.
    pub doubt: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The part is enforced, but perhaps not as the author intended: host bits in a CIDR.
    Warning,
    /// The part is not understood and fails closed.
    Error,
}

/// A note for people about an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Note {
    pub severity: Severity,
    /// The field, such as `spec.ingress[0].from[1].ipBlock.cidr`.
    pub field: String,
    /// The part that is odd or not understood, the effect, and the next step.
    pub text: String,
}
