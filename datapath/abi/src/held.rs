//! The contents of the maps.

use crate::{
    Row,
    bytes::{Endpoint, LargeTable, SmallTable},
    intervals::{IS_LARGE, references},
    limits::Limits,
    numbers::Numbers,
};
use datapath_plan::{Address, Prefix};
use std::collections::{BTreeMap, BTreeSet};

/// Of the class of an address: it has none of its own in this half of the state.
pub(crate) const BY_PREFIX: u64 = u64::MAX;

/// The contents of the maps, as they were read or written.
///
/// Classes, prefixes, Services and rows have two halves. The lowest bit of the generation selects the one in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    pub generation: u64,
    /// The host links of pods by ifindex.
    pub endpoints: BTreeMap<u32, Endpoint>,
    /// Two for each slot.
    pub rows: BTreeMap<u32, Row>,
    pub classes: BTreeMap<Address, [u64; 2]>,
    pub prefixes: BTreeMap<Prefix, [u64; 2]>,
    pub services: BTreeMap<Address, [u64; 2]>,
    pub set_rows: BTreeMap<(u64, u64, u64), u32>,
    /// The tables that rows refer to.
    pub small_tables: BTreeMap<u32, SmallTable>,
    pub large_tables: BTreeMap<u32, LargeTable>,
    pub rules: BTreeMap<u32, u64>,
    pub own_addresses: BTreeSet<Address>,
    /// The addresses that stand for the node, of IPv4 and IPv6; 0 if it has none.
    pub node: [Address; 2],
    pub limits: Limits,
}

/// A change of one row. `None` removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    Rule(u32, Option<u64>),
    SmallTable(u32, Box<SmallTable>),
    LargeTable(u32, Box<LargeTable>),
    SetRow((u64, u64, u64), Option<u32>),
    Class(Address, Option<[u64; 2]>),
    Prefix(Prefix, Option<[u64; 2]>),
    Service(Address, Option<[u64; 2]>),
    Row(u32, Row),
    /// Sets the slot's share to zeros.
    Share(u32),
    /// True adds the address, false removes it.
    OwnAddress(Address, bool),
    Node(u32, Address),
    /// Puts the other half into force, as this generation.
    Flip(u64),
    Endpoint(u32, Option<Endpoint>),
}

impl Held {
    /// The half that is in force.
    pub(crate) fn half(&self) -> usize {
        usize::from(self.generation % 2 == 1)
    }

    /// The number of a slot's row in a half.
    pub(crate) fn row_number(slot: u32, half: usize) -> u32 {
        slot * 2 + u32::from(half == 1)
    }

    /// The row in force of an endpoint.
    pub fn row_of(&self, endpoint: &Endpoint) -> Option<Row> {
        self.rows.get(&Self::row_number(endpoint.slot, self.half())).copied()
    }

    /// The contents after a write.
    pub fn apply(&mut self, write: &Write) {
        fn set<K: Ord + Clone, V: Clone>(map: &mut BTreeMap<K, V>, key: &K, value: Option<&V>) {
            match value {
                Some(value) => drop(map.insert(key.clone(), value.clone())),
                None => drop(map.remove(key)),
            }
        }
        match write {
            Write::Rule(number, digest) => set(&mut self.rules, number, digest.as_ref()),
            Write::SmallTable(number, table) => drop(self.small_tables.insert(*number, **table)),
            Write::LargeTable(number, table) => drop(self.large_tables.insert(*number, **table)),
            Write::SetRow(key, table) => set(&mut self.set_rows, key, table.as_ref()),
            Write::Class(address, halves) => set(&mut self.classes, address, halves.as_ref()),
            Write::Prefix(prefix, halves) => set(&mut self.prefixes, prefix, halves.as_ref()),
            Write::Service(address, halves) => set(&mut self.services, address, halves.as_ref()),
            Write::Row(number, row) => drop(self.rows.insert(*number, *row)),
            Write::Share(_) => {}
            Write::OwnAddress(address, true) => drop(self.own_addresses.insert(*address)),
            Write::OwnAddress(address, false) => drop(self.own_addresses.remove(address)),
            Write::Node(family, address) => {
                if let Some(place) = self.node.get_mut(*family as usize) {
                    *place = *address;
                }
            }
            Write::Flip(generation) => self.generation = *generation,
            Write::Endpoint(link, endpoint) => {
                set(&mut self.endpoints, link, endpoint.as_ref());
            }
        }
    }

    /// The numbers of the contents.
    pub fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::new(&self.limits);
        for (number, table) in &self.small_tables {
            numbers.small.observe(*table, *number);
        }
        for (number, table) in &self.large_tables {
            numbers.large.observe(*table, *number);
        }
        for (number, digest) in &self.rules {
            numbers.rules.observe(*digest, *number);
        }
        numbers
    }

    /// Releases the numbers of contents to which no row refers.
    pub fn release(&mut self, numbers: &mut Numbers) {
        let (mut small, mut large) = (BTreeSet::new(), BTreeSet::new());
        for table in self.set_rows.values() {
            match table & IS_LARGE {
                0 => small.insert(*table),
                _ => large.insert(table & !IS_LARGE),
            };
        }
        let mut rules = BTreeSet::new();
        let mut by_source = BTreeSet::new();
        let referred = small.iter().filter_map(|number| self.small_tables.get(number));
        let referred = referred.map(|table| references(table));
        let referred_large = large.iter().filter_map(|number| self.large_tables.get(number));
        for (tables, of) in referred.chain(referred_large.map(|table| references(table))) {
            by_source.extend(tables);
            rules.extend(of);
        }
        for table in by_source {
            let of = match table & IS_LARGE {
                0 => {
                    small.insert(table);
                    self.small_tables.get(&table).map(|table| references(table))
                }
                _ => {
                    large.insert(table & !IS_LARGE);
                    self.large_tables.get(&(table & !IS_LARGE)).map(|table| references(table))
                }
            };
            rules.extend(of.into_iter().flat_map(|(_, rules)| rules));
        }
        self.small_tables.retain(|number, _| small.contains(number));
        self.large_tables.retain(|number, _| large.contains(number));
        numbers.retain(&small, &large, &rules);
    }
}

impl Held {
    /// Reads the tables to which the rows refer.
    ///
    /// # Errors
    /// The first error of a reader.
    pub fn read_tables<E>(
        &mut self,
        small: impl Fn(u32) -> Result<SmallTable, E>,
        large: impl Fn(u32) -> Result<LargeTable, E>,
    ) -> Result<(), E> {
        let limits = self.limits;
        let mut numbers: BTreeSet<u32> = self.set_rows.values().copied().collect();
        // A table over source ports refers to no other.
        for _ in 0..2 {
            let mut next = BTreeSet::new();
            // A row that was changed by another process may refer to a number that does not exist.
            let exists = |number: &u32| match number & IS_LARGE {
                0 => *number < limits.small_tables,
                _ => number & !IS_LARGE < limits.large_tables,
            };
            for number in numbers.into_iter().filter(exists) {
                let (by_source, _) = match number & IS_LARGE {
                    0 => {
                        let table = small(number)?;
                        self.small_tables.insert(number, table);
                        references(&table)
                    }
                    _ => {
                        let table = large(number & !IS_LARGE)?;
                        self.large_tables.insert(number & !IS_LARGE, table);
                        references(&table)
                    }
                };
                next.extend(by_source);
            }
            numbers = next;
        }
        Ok(())
    }
}
