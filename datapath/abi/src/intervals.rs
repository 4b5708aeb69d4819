//! Interval tables as arrays.

use crate::{LargeTable, SmallTable};
use datapath_plan::{Entry, IntervalTable, Reason, Verdict};
use policy_core::Decision;
use std::collections::BTreeMap;

/// Number of intervals of a small table.
pub const SMALL: usize = 32;
/// Number of intervals of a large table.
pub const LARGE: usize = 1024;

/// A table with more intervals than [`LARGE`]. It is never truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot encode a table of {intervals} intervals: the limit is {LARGE}; use fewer distinct port ranges"
)]
pub struct TooLong {
    pub intervals: usize,
}

/// Bit of a table's number: the table is a large one.
const IS_LARGE: u32 = 1 << 31;
/// Bit of a value: the rest is the number of a table over the source port.
const BY_SOURCE: u32 = 1 << 30;
/// Start of an unused interval.
const UNUSED: u32 = u32::MAX;

/// All tables of the kernel, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    numbers: BTreeMap<Vec<(u32, u32)>, u32>,
    pub(crate) small: Vec<SmallTable>,
    pub(crate) large: Vec<LargeTable>,
}

impl Intervals {
    /// Adds a table and returns its number.
    pub(crate) fn add(&mut self, table: &IntervalTable) -> Result<u32, TooLong> {
        let mut intervals = Vec::new();
        for (start, entry) in table.entries() {
            let value = match entry {
                Entry::Verdict(verdict) => value_of(*verdict),
                Entry::BySource(ports) => {
                    let ports = ports.iter();
                    let ports = ports.map(|(start, of)| (u32::from(*start), value_of(*of)));
                    BY_SOURCE | self.number(ports.collect())?
                }
            };
            intervals.push((start.0, value));
        }
        self.number(intervals)
    }

    fn number(&mut self, intervals: Vec<(u32, u32)>) -> Result<u32, TooLong> {
        if let Some(number) = self.numbers.get(&intervals) {
            return Ok(*number);
        }
        let count = |tables: usize| u32::try_from(tables).unwrap_or(u32::MAX);
        let number = if intervals.len() <= SMALL {
            self.small.push(bytes(&intervals));
            count(self.small.len() - 1)
        } else if intervals.len() <= LARGE {
            self.large.push(bytes(&intervals));
            IS_LARGE | count(self.large.len() - 1)
        } else {
            return Err(TooLong { intervals: intervals.len() });
        };
        self.numbers.insert(intervals, number);
        Ok(number)
    }
}

fn bytes<const N: usize>(intervals: &[(u32, u32)]) -> [u8; N] {
    let mut bytes = [0; N];
    let unused = std::iter::repeat(&(UNUSED, 0));
    for (place, (start, value)) in bytes.chunks_exact_mut(8).zip(intervals.iter().chain(unused)) {
        let (first, second) = place.split_at_mut(4);
        first.copy_from_slice(&start.to_ne_bytes());
        second.copy_from_slice(&value.to_ne_bytes());
    }
    bytes
}

/// The decision in the lowest two bits and the reason above: 0 for none, 1 for isolation, 2 and more for a rule.
fn value_of(verdict: Verdict) -> u32 {
    let decision = match verdict.decision {
        Decision::Allow => 0,
        Decision::Drop => 1,
        Decision::Reject => 2,
    };
    let reason = match verdict.reason {
        Reason::Default => 0,
        Reason::Isolation => 1,
        Reason::Rule(id) => id.0 + 2,
    };
    decision | reason << 2
}
