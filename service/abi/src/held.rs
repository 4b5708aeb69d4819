//! The content of the maps.

use crate::{BackendRow, Backends, FrontendRow, SourceRange, TableSize, TableSlot, Word, Write};
use service_core::Place;
use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    sync::Arc,
};

/// The numbers of rows of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Limits {
    pub frontends: u32,
    pub sources: u32,
    pub words: u32,
    pub small: u32,
    pub medium: u32,
    pub large: u32,
    pub backends: u32,
}

impl Limits {
    pub(crate) fn tables(&self, size: TableSize) -> u32 {
        match size {
            TableSize::Small => self.small,
            TableSize::Medium => self.medium,
            TableSize::Large => self.large,
        }
    }
}

/// The rows that packets can reach, all rows of source ranges, and the rows of all backends that have ever been.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub limits: Limits,
    pub frontends: BTreeMap<Place, FrontendRow>,
    /// By the number of the frontend's first word. No entry is empty.
    pub sources: BTreeMap<u32, BTreeSet<SourceRange>>,
    /// By number; those of `frontends` only.
    pub words: BTreeMap<u32, Word>,
    /// The numbers of the backends in each table; those of `words` only.
    pub tables: BTreeMap<TableSlot, Arc<[u32]>>,
    /// Numbers that have had a backend.
    pub backends: Backends,
}

/// A row of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Row<'a> {
    Frontend(Place, FrontendRow),
    Source(u32, SourceRange),
    Word(u32, Word),
    Table(TableSlot, &'a [u32]),
    Backend(u32, BackendRow),
}

impl Held {
    /// Returns each row once.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        let frontends = self.frontends.iter().map(|(place, row)| Row::Frontend(*place, *row));
        let sources = self
            .sources
            .iter()
            .flat_map(|(word, ranges)| ranges.iter().map(move |range| Row::Source(*word, *range)));
        let words = self.words.iter().map(|(number, word)| Row::Word(*number, *word));
        let tables = self.tables.iter().map(|(slot, of)| Row::Table(*slot, of));
        let backends = self.backends.iter().map(|(number, row)| Row::Backend(number, *row));
        frontends.chain(sources).chain(words).chain(tables).chain(backends)
    }

    /// Applies a write. Rows that packets no longer reach stay.
    pub fn apply(&mut self, write: &Write) {
        match write {
            Write::Backend(number, row) => {
                self.backends.insert(*number, *row);
            }
            Write::Table(slot, backends) => {
                self.tables.insert(*slot, Arc::clone(backends));
            }
            Write::Word(number, word) => {
                self.words.insert(*number, *word);
            }
            Write::Frontend(place, row) => {
                self.frontends.insert(*place, *row);
            }
            Write::RemoveFrontend(place) => {
                self.frontends.remove(place);
            }
            Write::Source(word, range) => {
                self.sources.entry(*word).or_default().insert(*range);
            }
            Write::RemoveSource(word, range) => {
                let Entry::Occupied(mut of) = self.sources.entry(*word) else { return };
                of.get_mut().remove(range);
                if of.get().is_empty() {
                    of.remove();
                }
            }
        }
    }
}
