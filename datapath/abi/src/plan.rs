//! The writes that lead from the contents of the maps to a target.

use crate::{
    Row,
    bytes::{Endpoint, UID},
    held::{BY_PREFIX, Held, Write},
    numbers::{Full, RULES},
    target::Target,
};
use datapath_plan::{Address, Prefix};
use std::collections::{BTreeMap, BTreeSet};

/// A pod's host link, as it is to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Of at most 64 bytes.
    pub uid: String,
    pub row: Row,
    pub v4: Option<Address>,
    pub v6: Option<Address>,
}

/// The node's own addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Own {
    pub addresses: BTreeSet<Address>,
    /// The addresses that stand for the node in policies, of IPv4 and IPv6; 0 if it has none.
    pub node: [Address; 2],
}

/// The writes, in order. Until the flip each packet gets the answer of the earlier state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Rows that nothing in force refers to.
    pub before: Vec<Write>,
    /// `None` if no verdict about a known pod changes.
    pub flip: Option<Write>,
    /// Endpoints.
    pub after: Vec<Write>,
}

impl Plan {
    /// All writes in order.
    pub fn writes(&self) -> impl Iterator<Item = &Write> {
        self.before.iter().chain(&self.flip).chain(&self.after)
    }

    /// True if the target is in force.
    pub fn is_empty(&self) -> bool {
        self.before.is_empty() && self.flip.is_none() && self.after.is_empty()
    }
}

/// Plans the way to a target. `pods` are the pods' host links by ifindex.
///
/// # Errors
/// If a map would have too many rows.
pub fn plan(
    held: &Held,
    target: &Target,
    pods: &BTreeMap<u32, Pod>,
    own: &Own,
) -> Result<Plan, Full> {
    let half = held.half();
    let (was, is) = (Pieces::of(&held.prefixes), Pieces::of(&target.prefixes));
    let slots = slots(held, pods)?;
    let is_row = |link: &u32, row: Row| {
        held.endpoints.get(link).is_none_or(|endpoint| held.row_of(endpoint) == Some(row))
    };
    let flips = pods.iter().any(|(link, pod)| !is_row(link, pod.row))
        || differs(&held.classes, &target.classes, half, BY_PREFIX)
        || differs(&held.services, &target.services, half, 0)
        || is.pieces.iter().any(|(prefix, class)| was.class(*prefix, |of| of[half]) != *class)
        || was.pieces.iter().any(|(prefix, of)| of[half] != is.class(*prefix, |of| *of));
    let mut plan = Plan::default();
    let before = &mut plan.before;
    before.extend(
        missing(&held.rules, &target.rules).map(|(number, of)| Write::Rule(*number, Some(*of))),
    );
    before.extend(
        missing(&held.small_tables, &target.small_tables)
            .map(|(number, table)| Write::SmallTable(*number, Box::new(*table))),
    );
    before.extend(
        missing(&held.large_tables, &target.large_tables)
            .map(|(number, table)| Write::LargeTable(*number, Box::new(*table))),
    );
    before.extend(
        missing(&held.set_rows, &target.set_rows)
            .map(|(key, table)| Write::SetRow(*key, Some(*table))),
    );
    let added = own.addresses.difference(&held.own_addresses);
    before.extend(added.map(|address| Write::OwnAddress(*address, true)));
    let removed = held.own_addresses.difference(&own.addresses);
    before.extend(removed.map(|address| Write::OwnAddress(*address, false)));
    for (family, (is, was)) in (0..).zip(own.node.iter().zip(&held.node)) {
        before.extend((is != was).then_some(Write::Node(family, *is)));
    }
    let next = if flips { 1 - half } else { half };
    if flips {
        let classes = other_half(&held.classes, &target.classes, half, BY_PREFIX);
        before.extend(classes.map(|(address, of)| Write::Class(address, Some(of))));
        let services = other_half(&held.services, &target.services, half, 0);
        before.extend(services.map(|(address, of)| Write::Service(address, Some(of))));
        let prefixes: BTreeSet<&Prefix> = was.pieces.keys().chain(is.pieces.keys()).collect();
        for prefix in prefixes {
            // A prefix that one of the states does not have gets the class of the longest one that covers it there.
            let now = was.class(*prefix, |of| of[half]);
            let value = halves(half, now, is.class(*prefix, |of| *of));
            if was.pieces.get(prefix) != Some(&value) {
                before.push(Write::Prefix(*prefix, Some(value)));
            }
        }
        plan.flip = Some(Write::Flip(held.generation + 1));
    }
    for (link, pod) in pods {
        let Some(slot) = slots.get(link) else { continue };
        let number = Held::row_number(*slot, next);
        if held.rows.get(&number) != Some(&pod.row) {
            plan.before.push(Write::Row(number, pod.row));
        }
        let mut uid = pod.uid.clone();
        uid.truncate(uid.floor_char_boundary(UID));
        let endpoint = Endpoint { slot: *slot, v4: pod.v4, v6: pod.v6, uid };
        let before = held.endpoints.get(link);
        if before.is_none() {
            plan.before.push(Write::Share(*slot));
        }
        if before != Some(&endpoint) {
            plan.after.push(Write::Endpoint(*link, Some(endpoint)));
        }
    }
    for (link, endpoint) in held.endpoints.iter().filter(|(link, _)| !pods.contains_key(link)) {
        // A pod that has ended is closed until its link is removed.
        let number = Held::row_number(endpoint.slot, next);
        if flips && held.rows.get(&number) != Some(&Row::CLOSED) {
            plan.before.push(Write::Row(number, Row::CLOSED));
        }
        plan.after.push(Write::Endpoint(*link, None));
    }
    fits(held, &plan)?;
    Ok(plan)
}

