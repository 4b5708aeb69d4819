//! The mirror of the maps: it plans each change from its own rows, at the cost of the frontends that change.

mod found;
mod room;

use crate::{
    BackendRow, FrontendRow, Held, Plan, Refused, SourceRange, TableSize, TableSlot, Word, Write,
    backends::{Numbers, Uses},
    free::Free,
};
use service_core::{Choice, Frontend, Place};
use service_objects::Family;
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    sync::Arc,
};

/// The content of the maps once all planned writes are done, and the numbers that are free.
///
/// A number to which nothing refers any longer is not used again before [`Mirror::release`]: programs that run may still
/// read its row. After a write that failed, a new mirror is made from the rows in the maps.
#[derive(Clone, Debug)]
pub struct Mirror {
    held: Held,
    /// Frontends whose words another process has changed, or has given to another frontend. Their next plan gives them
    /// new words.
    broken: BTreeSet<Place>,
    /// Words with source ranges that belong to no frontend. The next plan removes them first.
    stale: BTreeSet<u32>,
    /// The number of all rows of source ranges.
    source_rows: usize,
    numbers: Numbers,
    slots: BTreeMap<Arc<[u32]>, TableSlot>,
    /// The number of words that refer to each table.
    table_uses: BTreeMap<TableSlot, u32>,
    /// The number of tables that refer to each backend.
    backend_uses: Uses,
    /// Tables and present backends that may have no use.
    unused_tables: BTreeSet<TableSlot>,
    unused_backends: BTreeSet<u32>,
    /// Pairs of words.
    pub(crate) free_pairs: Free,
    /// By size.
    pub(crate) free_tables: [Free; 3],
    pub(crate) free_backends: Free,
    retired_pairs: Vec<u32>,
    retired_tables: Vec<TableSlot>,
    retired_backends: Vec<u32>,
}

/// The use of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapUse {
    pub map: &'static str,
    /// The number of rows that are in use.
    pub used: u32,
    /// The number of all rows.
    pub limit: u32,
}

/// The writes of a plan, by their place in its order.
#[derive(Default)]
struct Steps {
    stale: Vec<Write>,
    sources: Vec<Write>,
    backends: Vec<Write>,
    tables: Vec<Write>,
    words: Vec<Write>,
    frontends: Vec<Write>,
    removals: Vec<Write>,
}

impl Mirror {
    /// The content of the maps once the planned writes are done.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// The use of each map. Numbers that wait for [`Mirror::release`] are in use.
    pub fn uses(&self) -> Vec<MapUse> {
        let limits = &self.held.limits;
        let rows = |map, used: usize, limit| MapUse {
            map,
            used: u32::try_from(used).unwrap_or(u32::MAX),
            limit,
        };
        let rest =
            |map, limit: u32, free: usize| rows(map, (limit as usize).saturating_sub(free), limit);
        let tables = TableSize::ALL.into_iter().map(|size| {
            rest(size.map(), limits.tables(size), self.free_tables[size as usize].len())
        });
        let mut uses = vec![
            rows("frontends", self.held.frontends.len(), limits.frontends),
            rows("source_ranges", self.source_rows, limits.sources),
            rest("service_words", limits.words, self.free_pairs.len() * 2),
            rest("backends", limits.backends, self.free_backends.len()),
        ];
        uses.extend(tables);
        uses
    }

    /// True if numbers wait for [`Mirror::release`].
    pub fn has_retired(&self) -> bool {
        let Self { retired_pairs, retired_tables, retired_backends, .. } = self;
        !(retired_pairs.is_empty() && retired_tables.is_empty() && retired_backends.is_empty())
    }

    /// True if a table refers to the backend. Its connections can be of any protocol.
    pub fn has_backend(&self, at: SocketAddr) -> bool {
        self.numbers.get(at).is_some()
    }

    /// Plans a change of some frontends; `None` removes one.
    pub fn change(&mut self, changes: &BTreeMap<Place, Option<Frontend>>) -> Plan {
        self.plan(changes.iter().map(|(place, frontend)| (*place, frontend.as_ref())))
    }

    /// Plans the change to a whole state.
    pub fn replace(&mut self, frontends: &BTreeMap<Place, Frontend>) -> Plan {
        let gone = self.held.frontends.keys().filter(|place| !frontends.contains_key(place));
        let gone: Vec<Place> = gone.copied().collect();
        let gone = gone.into_iter().map(|place| (place, None));
        self.plan(frontends.iter().map(|(place, frontend)| (*place, Some(frontend))).chain(gone))
    }

    /// Frees the numbers to which nothing refers. All planned writes are done, and no program that started before them
    /// runs any longer. Returns the removals of their source ranges, which come before the writes of the next plan.
    #[must_use]
    pub fn release(&mut self) -> Vec<Write> {
        let mut removals = Vec::new();
        for pair in std::mem::take(&mut self.retired_pairs) {
            self.remove_sources(pair * 2, &mut removals);
            self.free_pairs.put(pair);
        }
        for slot in self.retired_tables.drain(..) {
            self.free_tables[slot.size as usize].put(slot.number);
        }
        self.retired_backends.drain(..).for_each(|number| self.free_backends.put(number));
        removals
    }

