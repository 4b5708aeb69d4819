//! The marks of packets from single addresses, by which shared rules select their ENI: one map in a table of nftables
//! of its own.
//!
//! A new or removed address changes one element of the map. Any other difference replaces the table. Both are one
//! transaction. Bits of other marks are kept.

use super::nftables::{Chain, Hook, Listed, Rule, same, set, table};
use config_model::Mark;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    net::Ipv4Addr,
};

/// The table, of family `ip`. Its whole content is ours.
pub const TABLE: &str = "ferrule-sources";
const MAP: &str = "by-address";
/// After other hooks that set marks, and before the routing decision.
const BEFORE_ROUTING: i32 = -85;

/// The input of `nft -f -` that leads to exactly these marks; `None` if nothing differs.
pub fn plan(marks: &BTreeMap<Ipv4Addr, Mark>, there: Option<&Listed>) -> Option<String> {
    let Some(there) = there else { return (!marks.is_empty()).then(|| whole(marks)) };
    if marks.is_empty() {
        return Some(format!("delete table ip {TABLE}\n"));
    }
    let elements = match &there.marks {
        Some((name, elements)) if name == MAP && same(&chains(marks), there) => elements,
        _ => return Some(whole(marks)),
    };
    let wanted = marks.iter().map(|(address, mark)| (*address, chain_of(*mark)));
    let wanted: BTreeMap<Ipv4Addr, String> = wanted.collect();
    let differ = |address: &Ipv4Addr, chain: &String, other: &BTreeMap<Ipv4Addr, String>| {
        other.get(address) != Some(chain)
    };
    let gone = elements.iter().filter(|(address, chain)| differ(address, chain, &wanted));
    let new = wanted.iter().filter(|(address, chain)| differ(address, chain, elements));
    let mut script = change("delete", gone.map(|(address, _)| address.to_string()));
    script += &change("add", new.map(|(address, chain)| format!("{address} : goto {chain}")));
    (!script.is_empty()).then_some(script)
}

/// The marks that the observed table sets; empty if its rules are not ours.
pub fn seen(there: Option<&Listed>) -> BTreeMap<Ipv4Addr, Mark> {
    let Some(listed) = there else { return BTreeMap::new() };
    let Some((MAP, elements)) = listed.marks.as_ref().map(|(name, of)| (name.as_str(), of)) else {
        return BTreeMap::new();
    };
    let marks = elements.iter().filter_map(|(address, chain)| Some((*address, mark_of(chain)?)));
    let marks: BTreeMap<Ipv4Addr, Mark> = marks.collect();
    let unused = listed.chains.keys().filter_map(|chain| mark_of(chain)).collect();
    if same(&chains_of(unused), listed) { marks } else { BTreeMap::new() }
}

fn whole(marks: &BTreeMap<Ipv4Addr, Mark>) -> String {
    let elements: Vec<String> = marks
        .iter()
        .map(|(address, mark)| format!("{address} : goto {}", chain_of(*mark)))
        .collect();
    let map = format!(
        "\tmap {MAP} {{\n\t\ttype ipv4_addr : verdict\n\t\telements = {{ {} }}\n\t}}\n",
        elements.join(", ")
    );
    table(&format!("ip {TABLE}"), &map, &chains(marks))
}

fn change(verb: &str, elements: impl Iterator<Item = String>) -> String {
    let elements: Vec<String> = elements.collect();
    let mut script = String::new();
    if !elements.is_empty() {
        let _ = writeln!(script, "{verb} element ip {TABLE} {MAP} {{ {} }}", elements.join(", "));
    }
    script
}

fn chains(marks: &BTreeMap<Ipv4Addr, Mark>) -> Vec<Chain> {
    chains_of(marks.values().copied().collect())
}

/// The chain of the hook, and one chain for each mark.
fn chains_of(marks: BTreeSet<Mark>) -> Vec<Chain> {
    let hook = Hook { kind: "filter", at: "prerouting", priority: BEFORE_ROUTING };
    let text = format!("ip saddr vmap @{MAP}");
    let look = Rule { text, about: "from a single address of an ENI" };
    let first = Chain { name: "before-routing".into(), hook: Some(hook), rules: vec![look] };
    let one = |mark: Mark| Chain {
        name: chain_of(mark).into(),
        hook: None,
        rules: vec![Rule { text: set("meta", mark), about: "by its ENI" }],
    };
    [first].into_iter().chain(marks.into_iter().map(one)).collect()
}

/// The name of the chain that sets the mark.
fn chain_of(mark: Mark) -> String {
    format!("mark-{:#x}", mark.value)
}

fn mark_of(chain: &str) -> Option<Mark> {
    let value = chain.strip_prefix("mark-0x")?;
    let value = u32::from_str_radix(value, 16).ok()?;
    Some(Mark { value, mask: config_model::registry::SOURCE_MARKS })
}

#[cfg(test)]
mod tests;
