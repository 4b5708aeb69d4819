//! The contents of the maps that compiled tables need.

use crate::{
    bytes::{LargeTable, Row, SmallTable},
    intervals::{Fault, Intervals, TooLong},
    numbers::{Full, Numbers},
};
use datapath_plan::{Address, PodSets, Prefix, SetId, TableId, Tables};
use std::collections::BTreeMap;

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
}

impl Target {
    /// Encodes compiled tables.
    ///
    /// # Errors
    /// If the maps have no number for a table or rule.
    pub fn of(tables: &Tables, numbers: &mut Numbers) -> Result<Self, Full> {
        let mut intervals = Intervals::default();
        let mut set_rows = BTreeMap::new();
        let mut refused = BTreeMap::new();
        let mut known = BTreeMap::new();
        for set in tables.sets.keys() {
            match rows_of(*set, tables, &mut intervals, numbers, &mut known) {
                Ok(rows) => set_rows.extend(rows),
                Err(Fault::TooLong(fault)) => drop(refused.insert(*set, fault)),
                Err(Fault::Full(fault)) => return Err(fault),
            }
        }
        let row = |sets: &PodSets| {
            let PodSets { ingress, egress, hairpin_ingress, hairpin_egress } = *sets;
            let sets = [ingress, egress, hairpin_ingress, hairpin_egress];
            match sets.iter().find_map(|set| refused.get(set)) {
                Some(fault) => Err(*fault),
                None => Ok(Row(sets.map(|set| set.0))),
            }
        };
        Ok(Self {
            classes: tables.addresses.iter().map(|(at, class)| (*at, class.0)).collect(),
            prefixes: tables.prefixes.iter().map(|(at, class)| (*at, class.0)).collect(),
            services: tables.services.clone(),
            set_rows,
            small_tables: intervals.small,
            large_tables: intervals.large,
            rules: intervals.rules,
            rows: tables.pods.iter().map(|(uid, sets)| (uid.clone(), row(sets))).collect(),
        })
    }
}

/// The rows of one set. `known` has the numbers of the tables so far.
fn rows_of(
    set: SetId,
    tables: &Tables,
    intervals: &mut Intervals,
    numbers: &mut Numbers,
    known: &mut BTreeMap<TableId, u32>,
) -> Result<BTreeMap<(u64, u64, u64), u32>, Fault> {
    let mut encoded = BTreeMap::new();
    let Some(rows) = tables.sets.get(&set) else { return Ok(encoded) };
    let default = std::iter::once(((0, 0), rows.default));
    let others = rows.rows.iter().map(|((class, service), table)| ((class.0, *service), *table));
    for ((class, service), table) in default.chain(others) {
        let number = match known.get(&table) {
            Some(number) => *number,
            None => {
                let Some(content) = tables.tables.get(table.0 as usize) else { continue };
                let number = intervals.add(content, &tables.rules, numbers)?;
                known.insert(table, number);
                number
            }
        };
        encoded.insert((set.0, class, service), number);
    }
    Ok(encoded)
}
