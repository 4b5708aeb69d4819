//! The versions of the daemon's protocol.

use runtime_socket::{NoCommonVersion, Versions};

/// The supported versions: this build's own and the one before. During an upgrade, plugin and daemon may be one release
/// apart in either direction.
pub const SUPPORTED: Versions = Versions { oldest: 1, newest: 1 };

/// Returns the newest version that both sides support.
///
/// # Errors There is no common version.
pub fn negotiate(theirs: Versions) -> Result<u32, NoCommonVersion> {
    SUPPORTED.negotiate(theirs)
}

#[cfg(test)]
mod tests {
    use super::SUPPORTED;

    #[test]
    fn this_build_speaks_its_own_version_and_at_most_the_one_before() {
        assert_eq!(SUPPORTED.oldest, SUPPORTED.newest.saturating_sub(1).max(1));
    }
}
