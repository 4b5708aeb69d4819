//! The digest of an encoded object.

use sha2::{Digest as _, Sha256};
use std::fmt;

/// SHA-256 over an object's encoding; over the digests of its buckets for a large group ([`group`](crate::group)).
/// Tenants write parts of an encoding, so two encodings with one digest must be infeasible.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of an encoding.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of FIPS 180-4 with three bytes. Replicas of different releases must agree.
    #[test]
    fn a_digest_is_all_of_sha_256() {
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(format!("{:?}", Digest::of(b"abc")), expected);
    }
}
