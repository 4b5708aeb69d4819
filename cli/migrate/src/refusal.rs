//! Reasons against a change of the owner.

use serde::Serialize;

/// An observation that prevents the change.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Refusal {
    /// A file, a pod or a link.
    pub object: String,
    pub cause: String,
    pub next: String,
}

/// The next step if the node could not be observed.
pub(crate) const UNSEEN: &str =
    "fix the cause and run this as root in the node's network namespace";
