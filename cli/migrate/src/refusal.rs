//! Reasons against a change of the owner.

use serde::Serialize;

/// What is not understood, and stands in the way.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Refusal {
    /// What it is about: a file, a pod, a link.
    pub object: String,
    /// Why it stands in the way.
    pub cause: String,
    /// What people can do.
    pub next: String,
}

/// What people can do where something could not be looked at.
pub(crate) const UNSEEN: &str = "mend that, and run this as root on the node's network";
