//! The hash table in the map `classes`: slots with open addressing, as `slot_of` of `policy.bpf.c` reads them.
//!
//! The words of a slot are written one at a time, the first word last. After each word every other address has the row that
//! it had.

use crate::bytes::{AddressKey, address, address_key, words, words_of};
use datapath_plan::Address;

/// An entry of the map: the second half of an address, the first half, and both halves of its class.
pub type SlotValue = [u8; 32];

/// The hash of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    factors: [u64; 3],
    /// The number of slots less 1: a power of two less 1.
    last: u32,
}

/// An entry with its new value. The caller writes the first word last.
pub type SlotWrite = (u32, SlotValue);

/// True for an address that has no slot, because its second half marks a slot without an address. Its class is in
/// `prefixes`.
pub fn has_no_slot(of: Address) -> bool {
    let [_, low] = words_of(&address_key(of));
    low == FREE || low == GONE
}

/// The number of entries that hold this number of rows: at most one half of the slots is in use.
pub const fn slot_entries(rows: u32) -> u32 {
    rows.saturating_mul(2).saturating_add(FIRST)
}

/// The rows that this number of entries holds.
pub const fn slot_rows(entries: u32) -> u32 {
    entries.saturating_sub(FIRST) / 2
}

/// True for an entry whose row was removed.
pub fn is_gone(entry: u32, value: &SlotValue) -> bool {
    entry >= FIRST && marker(value) == GONE
}

/// The row of an entry. `None` if it has none.
pub fn row_of(entry: u32, value: &SlotValue) -> Option<(Address, [u64; 2])> {
    let [low, high, even, odd] = words_of(value);
    if entry < FIRST || low == FREE || low == GONE {
        return None;
    }
    let mut key = AddressKey::default();
    key[..8].copy_from_slice(&high.to_ne_bytes());
    key[8..].copy_from_slice(&low.to_ne_bytes());
    Some((address(key), [even, odd]))
}

impl Slots {
    /// An empty table. `entries` is that of [`slot_entries`] for a power of two. The factors are random.
    pub fn new(entries: u32, factors: [u64; 3]) -> Self {
        // An even factor would lose bits.
        Self { factors: factors.map(|of| of | 1), last: entries.saturating_sub(FIRST + 1) }
    }

    /// The table of a header. `None` if it is not the header of a map with this number of entries.
    pub fn of_header(value: &SlotValue, entries: u32) -> Option<Self> {
        let [first, second, _, third] = words_of(value);
        let table = Self::new(entries, [first, second, third]);
        (table.header() == *value).then_some(table)
    }

    /// The value of entry [`Self::HEADER`].
    pub fn header(&self) -> SlotValue {
        words([self.factors[0], self.factors[1], u64::from(self.last), self.factors[2]])
    }

    /// The value of an entry whose row was removed.
    pub fn gone() -> SlotValue {
        words([GONE, 0, 0, 0])
    }

    /// The entry of the header.
    pub const HEADER: u32 = 0;

    /// The entries in which a row can be, in order.
    fn probes(&self, of: Address) -> impl Iterator<Item = u32> + use<> {
        let [high, low] = words_of(&address_key(of));
        let [first, second, third] = self.factors;
        let term = |word: u64, factor: u64| (word & 0xffff_ffff).wrapping_mul(factor);
        let hash = term(low, first)
            .wrapping_add(term(low >> 32, second))
            .wrapping_add(term(high, third))
            .wrapping_add(term(high >> 32, first ^ (third << 1)));
        let high = u32::try_from(hash >> 32).unwrap_or_default();
        let (first, last) = (high & self.last & !1, self.last);
        (0..PROBES).map(move |probe| FIRST + (first.wrapping_add(probe) & last))
    }

    /// The row of an address, with its entry.
    pub fn find(
        &self,
        of: Address,
        mut read: impl FnMut(u32) -> SlotValue,
    ) -> Option<(u32, [u64; 2])> {
        for entry in self.probes(of) {
            let found = read(entry);
            if let Some((_, halves)) = row_of(entry, &found).filter(|(at, _)| *at == of) {
                return Some((entry, halves));
            }
            if marker(&found) == FREE {
                break;
            }
        }
        None
    }

