//! The comparison of the maps with the contents that were written, a part at a time.

use crate::{LoadError, maps::Maps, written::all};
use datapath_abi::Held;

/// The place up to which the maps were compared.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    next: usize,
}

impl Comparison {
    /// Compares the next rows. Returns the map of the first row that differs. A foreign row is not found.
    pub(crate) fn step(
        &mut self,
        held: &Held,
        maps: &Maps,
    ) -> Result<Option<&'static str>, LoadError> {
        let mut compared = 0;
        for written in all(held).skip(self.next).take(STEP) {
            compared += 1;
            if let Some(map) = maps.differs(written)? {
                return Ok(Some(map));
            }
        }
        self.next = if compared < STEP { 0 } else { self.next + compared };
        Ok(None)
    }
}

/// The rows of a step. A step is the work of a second, so that it needs about 1 % of a processor.
const STEP: usize = 32_768;
