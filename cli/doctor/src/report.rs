//! The report of an examination.

use crate::Check;
use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Information; no fix is necessary.
    Notice,
    /// Breaks pods under some conditions or in the future.
    Warning,
    /// Breaks pods.
    Fault,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    pub check: Check,
    pub severity: Severity,
    /// A link, a rule, a file or a unit.
    pub object: String,
    pub wrong: String,
    pub why: String,
    #[serde(rename = "mend")]
    pub fix: String,
}

/// A check that could not run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unchecked {
    pub check: Check,
    pub why: String,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Checks that ran without a finding.
    pub good: Vec<Check>,
    pub findings: Vec<Finding>,
    /// Checks that could not run.
    pub unseen: Vec<Unchecked>,
}

impl Report {
    /// Returns true if a finding needs a fix.
    pub fn needs_fix(&self) -> bool {
        self.findings.iter().any(|finding| finding.severity > Severity::Notice)
    }

    /// Returns true if a finding may be transient, such as an ADD between two netlink messages. Then a second
    /// observation must confirm it.
    pub fn needs_second_observation(&self) -> bool {
        self.findings.iter().any(|finding| finding.check.is_transient())
    }
}
