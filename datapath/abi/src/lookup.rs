//! Lookups in the maps as the programs make them, with all their steps.

use crate::{
    event::Verdict,
    held::{BY_PREFIX, Held},
    intervals::{BY_SOURCE, IS_LARGE},
};
use datapath_plan::{Address, TrafficKey};

/// A packet from the view of one pod's set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question {
    /// The set of the pod in the direction of the packet.
    pub set: u64,
    /// The address of the other end; of a destination, behind any translation.
    pub other: Address,
    /// The address that was asked for, before translation.
    pub service: Option<Address>,
    pub key: TrafficKey,
    pub source_port: u16,
}

/// The steps of a lookup. `None` where the maps have no row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Steps {
    pub set: u64,
    pub class: u64,
    /// The class of the Service's address; 0 for none.
    pub service: u64,
    /// The number of the table over protocols and ports, and whether it is a large one.
    pub table: Option<(u32, bool)>,
    /// The first key of the interval that was found.
    pub start: Option<u32>,
    /// The number of the table over source ports, if there is one.
    pub by_source: Option<(u32, bool)>,
    pub verdict: Option<Verdict>,
}

impl Held {
    /// The class of an address in the half in force.
    fn class_of(&self, address: Address) -> u64 {
        let half = self.half();
        let own = self.classes.get(&address).map(|halves| halves[half]);
        if let Some(class) = own.filter(|class| *class != BY_PREFIX) {
            return class;
        }
        let fitting = self.prefixes.iter().filter(|(prefix, _)| prefix.contains(address));
        // The trie returns the longest prefix, also if it has class 0 in this half.
        let longest = fitting.max_by_key(|(prefix, _)| prefix.length);
        longest.map_or(0, |(_, halves)| halves[half])
    }

    /// Looks up the verdict of a set.
    pub fn look_up(&self, question: &Question) -> Steps {
        let Question { set, other, service, key, source_port } = *question;
        let mut steps = Steps { set, ..Steps::default() };
        if set == 0 {
            steps.verdict = Some(Verdict::of(0));
            return steps;
        }
        steps.class = self.class_of(other);
        let named = service.filter(|_| set & 1 == 1);
        let named = named.and_then(|address| self.services.get(&address));
        steps.service = named.map_or(0, |halves| halves[self.half()]);
        let rows = [(steps.class, steps.service), (steps.class, 0), (0, steps.service), (0, 0)];
        let mut rows = rows.into_iter();
        let table = rows.find_map(|(class, service)| self.set_rows.get(&(set, class, service)));
        let Some(table) = table.copied() else { return steps };
        steps.table = Some(place(table));
        let Some((start, value)) = self.interval(table, key.0) else { return steps };
        steps.start = Some(start);
        let value = match value & BY_SOURCE {
            0 => Some(value),
            _ => {
                let table = value & !BY_SOURCE;
                steps.by_source = Some(place(table));
                self.interval(table, u32::from(source_port)).map(|(_, value)| value)
            }
        };
        steps.verdict = value.map(Verdict::of);
        steps
    }

    /// The start and the value of a table's interval for a key.
    fn interval(&self, table: u32, key: u32) -> Option<(u32, u32)> {
        let (number, is_large) = place(table);
        let bytes: &[u8] = match is_large {
            false => self.small_tables.get(&number)?,
            true => self.large_tables.get(&number)?,
        };
        let intervals = bytes.chunks_exact(8).filter_map(|interval| {
            let (start, value) = interval.split_at(4);
            let word = |bytes: &[u8]| Some(u32::from_ne_bytes(bytes.try_into().ok()?));
            Some((word(start)?, word(value)?))
        });
        intervals.take_while(|(start, _)| *start <= key).last()
    }
}

fn place(table: u32) -> (u32, bool) {
    (table & !IS_LARGE, table & IS_LARGE != 0)
}
