//! The compilation of a snapshot.

use crate::{
    class::{ClassId, Classes},
    peers::{AllPeers, PeerId},
    set::{Compiler, PolicySet},
    tables::{PodSets, SetId, SetRows, TableId, Tables},
    traffic::IntervalTable,
};
use control_wire::NodeSnapshot;
use policy_core::{Direction, index::GroupId};
use std::{collections::BTreeMap, net::IpAddr};

/// Compiles the policies of a node. `names` are the addresses of DNS names that rules name.
pub fn compile(snapshot: &NodeSnapshot, names: &[(IpAddr, String)]) -> Tables {
    let mut peers = AllPeers::new();
    let classes = Classes::of(snapshot, names, &mut peers);
    let mut compiler = Compiler::new(snapshot, peers);
    let mut sets = Sets::default();
    let mut pods = BTreeMap::new();
    for (uid, pod) in &snapshot.pods {
        let mut set = |direction, is_hairpin| {
            sets.number(direction, compiler.set(pod, direction, is_hairpin))
        };
        let of = PodSets {
            ingress: set(Direction::Ingress, false),
            egress: set(Direction::Egress, false),
            hairpin_ingress: set(Direction::Ingress, true),
            hairpin_egress: set(Direction::Egress, true),
        };
        pods.insert(uid.clone(), of);
    }
    let mut services = Services::of(&classes);
    let mut tables = AllTables::default();
    let rows = |(direction, set): &(Direction, PolicySet)| {
        rows(set, *direction, &classes, &services.groups, &compiler.peers, &mut tables)
    };
    let sets = sets.sets.iter().map(rows).collect();
    Tables {
        addresses: classes.addresses,
        prefixes: classes.prefixes,
        services: std::mem::take(&mut services.classes),
        sets,
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
    services: &[Vec<GroupId>],
    peers: &AllPeers,
    tables: &mut AllTables,
) -> SetRows {
    let relevant = set.relevant();
    // Classes that differ in other peers only have the same tables.
    let mut known: BTreeMap<(Vec<PeerId>, usize), TableId> = BTreeMap::new();
    let mut table = |class: &[PeerId], service: usize| {
        let asked = class.iter().filter(|peer| relevant.binary_search(peer).is_ok());
        let asked: Vec<PeerId> = asked.copied().collect();
        *known.entry((asked, service)).or_insert_with_key(|(asked, service)| {
            tables.number(set.table(direction, asked, &services[*service], peers))
        })
    };
    let default = table(&[], 0);
    // Class 0 of Services stands for no Service.
    let used = if set.names_services() { services.len() } else { 1 };
    let mut rows = BTreeMap::new();
    for (number, class) in (0..).zip(&classes.peers) {
        let without = table(class, 0);
        if without != default {
            rows.insert((ClassId(number), 0), without);
        }
        for service in 1..used {
            let with = table(class, service);
            if with != without {
                rows.insert((ClassId(number), u32::try_from(service).unwrap_or(u32::MAX)), with);
            }
        }
    }
    SetRows { default, rows }
}

/// The sets of all pods, numbered.
#[derive(Default)]
struct Sets {
    numbers: BTreeMap<(Direction, PolicySet), SetId>,
    sets: Vec<(Direction, PolicySet)>,
}

impl Sets {
    fn number(&mut self, direction: Direction, set: PolicySet) -> SetId {
        let next = SetId(u32::try_from(self.sets.len()).unwrap_or(u32::MAX));
        *self.numbers.entry((direction, set)).or_insert_with_key(|set| {
            self.sets.push(set.clone());
            next
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
    classes: BTreeMap<crate::Address, u32>,
    /// By class; class 0 stands for no Service.
    groups: Vec<Vec<GroupId>>,
}

impl Services {
    fn of(classes: &Classes) -> Self {
        let mut groups: Vec<Vec<GroupId>> = vec![Vec::new()];
        let mut numbers = BTreeMap::new();
        let mut by_address = BTreeMap::new();
        for (address, of) in &classes.services {
            let next = u32::try_from(groups.len()).unwrap_or(u32::MAX);
            let number = *numbers.entry(of.clone()).or_insert_with(|| {
                groups.push(of.clone());
                next
            });
            by_address.insert(*address, number);
        }
        Self { classes: by_address, groups }
    }
}
