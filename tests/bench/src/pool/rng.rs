//! Seeded random numbers.

use config_model::Span;

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Below `bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next().checked_rem(bound).unwrap_or(0)
    }

    /// Up to the span, exclusive.
    pub(crate) fn span(&mut self, most: Span) -> Span {
        Span(self.below(most.0))
    }

    /// The span and up to `percent` of it more, as Kubernetes' `wait.Jitter`.
    pub(crate) fn longer(&mut self, span: Span, percent: u64) -> Span {
        Span(span.0 + self.below(span.0 * percent / 100 + 1))
    }

    /// All items in random order.
    pub(crate) fn shuffled<T>(&mut self, items: impl IntoIterator<Item = T>) -> Vec<T> {
        let mut items: Vec<T> = items.into_iter().collect();
        for at in (1..items.len()).rev() {
            let other = usize::try_from(self.below(at as u64 + 1)).unwrap_or(0);
            items.swap(at, other);
        }
        items
    }
}
