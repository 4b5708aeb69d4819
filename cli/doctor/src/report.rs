//! What an examination tells.

use crate::Check;
use serde::Serialize;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know; nothing needs mending.
    Notice,
    /// Breaks pods under some conditions, or will.
    Warning,
    /// Breaks pods.
    Fault,
}

/// Something that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Which check found it.
    pub check: Check,
    /// How much it matters.
    pub severity: Severity,
    /// What it is about: a link, a rule, a file, a unit.
    pub object: String,
    /// What is wrong.
    pub wrong: String,
    /// Why it matters.
    pub why: String,
    /// How to mend it.
    pub mend: String,
}

/// A check that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unseen {
    /// Which.
    pub check: Check,
    /// Why.
    pub why: String,
}

/// All that an examination tells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The checks that were made and found nothing.
    pub good: Vec<Check>,
    /// What was found.
    pub findings: Vec<Finding>,
    /// The checks that could not be made.
    pub unseen: Vec<Unseen>,
}

impl Report {
    /// Whether anything needs mending.
    pub fn needs_mending(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity > Severity::Notice)
    }

    /// Whether a finding may be a change that is under way, such as an ADD between two messages: then
    /// a second look must agree.
    pub fn wants_second_look(&self) -> bool {
        self.findings.iter().any(|finding| finding.check.is_transient())
    }
}