    /// The write that adds a row or replaces it. `None` if no slot is free. `rests` is true for an entry whose row was
    /// removed less than a grace period ago.
    pub fn insert(
        &self,
        of: Address,
        halves: [u64; 2],
        rests: impl Fn(u32) -> bool,
        mut read: impl FnMut(u32) -> SlotValue,
    ) -> Option<SlotWrite> {
        let [high, low] = words_of(&address_key(of));
        let row = words([low, high, halves[0], halves[1]]);
        let mut free = None;
        for entry in self.probes(of) {
            let found = read(entry);
            if row_of(entry, &found).is_some_and(|(at, _)| at == of) {
                return Some((entry, row));
            }
            let marker = marker(&found);
            if (marker == FREE || marker == GONE) && !rests(entry) {
                free.get_or_insert(entry);
            }
            if marker == FREE {
                break;
            }
        }
        free.map(|entry| (entry, row))
    }

    /// The write that removes a row. `None` if the address has none. The caller keeps the entry from other rows for a grace
    /// period, and then frees it.
    pub fn remove(&self, of: Address, read: impl FnMut(u32) -> SlotValue) -> Option<SlotWrite> {
        let [high, _] = words_of(&address_key(of));
        let (entry, halves) = self.find(of, read)?;
        Some((entry, words([GONE, high, halves[0], halves[1]])))
    }

    /// The writes after which probes stop at an entry that is gone, and at those before it, if no row is behind them.
    pub fn free(
        &self,
        entry: u32,
        rests: impl Fn(u32) -> bool,
        mut read: impl FnMut(u32) -> SlotValue,
    ) -> Vec<SlotWrite> {
        let step = |entry: u32, by: u32| {
            FIRST + ((entry.wrapping_sub(FIRST)).wrapping_add(by) & self.last)
        };
        let mut writes = Vec::new();
        if marker(&read(step(entry, 1))) != FREE {
            return writes;
        }
        let mut at = entry;
        while writes.len() < PROBES as usize && !rests(at) && marker(&read(at)) == GONE {
            writes.push((at, SlotValue::default()));
            at = step(at, u32::MAX);
        }
        writes
    }
}

fn marker(of: &SlotValue) -> u64 {
    let [low, ..] = words_of::<4>(of);
    low
}

