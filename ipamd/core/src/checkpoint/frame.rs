//! The checkpoint's frames: each payload is one record as JSON.

pub use runtime_frame::{Damage, Recovered, decode, encode, image};

use super::Record;

/// The first line of the file.
pub const HEADER: &[u8] = b"ferrule-ipam 1\n";

impl runtime_frame::Record for Record {
    const HEADER: &'static [u8] = HEADER;
    /// A record is a few hundred bytes.
    const LONGEST: usize = 64 * 1024;
    /// Each record is complete by itself, and the sum is only a hint.
    const COUNTS_AFTER_DAMAGE: bool = true;

    fn encode(&self, out: &mut Vec<u8>) {
        serde_json::to_writer(out, self).expect("a record holds only text, numbers and lists");
    }

    fn decode(payload: &[u8]) -> Option<Self> {
        serde_json::from_slice(payload).ok()
    }
}
