//! The rows of a policy set.

use crate::{
    peers::{AllPeers, PeerId},
    set::PolicySet,
    tables::{ClassId, SetRows, TableId, Tables},
    traffic::IntervalTable,
};
use policy_core::{Direction, index::GroupId};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// The interval tables of all sets, numbered. A number is never used again.
#[derive(Debug, Default)]
pub(crate) struct AllTables {
    numbers: BTreeMap<Arc<IntervalTable>, TableId>,
    next: u32,
    /// The number of rows that were removed since the last [`Self::sweep`].
    removed: usize,
}

impl AllTables {
    fn number(&mut self, table: IntervalTable, tables: &mut Tables) -> TableId {
        if let Some(number) = self.numbers.get(&table) {
            return *number;
        }
        let number = TableId(self.next);
        self.next = self.next.saturating_add(1);
        let table = Arc::new(table);
        self.numbers.insert(Arc::clone(&table), number);
        tables.tables.insert(number, table);
        number
    }

    /// True if few numbers are left.
    pub(crate) fn is_worn(&self) -> bool {
        self.next > u32::MAX / 2
    }

    /// Counts rows that were removed.
    pub(crate) fn count_removed(&mut self, rows: usize) {
        self.removed += rows;
    }

    /// Removes the tables of no row, once many rows were removed.
    pub(crate) fn sweep(&mut self, tables: &mut Tables) {
        if self.removed <= SWEEP_AFTER {
            return;
        }
        let rows: usize = tables.sets.values().map(|set| set.rows.len() + 1).sum();
        if self.removed <= rows {
            return;
        }
        self.removed = 0;
        let mut used: BTreeSet<TableId> = BTreeSet::new();
        for set in tables.sets.values() {
            used.insert(set.default);
            used.extend(set.rows.values());
        }
        tables.tables.retain(|number, _| used.contains(number));
        self.numbers.retain(|_, number| used.contains(number));
    }
}

/// Compiles the rows of one set.
pub(crate) struct RowCompiler<'a> {
    set: &'a PolicySet,
    direction: Direction,
    /// The peers that the set asks for, sorted.
    relevant: &'a [PeerId],
    peers: &'a AllPeers,
    /// By the class of a Service's address: its groups, and the table for addresses of class 0.
    services: Vec<(u64, &'a [GroupId], TableId)>,
    default: TableId,
    /// Classes that differ in other peers only have the same tables.
    known: BTreeMap<(Vec<PeerId>, u64), TableId>,
}

impl<'a> RowCompiler<'a> {
    pub(crate) fn new(
        set: &'a PolicySet,
        direction: Direction,
        relevant: &'a [PeerId],
        peers: &'a AllPeers,
        services: &'a BTreeMap<u64, Vec<GroupId>>,
        all: &mut AllTables,
        tables: &mut Tables,
    ) -> Self {
        let mut compiler = Self {
            set,
            direction,
            relevant,
            peers,
            services: Vec::new(),
            default: TableId(0),
            known: BTreeMap::new(),
        };
        compiler.default = compiler.table(&[], 0, &[], all, tables);
        for (service, groups) in services.iter().filter(|_| set.names_services()) {
            let table = compiler.table(&[], *service, groups, all, tables);
            compiler.services.push((*service, groups, table));
        }
        compiler
    }

    fn table(
        &mut self,
        class: &[PeerId],
        service: u64,
        groups: &[GroupId],
        all: &mut AllTables,
        tables: &mut Tables,
    ) -> TableId {
        let asked = class.iter().filter(|peer| self.relevant.binary_search(peer).is_ok());
        let key = (asked.copied().collect(), service);
        if let Some(table) = self.known.get(&key) {
            return *table;
        }
        let table = self.set.table(self.direction, &key.0, groups, self.peers);
        let number = all.number(table, tables);
        self.known.insert(key, number);
        number
    }

    /// The rows without those of classes.
    pub(crate) fn start(&self) -> SetRows {
        let others = self.services.iter().filter(|(.., table)| *table != self.default);
        let rows = others.map(|(service, _, table)| ((ClassId(0), *service), *table)).collect();
        SetRows { default: self.default, rows }
    }

    /// The rows of a class: its tables, where they are not the ones that are looked up without the row.
    pub(crate) fn class(
        &mut self,
        number: ClassId,
        class: &[PeerId],
        all: &mut AllTables,
        tables: &mut Tables,
    ) -> Vec<((ClassId, u64), TableId)> {
        let mut rows = Vec::new();
        let without = self.table(class, 0, &[], all, tables);
        if without != self.default {
            rows.push(((number, 0), without));
        }
        for (service, groups, of_others) in self.services.clone() {
            let with = self.table(class, service, groups, all, tables);
            let instead = if without == self.default { of_others } else { without };
            if with != instead {
                rows.push(((number, service), with));
            }
        }
        rows
    }
}

/// Rows that are removed before unused tables are looked for.
const SWEEP_AFTER: usize = 1024;
