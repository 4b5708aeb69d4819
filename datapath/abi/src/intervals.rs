//! Interval tables as arrays.

use crate::{
    bytes::{LARGE, LargeTable, SMALL, SmallTable},
    limits::Full,
    numbers::Numbers,
};
use datapath_plan::{Entry, IntervalTable, Reason, RuleName, Verdict};
use policy_core::Decision;
use std::collections::{BTreeMap, BTreeSet};

/// A table with more intervals than [`LARGE`]. It is never truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot encode a table of {intervals} intervals: the limit is {LARGE}; use fewer distinct port ranges"
)]
pub struct TooLong {
    pub intervals: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Fault {
    #[error(transparent)]
    TooLong(#[from] TooLong),
    #[error(transparent)]
    Full(#[from] Full),
}

/// Bit of a table's number: the table is a large one.
pub(crate) const IS_LARGE: u32 = 1 << 31;
/// Bit of a value: the rest is the number of a table over the source port.
pub(crate) const BY_SOURCE: u32 = 1 << 30;
/// Bit of a verdict: its rule asks for events.
pub(crate) const LOGGED: u32 = 1 << 2;
/// The lowest bit of a verdict's cause.
pub(crate) const CAUSE: u32 = 3;
/// Start of an unused interval.
const UNUSED: u32 = u32::MAX;

/// The tables that a target uses, by number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Intervals {
    pub(crate) small: BTreeMap<u32, SmallTable>,
    pub(crate) large: BTreeMap<u32, LargeTable>,
    pub(crate) rules: BTreeMap<u32, u64>,
}

impl Intervals {
    /// Adds a table and returns its number. The verdicts name the rules by their position in `rules`.
    pub(crate) fn add(
        &mut self,
        table: &IntervalTable,
        rules: &[RuleName],
        numbers: &mut Numbers,
    ) -> Result<u32, Fault> {
        let mut intervals = Vec::new();
        for (start, entry) in table.entries() {
            let value = match entry {
                Entry::Verdict(verdict) => self.value(*verdict, rules, numbers)?,
                Entry::BySource(ports) => {
                    let mut of_ports = Vec::new();
                    for (start, verdict) in ports {
                        let value = self.value(*verdict, rules, numbers)?;
                        of_ports.push((u32::from(*start), value));
                    }
                    BY_SOURCE | self.number(&of_ports, numbers)?
                }
            };
            intervals.push((start.0, value));
        }
        self.number(&intervals, numbers)
    }

    fn number(&mut self, intervals: &[(u32, u32)], numbers: &mut Numbers) -> Result<u32, Fault> {
        if intervals.len() <= SMALL {
            let table = bytes(intervals);
            let number = numbers.small.number(&table)?;
            self.small.insert(number, table);
            Ok(number)
        } else if intervals.len() <= LARGE {
            let table = bytes(intervals);
            let number = numbers.large.number(&table)?;
            self.large.insert(number, table);
            Ok(IS_LARGE | number)
        } else {
            Err(TooLong { intervals: intervals.len() }.into())
        }
    }

    /// The decision in the lowest two bits, then [`LOGGED`], and the cause above: 0 for none, 1 for isolation, 2 and
    /// more for a rule.
    fn value(
        &mut self,
        verdict: Verdict,
        rules: &[RuleName],
        numbers: &mut Numbers,
    ) -> Result<u32, Fault> {
        let decision = match verdict.decision {
            Decision::Allow => 0,
            Decision::Drop => 1,
            Decision::Reject => 2,
        };
        let reason = match verdict.reason {
            Reason::Default => 0,
            Reason::Isolation => 1,
            Reason::Rule(id) => match rules.get(id.0 as usize) {
                Some(rule) => {
                    let digest = rule.digest();
                    let number = numbers.rules.number(&digest)?;
                    self.rules.insert(number, digest);
                    number + 2
                }
                None => 0,
            },
        };
        let logged = if verdict.is_logged { LOGGED } else { 0 };
        Ok(decision | logged | reason << CAUSE)
    }
}

/// The values of a table.
fn values(table: &[u8]) -> impl Iterator<Item = u32> {
    table.chunks_exact(8).filter_map(|interval| {
        let (start, value) = interval.split_at(4);
        let word = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.try_into().ok()?));
        Some(word(value)?).filter(|_| word(start) != Some(UNUSED))
    })
}

/// The tables over source ports that a table refers to, and the rules that it names.
pub(crate) fn references(table: &[u8]) -> (BTreeSet<u32>, BTreeSet<u32>) {
    let (mut tables, mut rules) = (BTreeSet::new(), BTreeSet::new());
    for value in values(table) {
        if value & BY_SOURCE != 0 {
            tables.insert(value & !BY_SOURCE);
        } else if let Some(rule) = (value >> CAUSE).checked_sub(2) {
            rules.insert(rule);
        }
    }
    (tables, rules)
}

/// The value of a table for a key, as the kernel looks it up.
#[cfg(test)]
pub(crate) fn look_up(table: &[u8], key: u32) -> u32 {
    let starts = table.chunks_exact(8).map(|interval| {
        let word =
            |at: usize| u32::from_ne_bytes(interval[at..at + 4].try_into().expect("4 bytes"));
        (word(0), word(4))
    });
    starts.take_while(|(start, _)| *start <= key).last().map_or(1, |(_, value)| value)
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
