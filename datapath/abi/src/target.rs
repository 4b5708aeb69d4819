//! The contents of the maps that compiled tables need.

use crate::{
    bytes::{LargeTable, Row, SmallTable},
    intervals::{Fault, IS_LARGE, Intervals, TooLong, references},
    limits::Full,
    numbers::Numbers,
    scope::Scope,
    slots::has_no_slot,
};
use datapath_plan::{Address, ClassId, Delta, PodSets, Prefix, SetId, TableId, Tables};
use std::collections::{BTreeMap, BTreeSet};

/// The contents of the maps that a compilation needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target {
    pub classes: BTreeMap<Address, u64>,
    pub prefixes: BTreeMap<Prefix, u64>,
    pub services: BTreeMap<Address, u64>,
    /// The number of a table by set, class and Service. Each set has a row of class 0 and Service 0, its default.
    pub set_rows: BTreeMap<(u64, u64, u64), u32>,
    /// By number.
    pub small_tables: BTreeMap<u32, SmallTable>,
    /// By number.
    pub large_tables: BTreeMap<u32, LargeTable>,
    /// The digests of rules' names, by number.
    pub rules: BTreeMap<u32, u64>,
    /// By the UID of the pod. An error is that of one of the pod's sets.
    pub rows: BTreeMap<String, Result<Row, TooLong>>,
    /// The numbers of compiled tables.
    known: BTreeMap<TableId, u32>,
    /// The sets without rows, because one of their tables is too long.
    refused: BTreeMap<SetId, TooLong>,
}

impl Target {
    /// Encodes compiled tables.
    ///
    /// # Errors
    /// If the maps have no number for a table or rule.
    pub fn of(tables: &Tables, numbers: &mut Numbers) -> Result<Self, Full> {
        let mut target = Self::default();
        target.update(tables, &all(tables), numbers)?;
        Ok(target)
    }

    /// True if a set has no rows, because one of its tables is too long.
    pub fn has_refused(&self) -> bool {
        !self.refused.is_empty()
    }

    /// Encodes the difference of compiled tables to the earlier ones. Returns the rows of maps that may differ.
    ///
    /// # Errors
    /// If the maps have no number for a table or rule. The target is then not complete.
    pub fn update(
        &mut self,
        tables: &Tables,
        delta: &Delta,
        numbers: &mut Numbers,
    ) -> Result<Scope, Full> {
        self.encode(tables, delta, numbers).map_err(|full| {
            // The rows for all of the tables, so that the map grows once.
            let mut numbers = numbers.without_limit();
            match Self::default().encode(tables, &all(tables), &mut numbers) {
                Ok(_) => Full { needed: numbers.count(full.map).max(full.needed), ..full },
                Err(full) => full,
            }
        })
    }

    fn encode(
        &mut self,
        tables: &Tables,
        delta: &Delta,
        numbers: &mut Numbers,
    ) -> Result<Scope, Full> {
        let mut scope = Scope::default();
        let (without_slot, with_slot): (Vec<Address>, Vec<Address>) =
            delta.addresses.iter().partition(|address| has_no_slot(**address));
        for address in with_slot {
            set(&mut self.classes, address, tables.addresses.get(&address).map(|class| class.0));
        }
        let alone = without_slot.into_iter().map(Prefix::only);
        let prefixes: BTreeSet<Prefix> = alone.chain(delta.prefixes.iter().copied()).collect();
        scope.prefixes = !prefixes.is_empty();
        for prefix in prefixes {
            // The class of an address wins, and counts its ranges too.
            let own = (prefix == Prefix::only(prefix.first) && has_no_slot(prefix.first))
                .then(|| tables.addresses.get(&prefix.first));
            let class = own.flatten().or_else(|| tables.prefixes.get(&prefix));
            set(&mut self.prefixes, prefix, class.map(|class| class.0));
        }
        for address in &delta.services {
            set(&mut self.services, *address, tables.services.get(address).copied());
        }
        let is_refused = self.refused.clone();
        let mut whole: BTreeSet<SetId> =
            delta.sets.iter().chain(is_refused.keys()).copied().collect();
        for (id, class, service) in &delta.rows {
            if whole.contains(id) {
                continue;
            }
            let table = tables.sets.get(id).and_then(|set| set.rows.get(&(*class, *service)));
            let number = table.map(|table| self.number(*table, tables, numbers)).transpose();
            match number {
                Ok(number) => self.set_row((id.0, class.0, *service), number, &mut scope),
                Err(Fault::TooLong(_)) => drop(whole.insert(*id)),
                Err(Fault::Full(fault)) => return Err(fault),
            }
        }
        for id in whole {
            self.set_rows(id, tables, numbers, &mut scope)?;
        }
        let pods: Box<dyn Iterator<Item = &String>> = match is_refused == self.refused {
            true => Box::new(delta.pods.iter()),
            false => Box::new(tables.pods.keys().chain(&delta.pods)),
        };
        for uid in pods {
            let row = tables.pods.get(uid).map(|sets| self.row(sets));
            set(&mut self.rows, uid.clone(), row);
        }
        scope.classes.extend(&delta.addresses);
        scope.services.extend(&delta.services);
        Ok(scope)
    }

