//! The versions of the daemon's protocol.

use runtime_socket::{NoCommonVersion, Versions};

/// The versions that this build speaks: its own and the one before, so that plugin and daemon may
/// be one release apart in either direction during an upgrade.
pub const SPOKEN: Versions = Versions { oldest: 1, newest: 1 };

/// The version to use with a peer that speaks `theirs`.
///
/// # Errors
/// When there is no version that both speak.
pub fn negotiate(theirs: Versions) -> Result<u32, NoCommonVersion> {
    SPOKEN.negotiate(theirs)
}

#[cfg(test)]
mod tests {
    use super::SPOKEN;

    #[test]
    fn this_build_speaks_its_own_version_and_at_most_the_one_before() {
        assert_eq!(SPOKEN.oldest, SPOKEN.newest.saturating_sub(1).max(1));
    }
}
