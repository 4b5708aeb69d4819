//! The compilation of a snapshot.

use crate::{
    class::{ClassId, Classes},
    digest::{Used, digest},
    names::Names,
    peers::{AllPeers, PeerId},
    set::{Compiler, PolicySet},
    tables::{PodSets, SetId, SetRows, TableId, Tables},
    traffic::IntervalTable,
};
use control_wire::NodeSnapshot;
use policy_core::{Direction, index::GroupId};
use std::collections::{BTreeMap, BTreeSet};

/// Compiles the policies of a node. `names` are the addresses of DNS names that rules name.
pub fn compile(snapshot: &NodeSnapshot, names: &Names) -> Tables {
    let mut peers = AllPeers::new();
    let classes = Classes::of(snapshot, names, &mut peers);
    let mut compiler = Compiler::new(snapshot, peers);
    let mut services = Services::of(&classes);
    let mut sets = Sets::default();
    let mut tables = AllTables::default();
    let mut pods = BTreeMap::new();
    for (uid, pod) in &snapshot.pods {
        let mut set = |direction, is_hairpin| {
            let set = compiler.set(pod, direction, is_hairpin);
            sets.number(direction, set, |set| {
                let rows =
                    rows(set, direction, &classes, &services.groups, &compiler.peers, &mut tables);
                let digest = set.digest(direction, &compiler.peers, &compiler.names);
                (!tables.allows_all(&rows)).then_some((digest, rows))
            })
        };
        let of = PodSets {
            ingress: set(Direction::Ingress, false),
            egress: set(Direction::Egress, false),
            hairpin_ingress: set(Direction::Ingress, true),
            hairpin_egress: set(Direction::Egress, true),
        };
        pods.insert(uid.clone(), of);
    }
    Tables {
        addresses: classes.addresses,
        prefixes: classes.prefixes,
        services: std::mem::take(&mut services.classes),
        sets: sets.rows,
        tables: tables.tables,
        rules: compiler.names.names,
        pods,
    }
}

/// The rows of a set: for each class the table, if it is not the one that is looked up without the row.
fn rows(
    set: &PolicySet,
    direction: Direction,
    classes: &Classes,
    services: &BTreeMap<u64, Vec<GroupId>>,
    peers: &AllPeers,
    tables: &mut AllTables,
) -> SetRows {
    let relevant = set.relevant();
    // Classes that differ in other peers only have the same tables.
    let mut known: BTreeMap<(Vec<PeerId>, u64), TableId> = BTreeMap::new();
    let mut table = |class: &[PeerId], service: u64, groups: &[GroupId]| {
        let asked = class.iter().filter(|peer| relevant.binary_search(peer).is_ok());
        let asked: Vec<PeerId> = asked.copied().collect();
        *known.entry((asked, service)).or_insert_with_key(|(asked, _)| {
            tables.number(set.table(direction, asked, groups, peers))
        })
    };
    let default = table(&[], 0, &[]);
    let services = services.iter().filter(|_| set.names_services());
    let services: Vec<(u64, &[GroupId], TableId)> = services
        .map(|(service, groups)| (*service, groups.as_slice(), table(&[], *service, groups)))
        .collect();
    let mut rows = BTreeMap::new();
    for (service, _, table) in services.iter().filter(|(.., table)| *table != default) {
        rows.insert((ClassId(0), *service), *table);
    }
    // All other classes have the tables of class 0.
    let asked: BTreeSet<ClassId> =
        relevant.iter().filter_map(|peer| classes.of_peer.get(peer)).flatten().copied().collect();
    for number in asked {
        let Some(class) = classes.peers.get(&number) else { continue };
        let without = table(class, 0, &[]);
        if without != default {
            rows.insert((number, 0), without);
        }
        for (service, groups, of_others) in &services {
            let with = table(class, *service, groups);
            let instead = if without == default { *of_others } else { without };
            if with != instead {
                rows.insert((number, *service), with);
            }
        }
    }
    SetRows { default, rows }
}

/// The sets of all pods, numbered.
#[derive(Default)]
struct Sets {
    numbers: BTreeMap<(Direction, PolicySet), SetId>,
    used: Used,
    rows: BTreeMap<SetId, SetRows>,
}

impl Sets {
    /// The number of a set. `compile` returns its digest and its rows, or `None` if it allows everything.
    fn number(
        &mut self,
        direction: Direction,
        set: PolicySet,
        compile: impl FnOnce(&PolicySet) -> Option<(u64, SetRows)>,
    ) -> SetId {
        *self.numbers.entry((direction, set)).or_insert_with_key(|(_, set)| {
            let Some((digest, rows)) = compile(set) else { return SetId(0) };
            let id = SetId(self.used.number(digest, Some(set.names_services())));
            self.rows.insert(id, rows);
            id
        })
    }
}

/// The interval tables of all sets, numbered.
#[derive(Default)]
struct AllTables {
    numbers: BTreeMap<IntervalTable, TableId>,
    tables: Vec<IntervalTable>,
}

impl AllTables {
    /// True if no rule decides about any packet.
    fn allows_all(&self, rows: &SetRows) -> bool {
        let default = self.tables.get(rows.default.0 as usize);
        rows.rows.is_empty() && default.is_some_and(IntervalTable::is_default)
    }

    fn number(&mut self, table: IntervalTable) -> TableId {
        let next = TableId(u32::try_from(self.tables.len()).unwrap_or(u32::MAX));
        *self.numbers.entry(table).or_insert_with_key(|table| {
            self.tables.push(table.clone());
            next
        })
    }
}

/// The classes of the Services' addresses.
struct Services {
    classes: BTreeMap<crate::Address, u64>,
    /// The groups of Services by class.
    groups: BTreeMap<u64, Vec<GroupId>>,
}

impl Services {
    fn of(classes: &Classes) -> Self {
        let mut used = Used::default();
        let mut numbers = BTreeMap::new();
        let mut groups = BTreeMap::new();
        let mut by_address = BTreeMap::new();
        for (address, of) in &classes.services {
            let number = *numbers.entry(of).or_insert_with(|| {
                let number = used.number(digest(of), None);
                groups.insert(number, of.clone());
                number
            });
            by_address.insert(*address, number);
        }
        Self { classes: by_address, groups }
    }
}
