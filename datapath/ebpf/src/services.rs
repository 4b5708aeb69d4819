//! The maps of Services: those of `datapath/bpf/service.h`.

use crate::{
    LoadError,
    fast::{FastRow, FastWrite},
    grace::GRACE,
    maps::{FAST_PODS, Layout, SOURCE_RANGES, WIRES, gone, typed},
    wires::{Wire, Wires},
};
use aya::{
    Ebpf,
    maps::{Array, HashMap, LpmTrie, MapData, MapError, lpm_trie::Key},
};
use datapath_abi::{AddressKey, address_key};
use service_abi::{
    BackendRow, FrontendKey, FrontendRow, Held, Limits, Row, SocketKey, SourceKey, TableSize,
    TableSlot, Word, Write,
};
use service_core::Place;
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    thread,
};

type Small = [u32; 16];
type Medium = [u32; 512];
type Large = [u32; 8192];

pub(crate) struct ServiceMaps {
    frontends: HashMap<MapData, [u8; 24], [u8; 8]>,
    sources: LpmTrie<MapData, [u8; 20], u32>,
    words: Array<MapData, u64>,
    small: Array<MapData, Small>,
    medium: Array<MapData, Medium>,
    large: Array<MapData, Large>,
    backends: Array<MapData, [u8; 24]>,
    wires: HashMap<MapData, u32, WireRow>,
    asked: HashMap<MapData, [u8; 32], [u8; 32]>,
    fast: HashMap<MapData, AddressKey, FastRow>,
    limits: Limits,
}

/// The addresses of a link, then its gateways: of IPv4, then of IPv6.
type WireRow = [u8; 64];

fn wire_rows(wires: &Wires) -> BTreeMap<u32, WireRow> {
    wires.iter().map(|(link, wire)| (*link, wire_row(*wire))).collect()
}

fn wire_row(wire: Wire) -> WireRow {
    let mut row = [0; 64];
    let addresses = wire.addresses.into_iter().chain(wire.gateways);
    for (place, address) in row.chunks_exact_mut(16).zip(addresses) {
        if let Some(address) = address {
            place.copy_from_slice(&address_key(address.into()));
        }
    }
    row
}

impl ServiceMaps {
    pub(crate) fn take(ebpf: &mut Ebpf, layouts: &[Layout]) -> Result<Self, LoadError> {
        let rows = |name| layouts.iter().find(|of| of.name == name).map_or(0, |of| of.rows);
        Ok(Self {
            frontends: typed(ebpf, "frontends")?,
            sources: typed(ebpf, SOURCE_RANGES)?,
            words: typed(ebpf, "service_words")?,
            small: typed(ebpf, TableSize::Small.map())?,
            medium: typed(ebpf, TableSize::Medium.map())?,
            large: typed(ebpf, TableSize::Large.map())?,
            backends: typed(ebpf, "backends")?,
            wires: typed(ebpf, WIRES)?,
            asked: typed(ebpf, ASKED)?,
            fast: typed(ebpf, FAST_PODS)?,
            limits: Limits {
                frontends: rows("frontends"),
                sources: rows(SOURCE_RANGES),
                words: rows("service_words"),
                small: rows(TableSize::Small.map()),
                medium: rows(TableSize::Medium.map()),
                large: rows(TableSize::Large.map()),
                backends: rows("backends"),
            },
        })
    }

    /// Reads the rows that packets can reach, and those of source ranges and backends. Rows that no release writes are left
    /// out.
    pub(crate) fn read(&self) -> Result<Held, LoadError> {
        let at = |name| move |cause| LoadError::Map { name, cause };
        let mut held = Held { limits: self.limits, ..Held::default() };
        for row in self.frontends.iter() {
            let (key, value) = row.map_err(at("frontends"))?;
            let Some(place) = FrontendKey(key).place() else { continue };
            held.frontends.insert(place, FrontendRow::from_bytes(&value));
        }
        for (word, range) in self.source_keys()?.iter().filter_map(SourceKey::range) {
            held.sources.entry(word).or_default().insert(range);
        }
        let words = held.frontends.values().flat_map(|row| [row.word, row.word.saturating_add(1)]);
        let words: Vec<u32> = words.filter(|number| *number < self.limits.words).collect();
        for number in words {
            let word = self.words.get(&number, 0).map_err(at("service_words"))?;
            let Some(word) = Word::from_number(word) else { continue };
            if let Word::Table { slot, count } = word {
                self.read_table(slot, count, &mut held)?;
            }
            held.words.insert(number, word);
        }
        let last = held.tables.values().flat_map(|table| table.iter().copied()).max();
        for number in 0..self.limits.backends {
            let row = self.backends.get(&number, 0).map_err(at("backends"))?;
            let row = BackendRow::from_bytes(&row);
            // Numbers are given in their order. Another process may have removed a row before the last one.
            if row.life == 0 && last.is_none_or(|last| number > last) {
                break;
            }
            held.backends.insert(number, row);
        }
        Ok(held)
    }

