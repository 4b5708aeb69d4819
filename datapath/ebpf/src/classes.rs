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
    /// Programs that are loaded later refer to its descriptor.
    _map: MapData,
    entries: Mapped,
    slots: Slots,
    /// The entries whose rows were removed less than a grace period ago.
    resting: BTreeSet<u32>,
    /// The same, the earliest first.
    since: VecDeque<(Instant, u32)>,
}

impl Classes {
    /// Maps a map, and writes the header of one that has none. No program finds the rows of another header.
    pub(crate) fn new(map: Map) -> Result<Self, LoadError> {
        let Map::Array(map) = map else { return Err(LoadError::Absent(CLASSES)) };
        let count = map.info().map_err(fault)?.max_entries();
        let entries = Mapped::new(map.fd().as_fd(), count).map_err(io_fault)?;
        let slots = match Slots::of_header(&entries.read(Slots::HEADER), count) {
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

    /// Each entry with a row, and true if a program finds the row there.
    fn rows(&self) -> impl Iterator<Item = (u32, (Address, [u64; 2]), bool)> {
        let read = |entry| self.entries.read(entry);
        (0..self.entries.entries()).filter_map(move |entry| {
            let row = row_of(entry, &read(entry))?;
            let found = self.slots.find(row.0, read);
            Some((entry, row, found.is_some_and(|(at, _)| at == entry)))
        })
    }

    /// The rows that a program finds.
    fn found(&self) -> impl Iterator<Item = (Address, [u64; 2])> {
        self.rows().filter(|(.., is_found)| *is_found).map(|(_, row, _)| row)
    }

    pub(crate) fn read(&self) -> BTreeMap<Address, [u64; 2]> {
        self.found().collect()
    }

    pub(crate) fn sum(&self) -> u64 {
        of_classes(self.found())
    }

    /// Writes the header if another process has changed it. Returns true if it wrote.
    pub(crate) fn repair_header(&self) -> bool {
        let is_changed = self.entries.read(Slots::HEADER) != self.slots.header();
        if is_changed {
            self.entries.write(Slots::HEADER, &self.slots.header());
        }
        is_changed
    }

    /// Removes rows that no program finds. A later row before them would lead to them.
    pub(crate) fn remove_lost(&mut self) {
        let lost = self.rows().filter(|(.., is_found)| !is_found).map(|(entry, ..)| entry);
        let lost: Vec<u32> = lost.collect();
        for entry in &lost {
            self.entries.write(*entry, &Slots::gone());
            self.rest(*entry);
        }
    }

    fn rest(&mut self, entry: u32) {
        self.resting.insert(entry);
        self.since.push_back((Instant::now(), entry));
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
            self.rest(removed.0);
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
