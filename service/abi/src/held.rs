//! The content of the maps.

use crate::{BackendRow, FrontendRow, Place, TableSize, TableSlot, Word, Write};
use std::collections::{BTreeMap, BTreeSet};

/// The numbers of rows of the maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Limits {
    pub frontends: u32,
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

/// The content of the maps, or a mirror of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub limits: Limits,
    pub frontends: BTreeMap<Place, FrontendRow>,
    /// By number; those of `frontends` only.
    pub words: BTreeMap<u32, Word>,
    /// The numbers of the backends in each table; those of `words` only.
    pub tables: BTreeMap<TableSlot, Vec<u32>>,
    /// Numbers that have had a backend.
    pub backends: BTreeMap<u32, BackendRow>,
    /// Numbers without a reference. Programs that run may still read their rows.
    pub retired_words: BTreeSet<u32>,
    pub retired_tables: BTreeSet<TableSlot>,
    pub retired_backends: BTreeSet<u32>,
}

impl Held {
    /// Applies a write to the mirror.
    pub fn apply(&mut self, write: &Write) {
        match write {
            Write::Backend(number, row) => {
                if !row.is_present {
                    self.retired_backends.insert(*number);
                }
                self.backends.insert(*number, *row);
            }
            Write::Table(slot, backends) => {
                self.tables.insert(*slot, backends.clone());
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
        }
    }

    /// Retires the words and tables to which nothing refers.
    pub fn retire(&mut self) {
        let used: BTreeSet<u32> =
            self.frontends.values().flat_map(|row| [row.word, row.word + 1]).collect();
        let unused = |number: &u32| !used.contains(number);
        self.retired_words.extend(self.words.keys().copied().filter(unused));
        self.words.retain(|number, _| used.contains(number));
        let used: BTreeSet<TableSlot> =
            self.words.values().filter_map(|word| word.slot()).collect();
        self.retired_tables.extend(self.tables.keys().copied().filter(|slot| !used.contains(slot)));
        self.tables.retain(|slot, _| used.contains(slot));
    }

    /// Frees what was retired. No program that started before the retirement may run any longer.
    pub fn release(&mut self) {
        self.retired_words.clear();
        self.retired_tables.clear();
        self.retired_backends.clear();
    }
}

impl Word {
    pub(crate) fn slot(&self) -> Option<TableSlot> {
        match self {
            Self::Table { slot, .. } => Some(*slot),
            Self::NoEndpoints | Self::NoLocalEndpoints | Self::NoSuchPort => None,
        }
    }
}
