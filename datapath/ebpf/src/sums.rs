//! The sums of rows. The program `sum_rows` of `policy.bpf.c` adds up those of hash maps in the same way.

use datapath_abi::{Held, address_key, set_key, words_of};
use datapath_plan::Address;
use service_abi::FrontendKey;

/// A map whose rows are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summed {
    Classes,
    SetRows,
    Rules,
}

impl Summed {
    pub(crate) const ALL: [Self; 3] = [Self::Classes, Self::SetRows, Self::Rules];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::SetRows => "set_rows",
            Self::Rules => "rules",
        }
    }

    /// The number by which the program `sum_rows` knows the map. `None` if this process adds up its rows.
    pub(crate) fn number(self) -> Option<u32> {
        match self {
            Self::Classes => None,
            Self::SetRows => Some(0),
            Self::Rules => Some(1),
        }
    }

    /// While rows are added up, pods that start wait, or packets of a processor. The rows of a larger map are looked up.
    pub(crate) fn is_small(self, held: &Held) -> bool {
        let rows = match self {
            Self::Classes => held.classes.len(),
            Self::SetRows => held.set_rows.len(),
            Self::Rules => held.rules.len(),
        };
        rows <= SUMMED
    }

    /// The sum of the rows that were written.
    pub(crate) fn sum(self, held: &Held) -> u64 {
        match self {
            Self::Classes => of_classes(held.classes.iter().map(|(at, of)| (*at, *of))),
            Self::SetRows => total(held.set_rows.iter().map(|(key, table)| {
                words_of::<3>(&set_key(*key)).into_iter().chain([u64::from(*table)])
            })),
            Self::Rules => total(held.rules.iter().map(|(number, of)| [u64::from(*number), *of])),
        }
    }
}

/// The number by which the program `sum_rows` knows the map `frontends`.
pub(crate) const FRONTENDS_NUMBER: u32 = 2;

/// The sum of the rows of the map `frontends`.
pub(crate) fn sum_of_frontends(held: &service_abi::Held) -> u64 {
    total(held.frontends.iter().map(|(place, row)| {
        let [row] = words_of(&row.to_bytes());
        words_of::<3>(&FrontendKey::from(*place).0).into_iter().chain([row])
    }))
}

/// The sum of rows of the map `classes`.
pub(crate) fn of_classes(rows: impl Iterator<Item = (Address, [u64; 2])>) -> u64 {
    total(rows.map(|(address, halves)| {
        let [high, low] = words_of(&address_key(address));
        [high, low].into_iter().chain(halves)
    }))
}

fn total<R: IntoIterator<Item = u64>>(rows: impl Iterator<Item = R>) -> u64 {
    rows.map(|row| row.into_iter().fold(1, mix)).fold(0, u64::wrapping_add)
}

fn mix(sum: u64, word: u64) -> u64 {
    let sum = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    sum ^ (sum >> 32)
}

/// The rows of the largest map that has a sum.
const SUMMED: usize = 65_536;
