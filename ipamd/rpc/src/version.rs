//! Which version of the protocol two sides use.

use std::fmt;

/// The versions that this build speaks: its own and the one before, so that plugin and daemon may
/// be one release apart in either direction during an upgrade.
pub const SPOKEN: Versions = Versions { oldest: 1, newest: 1 };

/// A range of protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest version still understood.
    pub oldest: u32,
    /// The newest version understood.
    pub newest: u32,
}

impl Versions {
    /// The newest version that both ranges hold.
    pub fn newest_common(self, theirs: Self) -> Option<u32> {
        let newest = self.newest.min(theirs.newest);
        let spoken_by_both = newest >= self.oldest && newest >= theirs.oldest && newest > 0;
        spoken_by_both.then_some(newest)
    }

    /// Whether the range holds this version.
    pub fn contains(self, version: u32) -> bool {
        (self.oldest..=self.newest).contains(&version)
    }
}

impl fmt::Display for Versions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self { oldest, newest } if oldest == newest => write!(f, "{newest}"),
            Self { oldest, newest } => write!(f, "{oldest} to {newest}"),
        }
    }
}

/// Two sides have no version in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this side speaks protocol version {ours}, the other {theirs}")]
pub struct NoCommonVersion {
    /// What this build speaks.
    pub ours: Versions,
    /// What the other side said.
    pub theirs: Versions,
}

/// The version to use with a peer that speaks `theirs`.
///
/// # Errors
/// When there is no version that both speak.
pub fn negotiate(theirs: Versions) -> Result<u32, NoCommonVersion> {
    SPOKEN.newest_common(theirs).ok_or(NoCommonVersion { ours: SPOKEN, theirs })
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(oldest: u32, newest: u32) -> Versions {
        Versions { oldest, newest }
    }

    #[test]
    fn two_sides_use_the_newest_version_both_speak() {
        for (ours, theirs, used) in [
            (range(1, 1), range(1, 1), Some(1)),
            (range(1, 2), range(2, 3), Some(2)),
            (range(2, 3), range(1, 2), Some(2)),
            (range(1, 4), range(2, 3), Some(3)),
            (range(2, 3), range(4, 5), None),
            (range(4, 5), range(2, 3), None),
        ] {
            assert_eq!(ours.newest_common(theirs), used, "{ours} with {theirs}");
        }
    }

    #[test]
    fn a_peer_one_release_older_or_newer_is_understood() {
        let this = range(4, 5);
        assert_eq!(this.newest_common(range(3, 4)), Some(4));
        assert_eq!(this.newest_common(range(5, 6)), Some(5));
    }

    #[test]
    fn a_peer_that_names_no_version_is_refused() {
        let silent = range(0, 0);
        assert_eq!(negotiate(silent), Err(NoCommonVersion { ours: SPOKEN, theirs: silent }));
        assert_eq!(range(0, 1).newest_common(silent), None);
    }

    #[test]
    fn a_range_turned_round_is_refused() {
        assert_eq!(range(1, 5).newest_common(range(4, 2)), None);
    }

    #[test]
    fn this_build_speaks_its_own_version_and_at_most_the_one_before() {
        assert_eq!(SPOKEN.oldest, SPOKEN.newest.saturating_sub(1).max(1));
    }
}