/// `FIRST_SLOT` of `datapath/bpf/tables.h`.
const FIRST: u32 = 2;
/// As in `datapath/bpf/tables.h`.
const PROBES: u32 = 128;
/// `SLOT_FREE` of `datapath/bpf/tables.h`.
const FREE: u64 = 0;
/// `SLOT_GONE` of `datapath/bpf/tables.h`.
const GONE: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*, test_runner::TestCaseResult};
    use std::collections::{BTreeMap, BTreeSet};

    /// A small table: its rows are in few places, so their probes meet.
    const ENTRIES: u32 = slot_entries(8);
    const ADDRESSES: u8 = 24;

    struct Table {
        slots: Slots,
        memory: Vec<SlotValue>,
        resting: BTreeSet<u32>,
        rows: BTreeMap<Address, [u64; 2]>,
    }

    #[derive(Clone, Debug)]
    enum Step {
        Insert(u8, u64),
        Remove(u8),
        Grace,
    }

    fn of(number: u8) -> Address {
        // Neighbors, and addresses whose halves are those of others.
        let (high, low) = (u128::from(number / 8), u128::from(number % 8 + 1));
        Address(high << 64 | low)
    }

    impl Table {
        fn read(&self) -> impl FnMut(u32) -> SlotValue {
            |entry| self.memory[entry as usize]
        }

        fn found(&self) -> BTreeMap<Address, [u64; 2]> {
            let row = |at| Some((at, self.slots.find(at, self.read())?.1));
            (0..ADDRESSES).map(of).filter_map(row).collect()
        }

        /// Carries out a write of a row, word by word. Between two words each half of the row is that before or after.
        fn write(&mut self, (entry, value): SlotWrite, at: Option<Address>) -> TestCaseResult {
            let before = self.found();
            for word in (0..4).rev().map(|word| word * 8..word * 8 + 8) {
                self.memory[entry as usize][word.clone()].copy_from_slice(&value[word]);
                let now = self.found();
                for address in (0..ADDRESSES).map(of).filter(|of| Some(*of) != at) {
                    prop_assert_eq!(now.get(&address), before.get(&address), "{:?}", address);
                }
                for half in at.iter().flat_map(|at| [(at, 0), (at, 1)]) {
                    let [was, is, now] = [&before, &self.rows, &now]
                        .map(|of| of.get(half.0).map(|halves| halves[half.1]));
                    prop_assert!([was, is].contains(&now));
                }
            }
            Ok(())
        }

        fn run(&mut self, step: &Step) -> TestCaseResult {
            match step {
                Step::Insert(number, class) => {
                    let (at, halves) = (of(*number), [*class, *class + 1]);
                    let rests = |entry: u32| self.resting.contains(&entry);
                    let write = self.slots.insert(at, halves, rests, self.read());
                    let Some(write) = write else { return Ok(()) };
                    prop_assert!(!self.resting.contains(&write.0));
                    self.rows.insert(at, halves);
                    self.write(write, Some(at))?;
                }
                Step::Remove(number) => {
                    let at = of(*number);
                    let removed = self.slots.remove(at, self.read());
                    prop_assert_eq!(removed.is_some(), self.rows.remove(&at).is_some());
                    if let Some(write) = removed {
                        self.resting.insert(write.0);
                        self.write(write, Some(at))?;
                    }
                }
                Step::Grace => {
                    while let Some(entry) = self.resting.pop_first() {
                        let rests = |entry: u32| self.resting.contains(&entry);
                        for write in self.slots.free(entry, rests, self.read()) {
                            self.write(write, None)?;
                        }
                    }
                }
            }
            prop_assert_eq!(&self.found(), &self.rows);
            Ok(())
        }
    }

    proptest! {
        #[test]
        fn each_write_leaves_the_rows_of_other_addresses(
            factors in any::<[u64; 3]>(),
            steps in vec(prop_oneof![
                4 => (0..ADDRESSES, any::<u32>()).prop_map(|(at, of)| Step::Insert(at, u64::from(of))),
                4 => (0..ADDRESSES).prop_map(Step::Remove),
                1 => Just(Step::Grace),
            ], 0..80),
        ) {
            let slots = Slots::new(ENTRIES, factors);
            prop_assert_eq!(Slots::of_header(&slots.header(), ENTRIES), Some(slots));
            prop_assert_eq!(Slots::of_header(&slots.header(), ENTRIES + 16), None);
            prop_assert_eq!(Slots::of_header(&SlotValue::default(), ENTRIES), None);
            let memory = vec![SlotValue::default(); ENTRIES as usize];
            let (resting, rows) = (BTreeSet::new(), BTreeMap::new());
            let mut table = Table { slots, memory, resting, rows };
            for step in &steps {
                table.run(step)?;
            }
            // Rows that were removed leave free slots.
            for number in 0..ADDRESSES {
                table.run(&Step::Remove(number))?;
            }
            table.run(&Step::Grace)?;
            // A full table has no end of a probe any longer.
            let mut markers = table.memory.iter().skip(FIRST as usize).map(marker);
            let expected = if markers.next() == Some(FREE) { FREE } else { GONE };
            prop_assert!(markers.all(|of| of == expected));
        }
    }

    #[test]
    fn a_table_at_its_limit_has_room() {
        // Of neighboring addresses in both families, as nodes give them to pods.
        let v4 = (0..32_768_u128).map(|at| Address(0xffff_0a00_0000 + at));
        // A range for each node, and pods in order.
        let v6 = (0..32_768_u128)
            .map(|at| Address((0x2001_0db8 << 96) + ((at / 128) << 64) + at % 128 + 1));
        let slots = Slots::new(
            slot_entries(65_536),
            [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03, 0xaef1_7502_108e_f2d9],
        );
        let mut memory = vec![SlotValue::default(); slot_entries(65_536) as usize];
        let mut longest = 0;
        for at in v4.chain(v6) {
            let write = slots.insert(at, [7; 2], |_| false, |entry| memory[entry as usize]);
            let (entry, value) = write.unwrap_or_else(|| panic!("no slot for {at:?}"));
            let probe = slots.probes(at).position(|probed| probed == entry);
            longest = longest.max(probe.unwrap_or_default());
            memory[entry as usize] = value;
        }
        assert!(longest < 96, "the row of an address is {longest} slots behind its place");
    }

    #[test]
    fn markers_are_no_addresses() {
        let subnet = Address(0x2001_0db8 << 96);
        assert!(has_no_slot(subnet) && has_no_slot(Address(u128::MAX)));
        assert!(!has_no_slot(Address(1)) && !has_no_slot(Address(0xffff_0000_0000)));
        assert_eq!(slot_rows(slot_entries(16_384)), 16_384);
    }
}
