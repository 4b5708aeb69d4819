//! The classes of addresses: the hash table of [`Slots`] in an array.

use crate::{LoadError, programs::GRACE};
use aya::maps::{Array, MapData, MapError};
use datapath_abi::{Full, SlotValue, SlotWrite, Slots, row_of, slot_rows};
use datapath_plan::Address;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    time::Instant,
};

/// The map `classes`.
pub(crate) struct Classes {
    map: Array<MapData, SlotValue>,
    slots: Slots,
    /// The entries whose rows were removed less than a grace period ago.
    resting: BTreeSet<u32>,
    /// The same, the earliest first.
    since: VecDeque<(Instant, u32)>,
}

impl Classes {
    /// Takes a map, and writes the header of a new one.
    pub(crate) fn new(mut map: Array<MapData, SlotValue>) -> Result<Self, LoadError> {
        let header = map.get(&Slots::HEADER, 0).map_err(fault)?;
        let slots = match Slots::of_header(&header) {
            Some(slots) => slots,
            None => {
                let mut factors = [0; 16];
                let filled = rustix::rand::getrandom(
                    factors.as_mut_slice(),
                    rustix::rand::GetRandomFlags::empty(),
                );
                filled.map_err(|errno| fault(MapError::IoError(errno.into())))?;
                let [first, second] = [&factors[..8], &factors[8..]]
                    .map(|bytes| bytes.try_into().map_or(0, u64::from_ne_bytes));
                let slots = Slots::new(map.len(), [first, second]);
                map.set(Slots::HEADER, slots.header(), 0).map_err(fault)?;
                slots
            }
        };
        Ok(Self { map, slots, resting: BTreeSet::new(), since: VecDeque::new() })
    }

    fn entry(&self) -> impl FnMut(u32) -> Result<SlotValue, MapError> {
        |entry| self.map.get(&entry, 0)
    }

    /// All rows.
    pub(crate) fn read(&self) -> Result<BTreeMap<Address, [u64; 2]>, LoadError> {
        let entries = (0..).zip(self.map.iter());
        let rows = entries.map(|(entry, value)| Ok(row_of(entry, &value.map_err(fault)?)));
        rows.filter_map(Result::transpose).collect()
    }

    pub(crate) fn get(&self, of: Address) -> Result<Option<[u64; 2]>, LoadError> {
        let found = self.slots.find(of, self.entry()).map_err(fault)?;
        Ok(found.map(|(_, halves)| halves))
    }

    /// Adds a row or replaces it.
    pub(crate) fn insert(&mut self, of: Address, halves: [u64; 2]) -> Result<(), LoadError> {
        self.free()?;
        let rests = |entry: u32| self.resting.contains(&entry);
        let writes = self.slots.insert(of, halves, rests, self.entry()).map_err(fault)?;
        let limit = slot_rows(self.map.len());
        // The place of the address has no free slot: a larger map has other places.
        let full = Full { map: CLASSES, limit, needed: limit.saturating_add(1) };
        self.write(&writes.ok_or(full)?)
    }

    /// Removes a row, if it exists.
    pub(crate) fn remove(&mut self, of: Address) -> Result<(), LoadError> {
        self.free()?;
        let Some(removed) = self.slots.remove(of, self.entry()).map_err(fault)? else {
            return Ok(());
        };
        self.write(&[removed])?;
        self.resting.insert(removed.0);
        self.since.push_back((Instant::now(), removed.0));
        Ok(())
    }

    /// Frees the entries that have rested.
    fn free(&mut self) -> Result<(), LoadError> {
        while let Some((_, entry)) = self.since.pop_front_if(|(since, _)| since.elapsed() > GRACE) {
            self.resting.remove(&entry);
            let rests = |entry: u32| self.resting.contains(&entry);
            let writes = self.slots.free(entry, rests, self.entry()).map_err(fault)?;
            self.write(&writes)?;
        }
        Ok(())
    }

    fn write(&mut self, writes: &[SlotWrite]) -> Result<(), LoadError> {
        writes.iter().try_for_each(|(entry, value)| self.map.set(*entry, *value, 0).map_err(fault))
    }
}

fn fault(cause: MapError) -> LoadError {
    LoadError::Map { name: CLASSES, cause }
}

/// The name of the map.
pub(crate) const CLASSES: &str = "classes";
