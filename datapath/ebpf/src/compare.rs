//! The comparison of the maps with the contents that were written, a part at a time.

use crate::{
    LoadError, Programs,
    maps::Maps,
    written::{Written, all},
};
use datapath_abi::{Held, address_key, set_key};

/// The place up to which the maps were compared.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    next: usize,
}

/// A map whose rows a program adds up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summed {
    Classes,
    SetRows,
    Rules,
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
        let has_sum = |written: &Written<'_>| match written {
            Written::Class(..) => Summed::Classes.is_small(held),
            Written::SetRow(..) => Summed::SetRows.is_small(held),
            Written::Rule(..) => Summed::Rules.is_small(held),
            Written::Generation(_)
            | Written::Endpoint(..)
            | Written::Row(..)
            | Written::OwnAddress(_)
            | Written::Node(..)
            | Written::Service(..)
            | Written::Prefix(..)
            | Written::SmallTable(..)
            | Written::LargeTable(..) => false,
        };
        let rows = all(held).filter(|written| !has_sum(written));
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

impl Summed {
    const ALL: [Self; 3] = [Self::Classes, Self::SetRows, Self::Rules];

    fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::SetRows => "set_rows",
            Self::Rules => "rules",
        }
    }

    /// The number by which the program `sum_rows` knows the map.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Classes => 0,
            Self::SetRows => 1,
            Self::Rules => 2,
        }
    }

    /// While a program adds up rows, its processor handles no packet. The rows of a larger map are looked up.
    fn is_small(self, held: &Held) -> bool {
        let rows = match self {
            Self::Classes => held.classes.len(),
            Self::SetRows => held.set_rows.len(),
            Self::Rules => held.rules.len(),
        };
        rows <= SUMMED
    }

    /// The sum of the rows that were written, as `sum_rows` of `policy.bpf.c` adds them up.
    fn sum(self, held: &Held) -> u64 {
        match self {
            Self::Classes => total(held.classes.iter().map(|(address, halves)| {
                let [high, low] = words(&address_key(*address));
                [high, low].into_iter().chain(*halves)
            })),
            Self::SetRows => total(held.set_rows.iter().map(|(key, table)| {
                words::<3>(&set_key(*key)).into_iter().chain([u64::from(*table)])
            })),
            Self::Rules => total(held.rules.iter().map(|(number, of)| [u64::from(*number), *of])),
        }
    }
}

fn total<R: IntoIterator<Item = u64>>(rows: impl Iterator<Item = R>) -> u64 {
    rows.map(|row| row.into_iter().fold(1, mix)).fold(0, u64::wrapping_add)
}

fn mix(sum: u64, word: u64) -> u64 {
    let sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    sum ^ (sum >> 32)
}

/// The words of a key, in the order of its bytes.
fn words<const N: usize>(bytes: &[u8]) -> [u64; N] {
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = bytes.try_into().map_or(0, u64::from_ne_bytes);
    }
    words
}

/// The rows of a step, which is the work of a second.
const STEP: usize = 32_768;
/// The rows of the largest map that has a sum.
const SUMMED: usize = 65_536;