/// The removal of rows to which nothing in force refers. The caller waits after a plan until
/// no program judges by the earlier state.
pub fn cleanup(held: &Held, target: &Target) -> Vec<Write> {
    let half = held.half();
    let known: BTreeSet<u64> = target.set_rows.keys().map(|(set, _, _)| *set).collect();
    // Sets that stay in force although the target does not have them.
    let mut kept: BTreeSet<u64> = BTreeSet::new();
    for row in held.endpoints.values().filter_map(|endpoint| held.row_of(endpoint)) {
        kept.extend(row.0.iter().filter(|set| !known.contains(set)));
    }
    let mut writes = Vec::new();
    let unused = held.set_rows.keys();
    let unused = unused.filter(|key| !target.set_rows.contains_key(key) && !kept.contains(&key.0));
    writes.extend(unused.map(|key| Write::SetRow(*key, None)));
    let is_unused = |(_, of): &(&Address, &[u64; 2])| of[half] == BY_PREFIX;
    let classes = held.classes.iter().filter(is_unused);
    writes.extend(classes.map(|(address, _)| Write::Class(*address, None)));
    let services = held.services.iter().filter(|(_, of)| of[half] == 0);
    writes.extend(services.map(|(address, _)| Write::Service(*address, None)));
    let pieces = Pieces::of(&held.prefixes);
    let prefixes = held.prefixes.iter().filter(|(prefix, of)| {
        !target.prefixes.contains_key(prefix) && of[half] == pieces.around(**prefix, |of| of[half])
    });
    writes.extend(prefixes.map(|(prefix, _)| Write::Prefix(*prefix, None)));
    let rules = held.rules.keys().filter(|number| !target.rules.contains_key(number));
    writes.extend(rules.map(|number| Write::Rule(*number, None)));
    writes
}

/// The slot of each link: a known link keeps its own, and the others get free ones.
fn slots(held: &Held, pods: &BTreeMap<u32, Pod>) -> Result<BTreeMap<u32, u32>, Full> {
    let used: BTreeSet<u32> = held.endpoints.values().map(|endpoint| endpoint.slot).collect();
    let mut free = (0..SLOTS).filter(|slot| !used.contains(slot));
    let mut slots = BTreeMap::new();
    for link in pods.keys() {
        let own = held.endpoints.get(link).map(|endpoint| endpoint.slot);
        let slot = own.or_else(|| free.next());
        slots.insert(*link, slot.ok_or(Full { map: "endpoints", limit: SLOTS })?);
    }
    Ok(slots)
}

/// The rows of the target that are missing or different.
fn missing<'a, K: Ord, V: PartialEq>(
    held: &'a BTreeMap<K, V>,
    target: &'a BTreeMap<K, V>,
) -> impl Iterator<Item = (&'a K, &'a V)> {
    target.iter().filter(|(key, value)| held.get(key) != Some(value))
}

