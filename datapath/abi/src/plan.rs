//! The writes that lead from the contents of the maps to a target.

use crate::{
    Row,
    bytes::{Endpoint, UID},
    held::{BY_PREFIX, Held, Write},
    limits::{Full, check},
    scope::Scope,
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

/// Plans the way to a target. `pods` are the pods' host links by ifindex. Outside of `scope` the maps are as the target
/// and the pods are. Without a scope all rows are compared.
///
/// # Errors
/// If a map would have too many rows.
pub fn plan(
    held: &Held,
    target: &Target,
    pods: &BTreeMap<u32, Pod>,
    own: &Own,
    scope: Option<&Scope>,
) -> Result<Plan, Full> {
    let half = held.half();
    let is_prefix = scope.is_none_or(|scope| scope.prefixes);
    let (was, is) =
        (Pieces::of(&held.prefixes, is_prefix), Pieces::of(&target.prefixes, is_prefix));
    // Links and rows of pods that are as they are to be need no look.
    let nothing = (BTreeMap::new(), BTreeMap::new());
    let (pods, endpoints) = match scope.is_none_or(|scope| scope.pods) {
        true => (pods, &held.endpoints),
        false => (&nothing.0, &nothing.1),
    };
    let slots = slots(held, pods)?;
    let is_row = |link: &u32, row: Row| {
        held.endpoints.get(link).is_none_or(|endpoint| held.row_of(endpoint) == Some(row))
    };
    let flips = pods.iter().any(|(link, pod)| !is_row(link, pod.row))
        || differs(&held.classes, &target.classes, half, BY_PREFIX, scope.map(|of| &of.classes))
        || differs(&held.services, &target.services, half, 0, scope.map(|of| &of.services))
        || is.iter().any(|(prefix, class)| was.class(*prefix, |of| of[half]) != *class)
        || was.iter().any(|(prefix, of)| of[half] != is.class(*prefix, |of| *of));
    let mut plan = Plan::default();
    let before = &mut plan.before;
    let set_rows: Vec<_> =
        missing(&held.set_rows, &target.set_rows, scope.map(|of| &of.set_rows)).collect();
    // Rules and tables are new only for new rows.
    if scope.is_none() || !set_rows.is_empty() {
        let rules = missing(&held.rules, &target.rules, None);
        before.extend(rules.map(|(number, of)| Write::Rule(*number, Some(*of))));
        let small = missing(&held.small_tables, &target.small_tables, None);
        before.extend(small.map(|(number, of)| Write::SmallTable(*number, Box::new(*of))));
        let large = missing(&held.large_tables, &target.large_tables, None);
        before.extend(large.map(|(number, of)| Write::LargeTable(*number, Box::new(*of))));
    }
    before.extend(set_rows.into_iter().map(|(key, table)| Write::SetRow(*key, Some(*table))));
    let added = own.addresses.difference(&held.own_addresses);
    before.extend(added.map(|address| Write::OwnAddress(*address, true)));
    let removed = held.own_addresses.difference(&own.addresses);
    before.extend(removed.map(|address| Write::OwnAddress(*address, false)));
    for (family, (is, was)) in (0..).zip(own.node.iter().zip(&held.node)) {
        before.extend((is != was).then_some(Write::Node(family, *is)));
    }
    let next = if flips { 1 - half } else { half };
    if flips {
        let of = scope.map(|of| &of.classes);
        let classes = other_half(&held.classes, &target.classes, half, BY_PREFIX, of);
        before.extend(classes.map(|(address, of)| Write::Class(address, Some(of))));
        let of = scope.map(|of| &of.services);
        let services = other_half(&held.services, &target.services, half, 0, of);
        before.extend(services.map(|(address, of)| Write::Service(address, Some(of))));
        let prefixes: BTreeSet<&Prefix> =
            was.iter().map(|(at, _)| at).chain(is.iter().map(|(at, _)| at)).collect();
        for prefix in prefixes {
            // A prefix that one of the states does not have gets the class of the longest one that covers it there.
            let now = was.class(*prefix, |of| of[half]);
            let value = halves(half, now, is.class(*prefix, |of| *of));
            if was.get(prefix) != Some(&value) {
                before.push(Write::Prefix(*prefix, Some(value)));
            }
        }
        plan.flip = Some(Write::Flip(held.generation + 1));
    }
    for (link, pod) in pods {
        let before = held.endpoints.get(link);
        let slot = before.map(|endpoint| endpoint.slot).or_else(|| slots.get(link).copied());
        let Some(slot) = slot else { continue };
        let number = Held::row_number(slot, next);
        if held.rows.get(&number) != Some(&pod.row) {
            plan.before.push(Write::Row(number, pod.row));
        }
        if before.is_none() {
            plan.before.push(Write::Share(slot));
        }
        let uid = &pod.uid[..pod.uid.floor_char_boundary(UID)];
        if before.is_none_or(|of| of.v4 != pod.v4 || of.v6 != pod.v6 || of.uid != uid) {
            let endpoint = Endpoint { slot, v4: pod.v4, v6: pod.v6, uid: uid.to_owned() };
            plan.after.push(Write::Endpoint(*link, Some(endpoint)));
        }
    }
    for (link, endpoint) in endpoints.iter().filter(|(link, _)| !pods.contains_key(link)) {
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

/// Plans the rows of pods that start under a state that cannot come into force. The plan has no flip: the earlier state stays
/// in force for every link that has its pod already. `pods` are the pods' host links by ifindex.
///
/// # Errors
/// If the maps have no room for a link.
pub fn plan_started(held: &Held, pods: &BTreeMap<u32, Pod>) -> Result<Plan, Full> {
    let used: BTreeSet<u32> = held.endpoints.values().map(|endpoint| endpoint.slot).collect();
    let mut free = (0..SLOTS).filter(|slot| !used.contains(slot));
    let mut plan = Plan::default();
    let needed = u32::try_from(held.endpoints.len() + pods.len()).unwrap_or(u32::MAX);
    for (link, pod) in pods.iter().filter(|(link, pod)| is_new(held, **link, &pod.uid)) {
        // A link of an earlier pod gets another slot, because a program may use its row.
        let full = Full { map: "endpoints", limit: SLOTS, needed };
        let slot = free.next().ok_or(full)?;
        plan.before.push(Write::Row(Held::row_number(slot, held.half()), pod.row));
        plan.before.push(Write::Share(slot));
        let uid = pod.uid[..pod.uid.floor_char_boundary(UID)].to_owned();
        let endpoint = Endpoint { slot, v4: pod.v4, v6: pod.v6, uid };
        plan.after.push(Write::Endpoint(*link, Some(endpoint)));
    }
    Ok(plan)
}

/// True if a link does not have this pod yet.
pub fn is_new(held: &Held, link: u32, uid: &str) -> bool {
    let uid = &uid[..uid.floor_char_boundary(UID)];
    held.endpoints.get(&link).is_none_or(|endpoint| endpoint.uid != uid)
}

/// The removal of rows to which nothing in force refers. The caller waits after a plan until
/// no program judges by the earlier state. Outside of `scope` no row is to be removed.
pub fn cleanup(held: &Held, target: &Target, scope: Option<&Scope>) -> Vec<Write> {
    let half = held.half();
    let unused = among(&held.set_rows, scope.map(|of| &of.set_rows));
    let mut unused = unused.filter(|(key, _)| !target.set_rows.contains_key(key)).peekable();
    // Sets that stay in force although the target does not have them.
    let mut kept: BTreeSet<u64> = BTreeSet::new();
    if unused.peek().is_some() {
        for row in held.endpoints.values().filter_map(|endpoint| held.row_of(endpoint)) {
            kept.extend(row.0.iter().filter(|set| !target.set_rows.contains_key(&(**set, 0, 0))));
        }
    }
    let unused = unused.filter(|(key, _)| !kept.contains(&key.0));
    let mut writes: Vec<Write> = unused.map(|(key, _)| Write::SetRow(*key, None)).collect();
    let classes = among(&held.classes, scope.map(|of| &of.classes));
    let classes = classes.filter(|(_, of)| of[half] == BY_PREFIX);
    writes.extend(classes.map(|(address, _)| Write::Class(*address, None)));
    let services = among(&held.services, scope.map(|of| &of.services));
    let services = services.filter(|(_, of)| of[half] == 0);
    writes.extend(services.map(|(address, _)| Write::Service(*address, None)));
    let pieces = Pieces::of(&held.prefixes, scope.is_none_or(|scope| scope.prefixes));
    let prefixes = pieces.iter().filter(|(prefix, of)| {
        !target.prefixes.contains_key(prefix) && of[half] == pieces.around(**prefix, |of| of[half])
    });
    writes.extend(prefixes.map(|(prefix, _)| Write::Prefix(*prefix, None)));
    let rules = among(&held.rules, scope.map(|of| &of.rules));
    let rules = rules.filter(|(number, _)| !target.rules.contains_key(number));
    writes.extend(rules.map(|(number, _)| Write::Rule(*number, None)));
    writes
}

/// The slots of links that have none yet. A known link keeps its own.
fn slots(held: &Held, pods: &BTreeMap<u32, Pod>) -> Result<BTreeMap<u32, u32>, Full> {
    let mut new = pods.keys().filter(|link| !held.endpoints.contains_key(link)).peekable();
    if new.peek().is_none() {
        return Ok(BTreeMap::new());
    }
    let used: BTreeSet<u32> = held.endpoints.values().map(|endpoint| endpoint.slot).collect();
    let mut free = (0..SLOTS).filter(|slot| !used.contains(slot));
    let needed = u32::try_from(pods.len()).unwrap_or(u32::MAX);
    let full = Full { map: "endpoints", limit: SLOTS, needed };
    new.map(|link| Ok((*link, free.next().ok_or(full)?))).collect()
}

/// The rows of a map with these keys; `None`: all rows.
fn among<'a, K: Ord, V>(
    map: &'a BTreeMap<K, V>,
    keys: Option<&'a BTreeSet<K>>,
) -> Box<dyn Iterator<Item = (&'a K, &'a V)> + 'a> {
    match keys {
        Some(keys) => Box::new(keys.iter().filter_map(|key| map.get_key_value(key))),
        None => Box::new(map.iter()),
    }
}

/// The rows of the target that are missing or different.
fn missing<'a, K: Ord, V: PartialEq>(
    held: &'a BTreeMap<K, V>,
    target: &'a BTreeMap<K, V>,
    keys: Option<&'a BTreeSet<K>>,
) -> impl Iterator<Item = (&'a K, &'a V)> {
    among(target, keys).filter(|(key, value)| held.get(key) != Some(value))
}

