//! Ranges of protocol versions.

use std::fmt;

/// A range of protocol versions, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Versions {
    /// The oldest version that is still understood.
    pub oldest: u32,
    /// The newest version that is understood.
    pub newest: u32,
}

impl Versions {
    /// The newest version that both ranges contain.
    pub fn newest_common(self, theirs: Self) -> Option<u32> {
        let newest = self.newest.min(theirs.newest);
        let spoken_by_both = newest >= self.oldest && newest >= theirs.oldest && newest > 0;
        spoken_by_both.then_some(newest)
    }

    /// The version to use with a peer that speaks `theirs`.
    ///
    /// # Errors
    /// When there is no version that both speak.
    pub fn negotiate(self, theirs: Self) -> Result<u32, NoCommonVersion> {
        self.newest_common(theirs).ok_or(NoCommonVersion { ours: self, theirs })
    }

    /// Returns true if the range contains this version.
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

/// The two sides of a connection have no version in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this side speaks protocol version {ours}, the other {theirs}")]
pub struct NoCommonVersion {
    /// The versions that this build speaks.
    pub ours: Versions,
    /// The versions that the other side sent.
    pub theirs: Versions,
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
        let (ours, silent) = (range(1, 1), range(0, 0));
        assert_eq!(ours.negotiate(silent), Err(NoCommonVersion { ours, theirs: silent }));
        assert_eq!(range(0, 1).newest_common(silent), None);
    }

    #[test]
    fn a_reversed_range_is_refused() {
        assert_eq!(range(1, 5).newest_common(range(4, 2)), None);
    }
}
