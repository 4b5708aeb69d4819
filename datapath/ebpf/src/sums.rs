//! The sums of rows, as the program `sum_rows` of `policy.bpf.c` adds them up.

use datapath_abi::{Held, address_key, set_key};

/// A map whose rows a program adds up.
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

    /// The number by which the program `sum_rows` knows the map.
    pub(crate) fn number(self) -> u32 {
        match self {
            Self::Classes => 0,
            Self::SetRows => 1,
            Self::Rules => 2,
        }
    }

    /// While a program adds up rows, its processor handles no packet. The rows of a larger map are looked up.
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

/// The rows of the largest map that has a sum.
const SUMMED: usize = 65_536;