/// True if the half in force is not the target. A key without a row has the value `absent`.
fn differs<K: Ord>(
    held: &BTreeMap<K, [u64; 2]>,
    target: &BTreeMap<K, u64>,
    half: usize,
    absent: u64,
) -> bool {
    let is = |key: &K| held.get(key).map_or(absent, |of| of[half]);
    target.iter().any(|(key, class)| is(key) != *class)
        || held.iter().any(|(key, of)| of[half] != target.get(key).copied().unwrap_or(absent))
}

/// The values whose other half is to become the target.
fn other_half<K: Ord + Copy>(
    held: &BTreeMap<K, [u64; 2]>,
    target: &BTreeMap<K, u64>,
    half: usize,
    absent: u64,
) -> impl Iterator<Item = (K, [u64; 2])> {
    let keys: BTreeSet<K> = held.keys().chain(target.keys()).copied().collect();
    keys.into_iter().filter_map(move |key| {
        let now = held.get(&key).map_or(absent, |of| of[half]);
        let next = target.get(&key).copied().unwrap_or(absent);
        let value = halves(half, now, next);
        (held.get(&key) != Some(&value)).then_some((key, value))
    })
}

fn halves(half: usize, now: u64, next: u64) -> [u64; 2] {
    if half == 0 { [now, next] } else { [next, now] }
}

/// Prefixes with the lengths that occur.
struct Pieces<'a, V> {
    pieces: &'a BTreeMap<Prefix, V>,
    lengths: BTreeSet<u8>,
}

impl<'a, V> Pieces<'a, V> {
    fn of(pieces: &'a BTreeMap<Prefix, V>) -> Self {
        Self { pieces, lengths: pieces.keys().map(|prefix| prefix.length).collect() }
    }

    /// The class of a prefix, or else that of the longest one that covers it.
    fn class(&self, prefix: Prefix, class: impl Fn(&V) -> u64) -> u64 {
        match self.pieces.get(&prefix) {
            Some(of) => class(of),
            None => self.around(prefix, class),
        }
    }

    /// The class of the longest other prefix that covers one.
    fn around(&self, prefix: Prefix, class: impl Fn(&V) -> u64) -> u64 {
        let shorter = self.lengths.range(..prefix.length).rev();
        let mut outer = shorter.map(|length| Prefix::around(prefix.first, *length));
        outer.find_map(|outer| self.pieces.get(&outer)).map_or(0, class)
    }
}

/// Checks that each map has room for the rows that are added to those that stay for now.
fn fits(held: &Held, plan: &Plan) -> Result<(), Full> {
    let mut sizes = [
        ("rules", held.rules.len(), RULES),
        ("set_rows", held.set_rows.len(), 262_144),
        ("classes", held.classes.len(), 131_072),
        ("prefixes", held.prefixes.len(), 65_536),
        ("services", held.services.len(), 16_384),
        ("own_addresses", held.own_addresses.len(), 4096),
    ];
    for write in plan.writes() {
        let (place, is_new) = match write {
            Write::Rule(number, of) => (0, of.is_some() && !held.rules.contains_key(number)),
            Write::SetRow(key, of) => (1, of.is_some() && !held.set_rows.contains_key(key)),
            Write::Class(at, of) => (2, of.is_some() && !held.classes.contains_key(at)),
            Write::Prefix(prefix, of) => (3, of.is_some() && !held.prefixes.contains_key(prefix)),
            Write::Service(at, of) => (4, of.is_some() && !held.services.contains_key(at)),
            Write::OwnAddress(_, is_added) => (5, *is_added),
            // Arrays have all rows, and slots are counted where they are given.
            Write::SmallTable(..)
            | Write::LargeTable(..)
            | Write::Row(..)
            | Write::Share(_)
            | Write::Node(..)
            | Write::Flip(_)
            | Write::Endpoint(..) => continue,
        };
        sizes[place].1 += usize::from(is_new);
    }
    let full = sizes.iter().find(|(_, rows, limit)| *rows > *limit as usize);
    full.map_or(Ok(()), |(map, _, limit)| Err(Full { map, limit: *limit }))
}

const SLOTS: u32 = 2048;