    /// True if a Service led the socket to the backend.
    pub(crate) fn has_asked(&self, key: &SocketKey) -> Result<bool, LoadError> {
        match self.asked.get(&key.0, 0) {
            Ok(_) => Ok(true),
            Err(MapError::KeyNotFound) => Ok(false),
            Err(cause) => Err(LoadError::Map { name: ASKED, cause }),
        }
    }

    /// Adds the places of a table that a word uses, if another word does not use more of them.
    fn read_table(&self, slot: TableSlot, count: u16, held: &mut Held) -> Result<(), LoadError> {
        let count = usize::from(count);
        if slot.number >= self.limits_of(slot.size) || count > slot.size.places() {
            return Ok(());
        }
        match held.tables.entry(slot) {
            Entry::Occupied(known) if known.get().len() >= count => {}
            Entry::Occupied(mut known) => {
                known.insert(self.table(slot)?[..count].into());
            }
            Entry::Vacant(new) => {
                new.insert(self.table(slot)?[..count].into());
            }
        }
        Ok(())
    }

    fn limits_of(&self, size: TableSize) -> u32 {
        match size {
            TableSize::Small => self.limits.small,
            TableSize::Medium => self.limits.medium,
            TableSize::Large => self.limits.large,
        }
    }

    fn source_keys(&self) -> Result<BTreeSet<SourceKey>, LoadError> {
        let key = |key: Key<[u8; 20]>| SourceKey { length: key.prefix_len(), bytes: key.data() };
        let keys = self.sources.keys().map(|found| found.map(key)).collect::<Result<_, _>>();
        keys.map_err(|cause| LoadError::Map { name: SOURCE_RANGES, cause })
    }

    /// True if the map of source ranges has these rows.
    pub(crate) fn has_sources(&self, held: &Held) -> Result<bool, LoadError> {
        let wanted = held
            .sources
            .iter()
            .flat_map(|(word, ranges)| ranges.iter().map(|range| SourceKey::new(*word, *range)));
        Ok(self.source_keys()? == wanted.collect())
    }