    fn plan<'f>(&mut self, changes: impl Iterator<Item = (Place, Option<&'f Frontend>)>) -> Plan {
        let mut steps = Steps::default();
        let mut refused = BTreeMap::new();
        let mut gone = Vec::new();
        for word in std::mem::take(&mut self.stale) {
            self.remove_sources(word, &mut steps.stale);
        }
        for (place, frontend) in changes {
            let Some(frontend) = frontend else {
                gone.push(place);
                continue;
            };
            let sources = sources_of(place, frontend);
            if let Err(cause) = self.set(place, frontend, sources.as_ref(), &mut steps) {
                refused.insert(place, cause);
                // Its earlier row would serve the clients that it excludes now.
                if sources.is_some() && self.needs_pair(place, sources.as_ref()) {
                    gone.push(place);
                }
            }
        }
        // After all additions, so their rows count as used until then.
        gone.into_iter().for_each(|place| self.remove(place, &mut steps));
        self.retire(&mut steps);
        let Steps { stale, sources, backends, tables, words, frontends, removals } = steps;
        let writes = [stale, sources, backends, tables, words, frontends, removals];
        Plan { writes: writes.into_iter().flatten().collect(), refused }
    }

    fn set(
        &mut self,
        place: Place,
        frontend: &Frontend,
        sources: Option<&BTreeSet<SourceRange>>,
        steps: &mut Steps,
    ) -> Result<(), Refused> {
        self.check_room(place, frontend, sources)?;
        let words = [&frontend.inside, &frontend.outside].map(|choice| self.word(choice, steps));
        words.iter().for_each(|word| self.use_table(word));
        let affinity = frontend.affinity;
        let new_row =
            |pair| FrontendRow { word: pair * 2, affinity, has_sources: sources.is_some() };
        let Some(row) = self.row(place) else {
            if let Some(pair) = self.free_pairs.take() {
                self.broken.remove(&place);
                self.set_sources(pair * 2, sources, steps);
                self.set_row(place, new_row(pair), words, steps);
            }
            return Ok(());
        };
        let earlier = [row.word, row.word + 1].map(|number| self.held.words.get(&number).copied());
        earlier.iter().flatten().for_each(|word| self.leave_table(word));
        let is_same = earlier == words.map(Some);
        if ((!is_same && affinity != row.affinity) || self.needs_pair(place, sources))
            && let Some(pair) = self.free_pairs.take()
        {
            // One write changes the backends, the affinity and the source ranges.
            self.leave_pair(row);
            self.set_sources(pair * 2, sources, steps);
            self.set_row(place, new_row(pair), words, steps);
            return Ok(());
        }
        for ((number, word), earlier) in (row.word..).zip(words).zip(earlier) {
            if earlier != Some(word) {
                self.held.words.insert(number, word);
                steps.words.push(Write::Word(number, word));
            }
        }
        if affinity != row.affinity {
            let row = FrontendRow { affinity, ..row };
            self.held.frontends.insert(place, row);
            steps.frontends.push(Write::Frontend(place, row));
        }
        Ok(())
    }

    /// The row of a frontend, unless another process has broken it.
    fn row(&self, place: Place) -> Option<FrontendRow> {
        self.held.frontends.get(&place).copied().filter(|_| !self.broken.contains(&place))
    }

    /// True if a frontend has no words, or other source ranges: these change only with the words.
    fn needs_pair(&self, place: Place, sources: Option<&BTreeSet<SourceRange>>) -> bool {
        self.row(place).is_none_or(|row| {
            let ranges = sources.filter(|ranges| !ranges.is_empty());
            row.has_sources != sources.is_some() || self.held.sources.get(&row.word) != ranges
        })
    }

    /// Adds the source ranges of a new word.
    fn set_sources(
        &mut self,
        word: u32,
        sources: Option<&BTreeSet<SourceRange>>,
        steps: &mut Steps,
    ) {
        let Some(ranges) = sources.filter(|ranges| !ranges.is_empty()) else { return };
        self.source_rows += ranges.len();
        self.held.sources.insert(word, ranges.clone());
        steps.sources.extend(ranges.iter().map(|range| Write::Source(word, *range)));
    }

    fn remove_sources(&mut self, word: u32, removals: &mut Vec<Write>) {
        let ranges = self.held.sources.remove(&word).unwrap_or_default();
        self.source_rows -= ranges.len();
        removals.extend(ranges.into_iter().map(|range| Write::RemoveSource(word, range)));
    }

    /// Gives a frontend a new pair of words.
    fn set_row(&mut self, place: Place, row: FrontendRow, words: [Word; 2], steps: &mut Steps) {
        for (number, word) in (row.word..).zip(words) {
            self.held.words.insert(number, word);
            steps.words.push(Write::Word(number, word));
        }
        self.held.frontends.insert(place, row);
        steps.frontends.push(Write::Frontend(place, row));
    }

    fn remove(&mut self, place: Place, steps: &mut Steps) {
        let Some(row) = self.held.frontends.remove(&place) else { return };
        steps.removals.push(Write::RemoveFrontend(place));
        if self.broken.remove(&place) {
            return;
        }
        let words = [row.word, row.word + 1].map(|number| self.held.words.get(&number).copied());
        words.iter().flatten().for_each(|word| self.leave_table(word));
        self.leave_pair(row);
    }

    fn leave_pair(&mut self, row: FrontendRow) {
        self.held.words.remove(&row.word);
        self.held.words.remove(&(row.word + 1));
        self.retired_pairs.push(row.word / 2);
    }

    /// Adds the rows of a choice for which `check_room` has found place.
    fn word(&mut self, choice: &Choice, steps: &mut Steps) -> Word {
        let backends = match choice {
            Choice::Backends(backends) => backends,
            Choice::NoEndpoints => return Word::NoEndpoints,
            Choice::NoLocalEndpoints => return Word::NoLocalEndpoints,
            Choice::NoSuchPort => return Word::NoSuchPort,
        };
        let mut numbers: Vec<u32> =
            backends.iter().filter_map(|at| self.backend(*at, steps)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        self.table(numbers.into(), steps).unwrap_or(Word::NoEndpoints)
    }

    fn table(&mut self, numbers: Arc<[u32]>, steps: &mut Steps) -> Option<Word> {
        let count = u16::try_from(numbers.len()).ok()?;
        if let Some(slot) = self.slots.get(&numbers) {
            return Some(Word::Table { slot: *slot, count });
        }
        let size = TableSize::of(numbers.len())?;
        let slot = TableSlot { size, number: self.free_tables[size as usize].take()? };
        for number in &*numbers {
            self.backend_uses.begin(*number);
        }
        steps.tables.push(Write::Table(slot, Arc::clone(&numbers)));
        self.slots.insert(Arc::clone(&numbers), slot);
        self.held.tables.insert(slot, numbers);
        Some(Word::Table { slot, count })
    }

    fn backend(&mut self, at: SocketAddr, steps: &mut Steps) -> Option<u32> {
        if let Some(number) = self.numbers.get(at) {
            return Some(number);
        }
        let number = self.free_backends.take()?;
        let life = self.held.backends.get(number).map_or(1, |row| row.life.wrapping_add(1));
        // 0 is the life of a number that has had no backend.
        let row = BackendRow { at: Some(at), is_present: true, life: life.max(1) };
        steps.backends.push(Write::Backend(number, row));
        self.held.backends.insert(number, row);
        self.numbers.insert(at, number);
        Some(number)
    }

    fn use_table(&mut self, word: &Word) {
        if let Some(slot) = word.slot() {
            *self.table_uses.entry(slot).or_default() += 1;
        }
    }

    fn leave_table(&mut self, word: &Word) {
        let Some(slot) = word.slot() else { return };
        if let Some(uses) = self.table_uses.get_mut(&slot) {
            *uses = uses.saturating_sub(1);
        }
        self.unused_tables.insert(slot);
    }

    /// Retires tables without words, and removes backends without tables.
    fn retire(&mut self, steps: &mut Steps) {
        for slot in std::mem::take(&mut self.unused_tables) {
            if self.table_uses.get(&slot).is_some_and(|uses| *uses > 0) {
                continue;
            }
            self.table_uses.remove(&slot);
            let Some(numbers) = self.held.tables.remove(&slot) else { continue };
            if self.slots.get(&numbers) == Some(&slot) {
                self.slots.remove(&numbers);
            }
            self.retired_tables.push(slot);
            for number in &*numbers {
                self.backend_uses.end(*number);
                self.unused_backends.insert(*number);
            }
        }
        for number in std::mem::take(&mut self.unused_backends) {
            if self.backend_uses.has(number) {
                continue;
            }
            let Some(row) = self.held.backends.get_mut(number) else { continue };
            row.is_present = false;
            steps.removals.push(Write::Backend(number, *row));
            self.retired_backends.push(number);
            if let Some(at) = row.at {
                self.numbers.remove(at, number);
            }
        }
    }
}

/// The source ranges of the frontend's family. `None` serves every client.
fn sources_of(place: Place, frontend: &Frontend) -> Option<BTreeSet<SourceRange>> {
    let family = match place {
        Place::Port(address, ..) | Place::OtherPorts(address) => Family::of(address),
        Place::NodePort(family, ..) => family,
    };
    let ranges = frontend.sources.as_ref()?.iter();
    Some(ranges.filter(|of| Family::of(of.addr()) == family).map(|of| (*of).into()).collect())
}
