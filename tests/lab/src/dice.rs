//! Chance for tests that tell their seed, so that whoever reads of a failure can repeat it.

use anyhow::{Context as _, Result};
use std::time::{SystemTime, UNIX_EPOCH};

/// Splitmix64.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// The same throws for the same seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `bound`, which is not 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }

    /// Takes one of them out.
    pub fn draw<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        let count = u64::try_from(from.len()).ok().filter(|count| *count > 0)?;
        Some(from.swap_remove(usize::try_from(self.below(count)).ok()?))
    }
}

/// The number in this variable of the environment, if it is set.
///
/// # Errors
/// When it is no number.
pub fn number(name: &str) -> Result<Option<u64>> {
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    text.parse().map(Some).with_context(|| format!("{name}={text} is no number"))
}

/// The seed in this variable of the environment, or a new one.
///
/// # Errors
/// When it is no number.
pub fn seed(name: &str) -> Result<u64> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs());
    number(name)?.map_or_else(|| Ok(now()?), Ok)
}
