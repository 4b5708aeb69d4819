//! A mirror of the rows that a process finds. Another process may have changed each of them.

use super::Mirror;
use crate::{
    FrontendRow, Held, TableSize, TableSlot, Word,
    backends::{Numbers, Uses},
    free::Free,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

impl Mirror {
    /// Returns the mirror of these rows. The next [`Mirror::replace`] gives new words to each frontend with rows that no plan
    /// writes.
    pub fn of(held: Held) -> Self {
        let numbers = Numbers::of(&held.backends);
        let tables: BTreeMap<TableSlot, Arc<[u32]>> = held
            .tables
            .iter()
            .filter(|(slot, table)| is_table(&held, &numbers, **slot, table))
            .map(|(slot, table)| (*slot, Arc::clone(table)))
            .collect();
        let is_word = |word: &Word| match word {
            Word::Table { slot, count } => {
                tables.get(slot).is_some_and(|table| table.len() == usize::from(*count))
            }
            Word::NoEndpoints | Word::NoLocalEndpoints | Word::NoSuchPort => true,
        };
        let mut broken = BTreeSet::new();
        let mut stale: BTreeSet<u32> = held.sources.keys().copied().collect();
        let mut words: BTreeMap<u32, Word> = BTreeMap::new();
        for (place, FrontendRow { word, has_sources, .. }) in &held.frontends {
            let pair = [*word, word.saturating_add(1)].map(|number| held.words.get(&number));
            match pair {
                [Some(inside), Some(outside)]
                    if word.is_multiple_of(2)
                        && word + 1 < held.limits.words
                        && !words.contains_key(word)
                        && is_word(inside)
                        && is_word(outside) =>
                {
                    words.extend([(*word, *inside), (word + 1, *outside)]);
                    if *has_sources {
                        stale.remove(word);
                    }
                }
                _ => {
                    broken.insert(*place);
                }
            }
        }
        let mut mirror = Self {
            broken,
            stale,
            source_rows: held.sources.values().map(BTreeSet::len).sum(),
            numbers,
            slots: BTreeMap::new(),
            table_uses: BTreeMap::new(),
            backend_uses: Uses::default(),
            unused_tables: BTreeSet::new(),
            unused_backends: BTreeSet::new(),
            free_pairs: Free::new(
                &words.keys().map(|number| number / 2).collect(),
                held.limits.words / 2,
            ),
            free_tables: Default::default(),
            free_backends: Free::default(),
            retired_pairs: Vec::new(),
            retired_tables: Vec::new(),
            retired_backends: Vec::new(),
            held: Held { words, tables, ..held },
        };
        mirror.count_uses();
        mirror
    }

    fn count_uses(&mut self) {
        let words: Vec<Word> = self.held.words.values().copied().collect();
        words.iter().for_each(|word| self.use_table(word));
        let Self { table_uses, backend_uses, slots, .. } = self;
        self.held.tables.retain(|slot, _| table_uses.contains_key(slot));
        for (slot, table) in &self.held.tables {
            slots.entry(Arc::clone(table)).or_insert(*slot);
            table.iter().for_each(|number| backend_uses.begin(*number));
        }
        let used = |size| {
            let slots = self.held.tables.keys().filter(move |slot| slot.size == size);
            slots.map(|slot| slot.number).collect()
        };
        self.free_tables =
            TableSize::ALL.map(|size| Free::new(&used(size), self.held.limits.tables(size)));
        let present: BTreeSet<u32> =
            self.held.backends.present().map(|(number, _)| number).collect();
        let is_unused = |number: &&u32| !self.backend_uses.has(**number);
        self.unused_backends = present.iter().filter(is_unused).copied().collect();
        self.free_backends = Free::new(&present, self.held.limits.backends);
    }
}

/// True if a plan could have written the table.
fn is_table(held: &Held, numbers: &Numbers, slot: TableSlot, table: &[u32]) -> bool {
    let is_backend = |number: &u32| {
        let row = held.backends.get(*number).filter(|row| row.is_present);
        row.and_then(|row| numbers.get(row.at?)) == Some(*number)
    };
    slot.number < held.limits.tables(slot.size)
        && TableSize::of(table.len()) == Some(slot.size)
        && table.is_sorted_by(|earlier, later| earlier < later)
        && table.iter().all(is_backend)
}