    /// Removes tables and rules that no row uses. Returns the numbers of the rules.
    pub fn prune(&mut self) -> BTreeSet<u32> {
        let (mut small, mut large) = (BTreeSet::new(), BTreeSet::new());
        let mut of = |number: u32| match number & IS_LARGE {
            0 => small.insert(number),
            _ => large.insert(number & !IS_LARGE),
        };
        let used: BTreeSet<u32> = self.set_rows.values().copied().collect();
        self.known.retain(|_, number| used.contains(number));
        let mut rules = BTreeSet::new();
        for number in used {
            of(number);
            let (by_source, named) = self.references(number);
            rules.extend(named);
            for number in by_source {
                of(number);
                rules.extend(self.references(number).1);
            }
        }
        self.small_tables.retain(|number, _| small.contains(number));
        self.large_tables.retain(|number, _| large.contains(number));
        let unused = self.rules.keys().filter(|number| !rules.contains(number));
        let unused: BTreeSet<u32> = unused.copied().collect();
        self.rules.retain(|number, _| rules.contains(number));
        unused
    }

    fn references(&self, number: u32) -> (BTreeSet<u32>, BTreeSet<u32>) {
        match number & IS_LARGE {
            0 => self.small_tables.get(&number).map(|table| references(table)),
            _ => self.large_tables.get(&(number & !IS_LARGE)).map(|table| references(table)),
        }
        .unwrap_or_default()
    }

    /// The number of a compiled table.
    fn number(
        &mut self,
        table: TableId,
        tables: &Tables,
        numbers: &mut Numbers,
    ) -> Result<u32, Fault> {
        if let Some(number) = self.known.get(&table) {
            return Ok(*number);
        }
        let content = tables.tables.get(&table).map(AsRef::as_ref);
        let mut intervals = Intervals::default();
        let number = match content {
            Some(content) => intervals.add(content, &tables.rules, numbers)?,
            // Each row has a table.
            None => return Err(TooLong { intervals: 0 }.into()),
        };
        self.small_tables.extend(intervals.small);
        self.large_tables.extend(intervals.large);
        self.rules.extend(intervals.rules);
        self.known.insert(table, number);
        Ok(number)
    }

    fn set_row(&mut self, key: (u64, u64, u64), number: Option<u32>, scope: &mut Scope) {
        set(&mut self.set_rows, key, number);
        scope.set_rows.insert(key);
    }

    /// Replaces all rows of a set.
    fn set_rows(
        &mut self,
        id: SetId,
        tables: &Tables,
        numbers: &mut Numbers,
        scope: &mut Scope,
    ) -> Result<(), Full> {
        let earlier = self.set_rows.range((id.0, 0, 0)..=(id.0, u64::MAX, u64::MAX));
        let earlier: Vec<_> = earlier.map(|(key, _)| *key).collect();
        for key in earlier {
            self.set_row(key, None, scope);
        }
        self.refused.remove(&id);
        let Some(rows) = tables.sets.get(&id) else { return Ok(()) };
        let default = ((ClassId(0), 0), rows.default);
        let others = rows.rows.iter().map(|(key, table)| (*key, *table));
        let mut encoded = Vec::new();
        for ((class, service), table) in std::iter::once(default).chain(others) {
            match self.number(table, tables, numbers) {
                Ok(number) => encoded.push(((id.0, class.0, service), number)),
                Err(Fault::TooLong(fault)) => {
                    self.refused.insert(id, fault);
                    return Ok(());
                }
                Err(Fault::Full(fault)) => return Err(fault),
            }
        }
        for (key, number) in encoded {
            self.set_row(key, Some(number), scope);
        }
        Ok(())
    }

    /// The row of a pod with these sets.
    fn row(&self, sets: &PodSets) -> Result<Row, TooLong> {
        let sets = sets.all();
        match sets.iter().find_map(|set| self.refused.get(set)) {
            Some(fault) => Err(*fault),
            None => Ok(Row(sets.map(|set| set.0))),
        }
    }
}

/// All of the tables as a difference.
fn all(tables: &Tables) -> Delta {
    Delta {
        addresses: tables.addresses.keys().copied().collect(),
        prefixes: tables.prefixes.keys().copied().collect(),
        services: tables.services.keys().copied().collect(),
        sets: tables.sets.keys().copied().collect(),
        rows: BTreeSet::new(),
        pods: tables.pods.keys().cloned().collect(),
    }
}

/// Sets or removes a value.
fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, key: K, value: Option<V>) {
    match value {
        Some(value) => drop(map.insert(key, value)),
        None => drop(map.remove(&key)),
    }
}
