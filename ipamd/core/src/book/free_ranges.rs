//! The free addresses of a block as ranges, so that a block of 2⁴⁸ addresses costs only its use.

use std::{collections::BTreeMap, ops::RangeInclusive};

/// The free offsets of a block. Every operation is logarithmic in the number of ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FreeRanges {
    /// First offset of a range → its last. Ranges neither overlap nor touch.
    runs: BTreeMap<u64, u64>,
}

impl FreeRanges {
    /// All of these offsets, at least one.
    pub(super) fn of(offsets: &RangeInclusive<u64>) -> Self {
        Self { runs: BTreeMap::from([(*offsets.start(), *offsets.end())]) }
    }

    /// The lowest free offset.
    pub(super) fn first(&self) -> Option<u64> {
        self.runs.first_key_value().map(|(first, _)| *first)
    }

    #[cfg(test)]
    pub(super) fn runs(&self) -> usize {
        self.runs.len()
    }

    /// Marks the offset as used.
    pub(super) fn take(&mut self, offset: u64) {
        let Some((&first, &last)) = self.runs.range(..=offset).next_back() else { return };
        if last < offset {
            return;
        }
        self.runs.remove(&first);
        if first < offset {
            self.runs.insert(first, offset - 1);
        }
        if offset < last {
            self.runs.insert(offset + 1, last);
        }
    }

    /// Marks the offset as free.
    pub(super) fn put(&mut self, offset: u64) {
        let before = self.runs.range(..=offset).next_back().map(|(first, last)| (*first, *last));
        if before.is_some_and(|(_, last)| last >= offset) {
            return;
        }
        let first = match before {
            Some((first, last)) if last + 1 == offset => first,
            Some(_) | None => offset,
        };
        let after = offset.checked_add(1).and_then(|next| self.runs.remove(&next));
        self.runs.insert(first, after.unwrap_or(offset));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lowest_offset_is_taken_first_and_returned_ones_again() {
        let mut room = FreeRanges::of(&(0..=3));
        for offset in 0..4 {
            assert_eq!(room.first(), Some(offset));
            room.take(offset);
        }
        assert_eq!(room.first(), None);
        for offset in [2, 0, 3, 1] {
            room.put(offset);
        }
        assert_eq!(room, FreeRanges::of(&(0..=3)));
    }

    #[test]
    fn a_second_take_or_put_changes_nothing() {
        let mut room = FreeRanges::of(&(0..=15));
        for _ in 0..2 {
            room.take(5);
            assert_eq!(room.runs, BTreeMap::from([(0, 4), (6, 15)]));
        }
        for _ in 0..2 {
            room.put(5);
            assert_eq!(room, FreeRanges::of(&(0..=15)));
        }
    }

    #[test]
    fn a_huge_block_has_as_many_ranges_as_its_use_needs() {
        let mut room = FreeRanges::of(&(0..=(1 << 48) - 1));
        for offset in 0..1000 {
            room.take(offset * 2);
        }
        assert_eq!((room.first(), room.runs.len()), (Some(1), 1000));
        for offset in 0..1000 {
            room.put(offset * 2);
        }
        assert_eq!(room, FreeRanges::of(&(0..=(1 << 48) - 1)));
    }

    #[test]
    fn ranges_agree_with_a_plain_set() {
        let (mut room, mut plain) =
            (FreeRanges::of(&(0..=63)), std::collections::BTreeSet::from_iter(0..64));
        let mut draw = 7_u64;
        for _ in 0..5000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let offset = (draw >> 33) % 64;
            if draw & 1 == 0 {
                room.take(offset);
                plain.remove(&offset);
            } else {
                room.put(offset);
                plain.insert(offset);
            }
            assert_eq!(room.first(), plain.first().copied());
            let size: u64 = room.runs.iter().map(|(first, last)| last - first + 1).sum();
            assert_eq!(size, u64::try_from(plain.len()).unwrap_or(u64::MAX));
        }
    }
}
