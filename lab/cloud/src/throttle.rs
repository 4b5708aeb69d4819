//! Token buckets, one per action.

use serde::{Deserialize, Serialize};

/// The size and the refill of a token bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    /// Tokens in a full bucket; one call takes one.
    pub burst: u32,
    /// Thousandths of a token that come back per second.
    pub refill_milli_per_second: u32,
}
