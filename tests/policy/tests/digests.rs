//! The numbers of sets and classes follow from their contents.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use datapath_plan::{Entry, Names, SetId, Tables, Verdict, compile};
use proptest::{collection::vec, prelude::*, test_runner::TestRunner};
use std::collections::BTreeMap;
use tests_policy::{cases, live::NODES, node_client::fresh, scenario::world};

/// The rows of the sets with their tables; rules have names instead of numbers.
fn rows(tables: &Tables) -> BTreeMap<(SetId, u64, u64), String> {
    let named = |verdict: &Verdict| {
        let rule = match verdict.reason {
            datapath_plan::Reason::Rule(id) => format!("{:?}", tables.rules[id.0 as usize]),
            other @ (datapath_plan::Reason::Default | datapath_plan::Reason::Isolation) => {
                format!("{other:?}")
            }
        };
        format!("{:?} by {rule}", verdict.decision)
    };
    let text = |table: datapath_plan::TableId| {
        let entries = tables.tables[&table].entries().iter();
        let entry = entries.map(|(start, entry)| match entry {
            Entry::Verdict(verdict) => format!("{start:?}: {}", named(verdict)),
            Entry::BySource(ports) => {
                let ports = ports.iter().map(|(port, verdict)| (port, named(verdict)));
                format!("{start:?}: {:?}", ports.collect::<Vec<_>>())
            }
        });
        entry.collect::<Vec<_>>().join("\n")
    };
    let mut all = BTreeMap::new();
    for (set, rows) in &tables.sets {
        all.insert((*set, 0, 0), text(rows.default));
        // A row that equals the one that is looked up instead is left out, so each class of the node counts.
        let classes = tables.addresses.values().chain(tables.prefixes.values());
        for class in classes {
            all.insert((*set, class.0, 0), text(rows.table(*class, 0)));
            for service in tables.services.values() {
                all.insert((*set, class.0, *service), text(rows.table(*class, *service)));
            }
        }
    }
    all
}

/// The kernel keeps rows of earlier compilations, so a row with the same key must be the same row in each world.
#[test]
fn a_row_has_the_same_meaning_in_every_world() {
    let mut runner = TestRunner::new(cases(100));
    let run = runner.run(&vec(world(), 2..8), |worlds| {
        let mut known: BTreeMap<(SetId, u64, u64), String> = BTreeMap::new();
        for (scenario, node) in worlds.iter().flat_map(|world| NODES.map(|node| (world, node))) {
            let snapshot = fresh(scenario, node).snapshot;
            let tables = compile(&snapshot, &Names::of_all(&snapshot, &scenario.names));
            for (key, row) in rows(&tables) {
                let earlier = known.entry(key).or_insert_with(|| row.clone());
                prop_assert_eq!(earlier, &row, "{:?}", key);
            }
        }
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
}

/// Equal contents have equal numbers, whatever else a node has.
#[test]
fn a_second_compilation_has_the_same_numbers() {
    let mut runner = TestRunner::new(cases(30));
    let run = runner.run(&world(), |scenario| {
        for node in NODES {
            let snapshot = &fresh(&scenario, node).snapshot;
            let names = Names::of_all(snapshot, &scenario.names);
            let (one, other) = (compile(snapshot, &names), compile(snapshot, &names));
            prop_assert_eq!(one, other);
        }
        Ok(())
    });
    run.unwrap();
}
