//! Random numbers from a seed. Tests print the seed, so that a failure can be repeated.

use anyhow::{Context as _, Result};
use std::time::{SystemTime, UNIX_EPOCH};

/// A SplitMix64 generator.
#[derive(Debug)]
pub struct Dice(u64);

impl Dice {
    /// Returns a generator; equal seeds give equal sequences.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % bound
    }

    /// Removes a random item; `None` if there is none.
    pub fn draw<T>(&mut self, from: &mut Vec<T>) -> Option<T> {
        let count = u64::try_from(from.len()).ok().filter(|count| *count > 0)?;
        Some(from.swap_remove(usize::try_from(self.below(count)).ok()?))
    }
}

/// Returns the number in the environment variable `name`; `None` if it is not set.
///
/// # Errors
/// If the value is not a number.
pub fn number(name: &str) -> Result<Option<u64>> {
    let Ok(text) = std::env::var(name) else { return Ok(None) };
    text.parse().map(Some).with_context(|| format!("{name}={text} is not a number"))
}

/// Returns the seed in the environment variable `name`, or the time in seconds if it is not set.
///
/// # Errors
/// If the value is not a number.
pub fn seed(name: &str) -> Result<u64> {
    let now = || SystemTime::now().duration_since(UNIX_EPOCH).map(|since| since.as_secs());
    number(name)?.map_or_else(|| Ok(now()?), Ok)
}
