//! Numbers that follow from contents.
//!
//! A set or class has the same number in every compilation and in every process. So the difference of two compilations is
//! small. A row of the kernel never changes its meaning while its set exists.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash, Hasher as _},
};

/// The digest of a value. Another release of the standard library may have other digests: then the whole state is
/// written next to the old one.
pub(crate) fn digest(of: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

/// Numbers that are in use.
#[derive(Debug, Default)]
pub(crate) struct Used(BTreeSet<u64>);

impl Used {
    /// A number for a digest: the digest itself as a rule, and another one if it is in use. The numbers 0, 1 and the
    /// greatest have other meanings. The lowest bit becomes `flag` if there is one.
    pub(crate) fn number(&mut self, mut digest: u64, flag: Option<bool>) -> u64 {
        loop {
            let number = flag.map_or(digest, |flag| digest & !1 | u64::from(flag));
            if number > 1 && number < u64::MAX - 1 && self.0.insert(number) {
                return number;
            }
            digest = self::digest(&digest);
        }
    }

    /// Makes a number available again.
    pub(crate) fn release(&mut self, number: u64) {
        self.0.remove(&number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_digests_have_distinct_numbers_and_keep_their_flag() {
        let mut used = Used::default();
        let numbers: BTreeSet<u64> =
            [8, 8, 9, 8].into_iter().map(|digest| used.number(digest, Some(true))).collect();
        assert_eq!(numbers.len(), 4);
        assert!(numbers.contains(&9) && numbers.iter().all(|number| number % 2 == 1));
        for reserved in [0, 1, u64::MAX] {
            assert!((2..u64::MAX).contains(&used.number(reserved, None)));
        }
    }
}