    /// Removes the rows of `frontends` and `source_ranges` whose keys no release writes.
    pub(crate) fn remove_foreign(&mut self) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name: "frontends", cause };
        let keys: Vec<[u8; 24]> = self.frontends.keys().collect::<Result<_, _>>().map_err(fault)?;
        for key in keys.iter().filter(|key| FrontendKey(**key).place().is_none()) {
            gone(self.frontends.remove(key)).map_err(fault)?;
        }
        let fault = |cause| LoadError::Map { name: SOURCE_RANGES, cause };
        for key in self.source_keys()?.iter().filter(|key| key.range().is_none()) {
            gone(self.sources.remove(&trie_key(key))).map_err(fault)?;
        }
        Ok(())
    }

    /// Removes the frontends, and marks the backends as removed. Open TCP connections keep their rows.
    pub(crate) fn drain(&mut self) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name: "frontends", cause };
        let keys: Vec<[u8; 24]> = self.frontends.keys().collect::<Result<_, _>>().map_err(fault)?;
        let is_whole =
            |key: &&[u8; 24]| matches!(FrontendKey(**key).place(), Some(Place::OtherPorts(_)));
        // With the row of a whole address the programs refuse each port of it that has no row.
        let (whole, ports): (Vec<_>, Vec<_>) = keys.iter().partition(is_whole);
        for key in whole.into_iter().chain(ports) {
            gone(self.frontends.remove(key)).map_err(fault)?;
        }
        // A program that has found a frontend may choose a backend still.
        thread::sleep(GRACE);
        let fault = |cause| LoadError::Map { name: "backends", cause };
        for number in 0..self.limits.backends {
            let row = BackendRow::from_bytes(&self.backends.get(&number, 0).map_err(fault)?);
            if row.is_present {
                let row = BackendRow { is_present: false, ..row };
                self.backends.set(number, row.to_bytes(), 0).map_err(fault)?;
            }
        }
        Ok(())
    }

    /// The name of the map if its row is another one than this. Rows of `frontends` and `source_ranges` are not compared one
    /// by one.
    pub(crate) fn differs(&self, row: Row<'_>) -> Result<Option<&'static str>, LoadError> {
        let (name, is_same) = match row {
            Row::Frontend(..) | Row::Source(..) => return Ok(None),
            Row::Word(number, word) => {
                let found = self.words.get(&number, 0);
                ("service_words", found.map(|found| found == word.to_number()))
            }
            Row::Table(slot, backends) => {
                return Ok((!self.table(slot)?.starts_with(backends)).then_some(slot.size.map()));
            }
            Row::Backend(number, row) => {
                ("backends", self.backends.get(&number, 0).map(|found| found == row.to_bytes()))
            }
        };
        let is_same = is_same.map_err(|cause| LoadError::Map { name, cause })?;
        Ok((!is_same).then_some(name))
    }

    fn read_wires(&self) -> Result<BTreeMap<u32, WireRow>, LoadError> {
        let rows = self.wires.iter().collect::<Result<_, _>>();
        rows.map_err(|cause| LoadError::Map { name: WIRES, cause })
    }

    /// True if the map of links has these rows.
    pub(crate) fn has_wires(&self, wires: &Wires) -> Result<bool, LoadError> {
        Ok(self.read_wires()? == wire_rows(wires))
    }

    /// Brings the map of links to these rows.
    pub(crate) fn set_wires(&mut self, wires: &Wires) -> Result<(), LoadError> {
        let fault = |cause| LoadError::Map { name: WIRES, cause };
        let (found, wanted) = (self.read_wires()?, wire_rows(wires));
        for link in found.keys().filter(|link| !wanted.contains_key(link)) {
            gone(self.wires.remove(link)).map_err(fault)?;
        }
        for (link, row) in wanted.iter().filter(|(link, row)| found.get(link) != Some(row)) {
            self.wires.insert(link, row, 0).map_err(fault)?;
        }
        Ok(())
    }

    /// The rows of fast pods.
    pub(crate) fn fast_rows(&self) -> Result<BTreeMap<AddressKey, FastRow>, LoadError> {
        let rows = self.fast.iter().collect::<Result<_, _>>();
        rows.map_err(|cause| LoadError::Map { name: FAST_PODS, cause })
    }

    pub(crate) fn write_fast(&mut self, writes: &[FastWrite]) -> Result<(), LoadError> {
        for (key, row) in writes {
            let written = match row {
                Some(row) => self.fast.insert(key, row, 0),
                None => gone(self.fast.remove(key)),
            };
            written.map_err(|cause| LoadError::Map { name: FAST_PODS, cause })?;
        }
        Ok(())
    }

    fn table(&self, slot: TableSlot) -> Result<Vec<u32>, LoadError> {
        let fault = |cause| LoadError::Map { name: slot.size.map(), cause };
        Ok(match slot.size {
            TableSize::Small => self.small.get(&slot.number, 0).map_err(fault)?.to_vec(),
            TableSize::Medium => self.medium.get(&slot.number, 0).map_err(fault)?.to_vec(),
            TableSize::Large => self.large.get(&slot.number, 0).map_err(fault)?.to_vec(),
        })
    }

    pub(crate) fn write(&mut self, write: &Write) -> Result<(), LoadError> {
        fn places<const N: usize>(backends: &[u32]) -> [u32; N] {
            let mut places = [0; N];
            for (place, backend) in places.iter_mut().zip(backends) {
                *place = *backend;
            }
            places
        }
        let (name, written) = match write {
            Write::Backend(number, row) => {
                ("backends", self.backends.set(*number, row.to_bytes(), 0))
            }
            Write::Table(slot, backends) => {
                let number = slot.number;
                let written = match slot.size {
                    TableSize::Small => self.small.set(number, places::<16>(backends), 0),
                    TableSize::Medium => self.medium.set(number, places::<512>(backends), 0),
                    TableSize::Large => self.large.set(number, places::<8192>(backends), 0),
                };
                (slot.size.map(), written)
            }
            Write::Word(number, word) => {
                ("service_words", self.words.set(*number, word.to_number(), 0))
            }
            Write::Frontend(place, row) => {
                let key = FrontendKey::from(*place).0;
                ("frontends", self.frontends.insert(key, row.to_bytes(), 0))
            }
            Write::RemoveFrontend(place) => {
                ("frontends", gone(self.frontends.remove(&FrontendKey::from(*place).0)))
            }
            Write::Source(word, range) => {
                let key = trie_key(&SourceKey::new(*word, *range));
                (SOURCE_RANGES, self.sources.insert(&key, SERVED, 0))
            }
            Write::RemoveSource(word, range) => {
                let key = trie_key(&SourceKey::new(*word, *range));
                (SOURCE_RANGES, gone(self.sources.remove(&key)))
            }
        };
        written.map_err(|cause| LoadError::Map { name, cause })
    }
}

fn trie_key(key: &SourceKey) -> Key<[u8; 20]> {
    Key::new(key.length, key.bytes)
}

/// The value of each row of `source_ranges`. Programs do not read it.
const SERVED: u32 = 1;
/// The addresses that sockets asked for, by socket and backend.
const ASKED: &str = "socket_asked_addresses";
