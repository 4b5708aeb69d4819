//! Seeded numbers: the same seed gives the same cloud.

/// SplitMix64: small, and good enough to make ids and addresses look random.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `bound`; 0 if the bound is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// An id as EC2 makes them: the prefix, a zero and sixteen hex digits.
    pub(crate) fn id(&mut self, prefix: &str) -> String {
        format!("{prefix}-0{:016x}", self.next())
    }
}

/// Scatters the bits of a number.
pub(crate) fn mix(number: u64) -> u64 {
    let z = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
