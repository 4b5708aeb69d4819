//! Resource versions up to which the cluster was read, and the receiver of reports.

use control_wire::Positions;
use std::collections::BTreeMap;

/// Read positions and receiver of reports.
#[derive(Debug, Default)]
pub(crate) struct Reached {
    kinds: BTreeMap<String, u64>,
    reports_to: String,
    /// The encoding of both, which all bookmarks share.
    positions: Positions,
}

impl Reached {
    /// Returns the resource version up to which each kind was read.
    pub(crate) fn kinds(&self) -> &BTreeMap<String, u64> {
        &self.kinds
    }

    /// Returns the address and port of the replica that takes reports; empty if there is none.
    pub(crate) fn reports_to(&self) -> &str {
        &self.reports_to
    }

    pub(crate) fn positions(&self) -> Positions {
        self.positions.clone()
    }

    /// Records that a kind was read up to a version, if that is more than before.
    pub(crate) fn raise(&mut self, kind: &str, version: u64) {
        if self.kinds.get(kind).is_none_or(|reached| *reached < version) {
            self.set(kind, version);
        }
    }

    /// Records that a kind was read up to a version and no further.
    pub(crate) fn set(&mut self, kind: &str, version: u64) {
        self.kinds.insert(kind.to_owned(), version);
        self.encode();
    }

    /// Drops the position of a kind that is no longer read.
    pub(crate) fn forget(&mut self, kind: &str) {
        self.kinds.remove(kind);
        self.encode();
    }

    /// Sets the receiver of reports. Returns whether it has changed.
    pub(crate) fn report_to(&mut self, at: &str) -> bool {
        let is_changed = self.reports_to != at;
        if is_changed {
            at.clone_into(&mut self.reports_to);
            self.encode();
        }
        is_changed
    }

    fn encode(&mut self) {
        let kinds = self.kinds.iter().map(|(kind, version)| (kind.as_str(), *version));
        self.positions = Positions::new(kinds, &self.reports_to);
    }
}
