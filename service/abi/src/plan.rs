//! The writes from the content of the maps to a target.

use crate::{
    BackendRow, Choice, Frontend, FrontendRow, Held, Place, TableSize, TableSlot, Target, Word,
    Write,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// A map without room for the target. Frontends that are in force stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot add a row to map {map}: it has {limit} rows; remove Services or endpoints")]
pub struct Full {
    pub map: &'static str,
    pub limit: u32,
}

/// The writes in their order: what a word names is in place before the word, and a frontend's words before the frontend. A
/// backend is removed after the words that name it have changed. Equal states need no write.
///
/// # Errors
/// A map is full.
pub fn plan(held: &Held, target: &Target) -> Result<Vec<Write>, Full> {
    let mut planner = Planner::new(held);
    for (place, frontend) in &target.frontends {
        planner.frontend(*place, frontend)?;
    }
    Ok(planner.finish(target))
}

struct Planner<'a> {
    held: &'a Held,
    /// The numbers of present backends.
    numbers: BTreeMap<SocketAddr, u32>,
    /// Present backends that the target has.
    kept: BTreeSet<u32>,
    tables: BTreeMap<Vec<u32>, TableSlot>,
    free_words: Free,
    free_tables: [Free; 3],
    free_backends: Free,
    backends: Vec<Write>,
    new_tables: Vec<Write>,
    words: Vec<Write>,
    frontends: Vec<Write>,
}

impl<'a> Planner<'a> {
    fn new(held: &'a Held) -> Self {
        let numbers = held.backends.iter().filter(|(_, row)| row.is_present);
        let numbers = numbers.filter_map(|(number, row)| Some((row.at?, *number))).collect();
        let tables = held.tables.iter().map(|(slot, backends)| (backends.clone(), *slot)).collect();
        let used_words = held.frontends.values().map(|row| row.word / 2);
        let retired_words = held.retired_words.iter().map(|number| number / 2);
        let used_tables = |size| {
            let used = held.tables.keys().chain(&held.retired_tables);
            used.filter(move |slot| slot.size == size).map(|slot| slot.number).collect()
        };
        let present = held.backends.iter().filter(|(_, row)| row.is_present);
        let used_backends = present.map(|(number, _)| number).chain(&held.retired_backends);
        Self {
            held,
            numbers,
            kept: BTreeSet::new(),
            tables,
            free_words: Free::new(used_words.chain(retired_words).collect(), held.limits.words / 2),
            free_tables: TableSize::ALL
                .map(|size| Free::new(used_tables(size), held.limits.tables(size))),
            free_backends: Free::new(used_backends.copied().collect(), held.limits.backends),
            backends: Vec::new(),
            new_tables: Vec::new(),
            words: Vec::new(),
            frontends: Vec::new(),
        }
    }

    fn frontend(&mut self, place: Place, frontend: &Frontend) -> Result<(), Full> {
        let held = self.held.frontends.get(&place);
        let word = match held {
            Some(row) => row.word,
            None => {
                let rows = self.held.frontends.len() + self.frontends.len();
                if u32::try_from(rows).is_ok_and(|rows| rows >= self.held.limits.frontends) {
                    return Err(Full { map: "frontends", limit: self.held.limits.frontends });
                }
                let full = Full { map: "service_words", limit: self.held.limits.words };
                self.free_words.take().ok_or(full)? * 2
            }
        };
        for (number, choice) in [(word, &frontend.inside), (word + 1, &frontend.outside)] {
            let wanted = self.word(choice)?;
            if held.is_none() || self.held.words.get(&number) != Some(&wanted) {
                self.words.push(Write::Word(number, wanted));
            }
        }
        let row = FrontendRow { word, affinity: frontend.affinity };
        if held != Some(&row) {
            self.frontends.push(Write::Frontend(place, row));
        }
        Ok(())
    }

    fn word(&mut self, choice: &Choice) -> Result<Word, Full> {
        let backends = match choice {
            Choice::Backends(backends) if !backends.is_empty() => backends,
            Choice::Backends(_) | Choice::NoEndpoints => return Ok(Word::NoEndpoints),
            Choice::NoLocalEndpoints => return Ok(Word::NoLocalEndpoints),
            Choice::NoSuchPort => return Ok(Word::NoSuchPort),
        };
        let numbers = backends.iter().map(|at| self.backend(*at)).collect::<Result<Vec<_>, _>>()?;
        let full = Full { map: TableSize::Large.map(), limit: 8191 };
        let size = TableSize::of(numbers.len()).ok_or(full)?;
        let count = u16::try_from(numbers.len()).unwrap_or(u16::MAX);
        if let Some(slot) = self.tables.get(&numbers) {
            return Ok(Word::Table { slot: *slot, count });
        }
        let limit = self.held.limits.tables(size);
        let free = &mut self.free_tables[size as usize];
        let number = free.take().ok_or(Full { map: size.map(), limit })?;
        let slot = TableSlot { size, number };
        self.new_tables.push(Write::Table(slot, numbers.clone()));
        self.tables.insert(numbers, slot);
        Ok(Word::Table { slot, count })
    }

    fn backend(&mut self, at: SocketAddr) -> Result<u32, Full> {
        if let Some(number) = self.numbers.get(&at) {
            self.kept.insert(*number);
            return Ok(*number);
        }
        let full = Full { map: "backends", limit: self.held.limits.backends };
        let number = self.free_backends.take().ok_or(full)?;
        let life = self.held.backends.get(&number).map_or(1, |row| row.life.wrapping_add(1));
        let row = BackendRow { at: Some(at), is_present: true, life };
        self.backends.push(Write::Backend(number, row));
        self.numbers.insert(at, number);
        self.kept.insert(number);
        Ok(number)
    }

    fn finish(self, target: &Target) -> Vec<Write> {
        let gone = self.held.frontends.keys().filter(|place| !target.frontends.contains_key(place));
        let gone = gone.map(|place| Write::RemoveFrontend(*place));
        let present = self.held.backends.iter().filter(|(_, row)| row.is_present);
        let removed = present.filter(|(number, _)| !self.kept.contains(number));
        let removed = removed
            .map(|(number, row)| Write::Backend(*number, BackendRow { is_present: false, ..*row }));
        let adds =
            [self.backends, self.new_tables, self.words, self.frontends].into_iter().flatten();
        adds.chain(gone).chain(removed).collect()
    }
}

/// Numbers below a limit that are not in use.
struct Free {
    used: BTreeSet<u32>,
    next: u32,
    limit: u32,
}

impl Free {
    fn new(used: BTreeSet<u32>, limit: u32) -> Self {
        Self { used, next: 0, limit }
    }

    fn take(&mut self) -> Option<u32> {
        while self.used.contains(&self.next) {
            self.next += 1;
        }
        let number = self.next;
        (number < self.limit).then(|| {
            self.next += 1;
            number
        })
    }
}
