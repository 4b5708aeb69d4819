//! The maps of compiled tables.

use crate::{
    AddressKey, LargeTable, PrefixKey, SetKey, SmallTable,
    intervals::{Intervals, TooLong},
};
use datapath_plan::{Address, PodSets, Prefix, SetId, Tables};
use std::collections::BTreeMap;

/// The contents of the maps that are the same for all pods, and the row of each pod.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    pub classes: BTreeMap<AddressKey, u32>,
    pub prefixes: BTreeMap<PrefixKey, u32>,
    pub services: BTreeMap<AddressKey, u32>,
    /// The number of a table by set, class and Service. Each set has a row of class 0 and Service 0, its default.
    pub set_rows: BTreeMap<SetKey, u32>,
    /// By number.
    pub small_tables: Vec<SmallTable>,
    /// By number.
    pub large_tables: Vec<LargeTable>,
    /// By the UID of the pod.
    pub rows: BTreeMap<String, Row>,
}

/// The sets of a pod in a map's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Row(pub [u32; 4]);

/// A pod's host link in a map's value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Endpoint {
    /// The place of the pod's current row.
    pub slot: u32,
    /// The pod's addresses, which its packets must have as their source.
    pub v4: Option<Address>,
    pub v6: Option<Address>,
}

impl Maps {
    /// Encodes compiled tables.
    ///
    /// # Errors
    /// If a table has too many intervals.
    pub fn of(tables: &Tables) -> Result<Self, TooLong> {
        let mut intervals = Intervals::default();
        let mut set_rows = BTreeMap::new();
        for (set, rows) in (0..).zip(&tables.sets) {
            let mut add = |class: u32, service: u32, table: datapath_plan::TableId| {
                if let Some(table) = tables.tables.get(table.0 as usize) {
                    let number = intervals.add(table)?;
                    set_rows.insert(set_key(SetId(set), class, service), number);
                }
                Ok(())
            };
            add(0, 0, rows.default)?;
            for ((class, service), table) in &rows.rows {
                add(class.0, *service, *table)?;
            }
        }
        let row = |sets: &PodSets| {
            let PodSets { ingress, egress, hairpin_ingress, hairpin_egress } = *sets;
            Row([ingress, egress, hairpin_ingress, hairpin_egress].map(|set| number(set, tables)))
        };
        Ok(Self {
            classes: tables.addresses.iter().map(|(at, class)| (key(*at), class.0)).collect(),
            prefixes: tables.prefixes.iter().map(|(at, class)| (prefix(*at), class.0)).collect(),
            services: tables.services.iter().map(|(at, class)| (key(*at), *class)).collect(),
            set_rows,
            small_tables: intervals.small,
            large_tables: intervals.large,
            rows: tables.pods.iter().map(|(uid, sets)| (uid.clone(), row(sets))).collect(),
        })
    }
}

impl Row {
    /// The sets of a pod whose policies are not known: no packet passes.
    pub const CLOSED: Self = Self([u32::MAX; 4]);

    /// The value.
    pub fn to_bytes(self) -> [u8; 16] {
        concat(self.0.map(u32::to_ne_bytes))
    }
}

impl Endpoint {
    /// The value.
    pub fn to_bytes(self) -> [u8; 40] {
        let mut bytes = [0; 40];
        bytes[..4].copy_from_slice(&self.slot.to_ne_bytes());
        bytes[8..24].copy_from_slice(&self.v4.map(key).unwrap_or_default());
        bytes[24..].copy_from_slice(&self.v6.map(key).unwrap_or_default());
        bytes
    }
}

/// The number of a set in the kernel: 0 for one that allows everything without a lookup.
fn number(set: SetId, tables: &Tables) -> u32 {
    let rows = tables.sets.get(set.0 as usize);
    let allows_all = rows.is_some_and(|rows| {
        let default = tables.tables.get(rows.default.0 as usize);
        rows.rows.is_empty() && default.is_some_and(datapath_plan::IntervalTable::is_default)
    });
    if allows_all { 0 } else { set.0 + 1 }
}

/// The key of an address.
pub(crate) fn key(address: Address) -> AddressKey {
    address.0.to_be_bytes()
}

fn prefix(prefix: Prefix) -> PrefixKey {
    let mut bytes = [0; 20];
    bytes[..4].copy_from_slice(&u32::from(prefix.length).to_ne_bytes());
    bytes[4..].copy_from_slice(&key(prefix.first));
    bytes
}

fn set_key(set: SetId, class: u32, service: u32) -> SetKey {
    concat([set.0 + 1, class, service].map(u32::to_ne_bytes))
}

fn concat<const N: usize, const M: usize>(words: [[u8; 4]; N]) -> [u8; M] {
    let mut bytes = [0; M];
    for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word);
    }
    bytes
}
