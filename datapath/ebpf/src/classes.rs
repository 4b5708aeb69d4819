//! The classes of addresses: the hash table of [`Slots`] in an array.

use crate::{LoadError, grace::GRACE, mapped::Mapped, sums::of_classes};
use aya::maps::{Map, MapData, MapError};
use datapath_abi::{Full, SlotWrite, Slots, is_gone, row_of, slot_rows};
use datapath_plan::Address;
use rustix::rand::{GetRandomFlags, getrandom};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    os::fd::AsFd as _,
    time::Instant,
};

/// The map `classes`.
pub(crate) struct Classes {
    /// Open as long as this value lives.
    _map: MapData,
    entries: Mapped,
    slots: Slots,
    /// The entries whose rows were removed less than a grace period ago.
    resting: BTreeSet<u32>,
    /// The same, the earliest first.
    since: VecDeque<(Instant, u32)>,
}

impl Classes {
    /// Takes a map, and writes the header of a new one.
    pub(crate) fn new(map: Map) -> Result<Self, LoadError> {
        let Map::Array(map) = map else { return Err(LoadError::Absent(CLASSES)) };
        let count = map.info().map_err(fault)?.max_entries();
        let entries = Mapped::new(map.fd().as_fd(), count).map_err(io_fault)?;
        let slots = match Slots::of_header(&entries.read(Slots::HEADER)) {
            Some(slots) => slots,
            None => {
                let slots = Slots::new(count, [random()?, random()?, random()?]);
                entries.write(Slots::HEADER, &slots.header());
                slots
            }
        };
        // An earlier process may have removed their rows just now.
        let gone = (0..entries.entries()).filter(|entry| is_gone(*entry, &entries.read(*entry)));
        let resting: BTreeSet<u32> = gone.collect();
        let now = Instant::now();
        let since = resting.iter().map(|entry| (now, *entry)).collect();
        Ok(Self { _map: map, entries, slots, resting, since })
    }

    /// All rows.
    pub(crate) fn read(&self) -> BTreeMap<Address, [u64; 2]> {
        let entries = 0..self.entries.entries();
        entries.filter_map(|entry| row_of(entry, &self.entries.read(entry))).collect()
    }

    /// The sum of the rows that a program finds.
    pub(crate) fn sum(&self) -> u64 {
        let read = |entry| self.entries.read(entry);
        let rows = (0..self.entries.entries()).filter_map(|entry| {
            let row = row_of(entry, &read(entry))?;
            let found = self.slots.find(row.0, read);
            found.is_some_and(|(at, _)| at == entry).then_some(row)
        });
        of_classes(rows)
    }

    pub(crate) fn get(&self, of: Address) -> Option<[u64; 2]> {
        self.slots.find(of, |entry| self.entries.read(entry)).map(|(_, halves)| halves)
    }

    /// Adds a row or replaces it.
    pub(crate) fn insert(&mut self, of: Address, halves: [u64; 2]) -> Result<(), Full> {
        self.free();
        let rests = |entry: u32| self.resting.contains(&entry);
        let write = self.slots.insert(of, halves, rests, |entry| self.entries.read(entry));
        let limit = slot_rows(self.entries.entries());
        // The place of the address has no free slot: a larger map has other places.
        let full = Full { map: CLASSES, limit, needed: limit.saturating_add(1) };
        self.write(write.ok_or(full)?);
        Ok(())
    }

    /// Removes a row, if it exists.
    pub(crate) fn remove(&mut self, of: Address) {
        self.free();
        if let Some(removed) = self.slots.remove(of, |entry| self.entries.read(entry)) {
            self.write(removed);
            self.resting.insert(removed.0);
            self.since.push_back((Instant::now(), removed.0));
        }
    }

    /// Frees the entries that have rested.
    fn free(&mut self) {
        while let Some((_, entry)) = self.since.pop_front_if(|(since, _)| since.elapsed() > GRACE) {
            self.resting.remove(&entry);
            let rests = |entry: u32| self.resting.contains(&entry);
            let writes = self.slots.free(entry, rests, |entry| self.entries.read(entry));
            writes.into_iter().for_each(|write| self.write(write));
        }
    }

    fn write(&self, (entry, value): SlotWrite) {
        self.entries.write(entry, &value);
    }
}

fn random() -> Result<u64, LoadError> {
    let mut bytes = [0; 8];
    getrandom(bytes.as_mut_slice(), GetRandomFlags::empty())
        .map_err(|errno| io_fault(errno.into()))?;
    Ok(u64::from_ne_bytes(bytes))
}

fn fault(cause: MapError) -> LoadError {
    LoadError::Map { name: CLASSES, cause }
}

fn io_fault(cause: io::Error) -> LoadError {
    fault(MapError::IoError(cause))
}

/// The name of the map.
pub(crate) const CLASSES: &str = "classes";