/// True if the half in force is not the target. A key without a row has the value `absent`.
fn differs<K: Ord>(
    held: &BTreeMap<K, [u64; 2]>,
    target: &BTreeMap<K, u64>,
    half: usize,
    absent: u64,
    keys: Option<&BTreeSet<K>>,
) -> bool {
    let is = |key: &K| held.get(key).map_or(absent, |of| of[half]);
    among(target, keys).any(|(key, class)| is(key) != *class)
        || among(held, keys).any(|(key, of)| of[half] != target.get(key).copied().unwrap_or(absent))
}

/// The values whose other half is to become the target.
fn other_half<K: Ord + Copy>(
    held: &BTreeMap<K, [u64; 2]>,
    target: &BTreeMap<K, u64>,
    half: usize,
    absent: u64,
    keys: Option<&BTreeSet<K>>,
) -> impl Iterator<Item = (K, [u64; 2])> {
    let keys: BTreeSet<K> = match keys {
        Some(keys) => keys.clone(),
        None => held.keys().chain(target.keys()).copied().collect(),
    };
    keys.into_iter().filter_map(move |key| {
        let now = held.get(&key).map_or(absent, |of| of[half]);
        let next = target.get(&key).copied().unwrap_or(absent);
        let value = halves(half, now, next);
        let is_absent = value == [absent; 2] && !held.contains_key(&key);
        (!is_absent && held.get(&key) != Some(&value)).then_some((key, value))
    })
}

