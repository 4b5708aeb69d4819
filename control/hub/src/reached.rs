//! Resource versions up to which the cluster was read, and the receiver of reports.

use control_wire::Positions;
use std::collections::BTreeMap;

/// Read positions and receiver of reports, with the content of every bookmark about them.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    kinds: BTreeMap<String, u64>,
    reports_to: String,
    said: Positions,
}

impl Reached {
    /// The resource version up to which each kind was read.
    pub(crate) fn kinds(&self) -> &BTreeMap<String, u64> {
        &self.kinds
    }

    /// Address and port of the replica that takes reports; empty if there is none.
    pub(crate) fn reports_to(&self) -> &str {
        &self.reports_to
    }

    /// Returns the positions that bookmarks contain.
    pub(crate) fn said(&self) -> Positions {
        self.said.clone()
    }

    /// A kind was read up to there.
    pub(crate) fn raise(&mut self, kind: &str, version: u64) {
        if self.kinds.get(kind).is_none_or(|reached| *reached < version) {
            self.set(kind, version);
        }
    }

    /// A kind was read up to there and no further.
    pub(crate) fn set(&mut self, kind: &str, version: u64) {
        self.kinds.insert(kind.to_owned(), version);
        self.say();
    }

    /// Drops the position of a kind that is no longer read.
    pub(crate) fn forget(&mut self, kind: &str) {
        self.kinds.remove(kind);
        self.say();
    }

    /// Another takes the reports. Returns whether it is another.
    pub(crate) fn report_to(&mut self, at: &str) -> bool {
        let is_another = self.reports_to != at;
        if is_another {
            at.clone_into(&mut self.reports_to);
            self.say();
        }
        is_another
    }

    fn say(&mut self) {
        let kinds = self.kinds.iter().map(|(kind, version)| (kind.as_str(), *version));
        self.said = Positions::new(kinds, &self.reports_to);
    }
}
