//! The rows that were written, as they are held.

use crate::sums::Summed;
use datapath_abi::{Endpoint, Held, LargeTable, Row, SmallTable};
use datapath_plan::{Address, Prefix};

/// A row that was written.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Written<'a> {
    Generation(u64),
    Endpoint(u32, &'a Endpoint),
    Row(u32, Row),
    OwnAddress(Address),
    Node(u32, Address),
    Service(Address, [u64; 2]),
    Class(Address, [u64; 2]),
    Prefix(Prefix, [u64; 2]),
    SetRow((u64, u64, u64), u32),
    SmallTable(u32, &'a SmallTable),
    LargeTable(u32, &'a LargeTable),
    Rule(u32, u64),
}

/// Returns each row of `held`. Of the maps that a program can add up it has those that `is_wanted` selects.
pub(crate) fn looked_up(
    held: &Held,
    is_wanted: impl Fn(Summed) -> bool,
) -> impl Iterator<Item = Written<'_>> {
    let classes = is_wanted(Summed::Classes).then_some(&held.classes).into_iter().flatten();
    let set_rows = is_wanted(Summed::SetRows).then_some(&held.set_rows).into_iter().flatten();
    let rules = is_wanted(Summed::Rules).then_some(&held.rules).into_iter().flatten();
    let node = (0..).zip(&held.node).map(|(family, at)| Written::Node(family, *at));
    std::iter::once(Written::Generation(held.generation))
        .chain(held.endpoints.iter().map(|(link, of)| Written::Endpoint(*link, of)))
        .chain(held.rows.iter().map(|(number, row)| Written::Row(*number, *row)))
        .chain(held.own_addresses.iter().map(|at| Written::OwnAddress(*at)))
        .chain(node)
        .chain(held.services.iter().map(|(at, of)| Written::Service(*at, *of)))
        .chain(classes.map(|(at, of)| Written::Class(*at, *of)))
        .chain(held.prefixes.iter().map(|(at, of)| Written::Prefix(*at, *of)))
        .chain(set_rows.map(|(key, table)| Written::SetRow(*key, *table)))
        .chain(held.small_tables.iter().map(|(number, of)| Written::SmallTable(*number, of)))
        .chain(held.large_tables.iter().map(|(number, of)| Written::LargeTable(*number, of)))
        .chain(rules.map(|(number, of)| Written::Rule(*number, *of)))
}