fn halves(half: usize, now: u64, next: u64) -> [u64; 2] {
    if half == 0 { [now, next] } else { [next, now] }
}

/// Prefixes with the lengths that occur.
struct Pieces<'a, V> {
    /// `None` if they do not count.
    pieces: Option<&'a BTreeMap<Prefix, V>>,
    lengths: BTreeSet<u8>,
}

impl<'a, V> Pieces<'a, V> {
    fn of(pieces: &'a BTreeMap<Prefix, V>, do_count: bool) -> Self {
        let pieces = do_count.then_some(pieces);
        let prefixes = pieces.into_iter().flat_map(BTreeMap::keys);
        Self { pieces, lengths: prefixes.map(|prefix| prefix.length).collect() }
    }

    fn iter(&self) -> impl Iterator<Item = (&'a Prefix, &'a V)> + use<'a, V> {
        self.pieces.into_iter().flatten()
    }

    fn get(&self, prefix: &Prefix) -> Option<&'a V> {
        self.pieces?.get(prefix)
    }

    /// The class of a prefix, or else that of the longest one that covers it.
    fn class(&self, prefix: Prefix, class: impl Fn(&V) -> u64) -> u64 {
        match self.get(&prefix) {
            Some(of) => class(of),
            None => self.around(prefix, class),
        }
    }

    /// The class of the longest other prefix that covers one.
    fn around(&self, prefix: Prefix, class: impl Fn(&V) -> u64) -> u64 {
        let shorter = self.lengths.range(..prefix.length).rev();
        let mut outer = shorter.map(|length| Prefix::around(prefix.first, *length));
        outer.find_map(|outer| self.get(&outer)).map_or(0, class)
    }
}

/// The rows of each map after a plan, with those that stay for now.
pub fn sizes(held: &Held, plan: &Plan) -> [(&'static str, usize); 6] {
    let mut sizes = [
        ("rules", held.rules.len()),
        ("set_rows", held.set_rows.len()),
        ("classes", held.classes.len()),
        ("prefixes", held.prefixes.len()),
        ("services", held.services.len()),
        ("own_addresses", held.own_addresses.len()),
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
    sizes
}

/// Checks that each map has room for the rows that are added to those that stay for now.
fn fits(held: &Held, plan: &Plan) -> Result<(), Full> {
    let mut limits = held.limits;
    sizes(held, plan).into_iter().try_for_each(|(map, rows)| {
        check(map, rows, limits.of(map).map_or(OWN_ADDRESSES, |limit| *limit))
    })
}

const SLOTS: u32 = 2048;
const OWN_ADDRESSES: u32 = 4096;
