//! Pseudo-random numbers that derive from a seed.

#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of this seed for this purpose. Streams are independent.
    pub(crate) fn new(seed: u64, purpose: &str) -> Self {
        Self(mix(seed ^ hash(purpose)))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// A number from `low` to `high`, both included.
    pub(crate) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Returns true in `percent` of a hundred cases.
    pub(crate) fn percent(&mut self, chance: u64) -> bool {
        self.below(100) < chance
    }

    /// Picks one of a non-empty list.
    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        let at = usize::try_from(self.below(of.len() as u64)).unwrap_or(0);
        of[at]
    }

    /// A number mostly near `low`, sometimes up to `high`.
    pub(crate) fn skewed(&mut self, low: u64, high: u64) -> u64 {
        let reach = self.below(high.saturating_sub(low) + 1);
        low + self.below(reach + 1)
    }
}

/// A number that depends only on the arguments, not on earlier draws.
pub(crate) fn draw(seed: u64, purpose: &str, nth: u64) -> u64 {
    mix(mix(seed ^ hash(purpose)).wrapping_add(nth.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
