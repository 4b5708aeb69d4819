//! The digest of an encoded object.

use sha1::{Digest as _, Sha1};
use std::fmt;

/// The first half of SHA-1 over an object's encoding; over the digests of its buckets for a large group
/// ([`group`](crate::group)).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 16]);

impl Digest {
    /// The digest of an encoding.
    pub fn of(bytes: &[u8]) -> Self {
        let mut digest = [0; 16];
        digest.copy_from_slice(&Sha1::digest(bytes)[..16]);
        Self(digest)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
