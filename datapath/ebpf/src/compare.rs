//! The comparison of the maps with the contents that were written, a part at a time.

use crate::{LoadError, Programs, maps::Maps, sums::Summed, written::looked_up};
use datapath_abi::Held;

/// The place up to which the maps were compared.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    next: usize,
}

impl Comparison {
    /// Compares the next rows, and the sums of the maps that are not too large. Returns the map of the first row that
    /// differs. A foreign row is found in a map that has a sum.
    pub(crate) fn step(
        &mut self,
        held: &Held,
        programs: &mut Programs,
    ) -> Result<Option<&'static str>, LoadError> {
        for map in Summed::ALL.into_iter().filter(|map| map.is_small(held)) {
            if programs.sum(map)? != map.sum(held) {
                return Ok(Some(map.name()));
            }
        }
        self.step_rows(held, programs.maps())
    }

    /// Compares the next rows of maps without a sum.
    fn step_rows(&mut self, held: &Held, maps: &Maps) -> Result<Option<&'static str>, LoadError> {
        let mut compared = 0;
        let rows = looked_up(held, |map| !map.is_small(held));
        for written in rows.skip(self.next).take(STEP) {
            compared += 1;
            if let Some(map) = maps.differs(written)? {
                return Ok(Some(map));
            }
        }
        self.next = if compared < STEP { 0 } else { self.next + compared };
        Ok(None)
    }
}

/// The rows of a step, which is the work of a second.
const STEP: usize = 32_768;
