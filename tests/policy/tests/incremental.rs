//! A compilation that follows a node's snapshots compared with compilations from scratch, up to the rows of the maps.

use control_hub::Hub;
use datapath_abi::{Held, Numbers, Own, Pod, Row, Scope, Target, cleanup, plan};
use datapath_plan::{
    Address, ClassId, Compilation, Entry, IntervalTable, Names, PodSets, Prefix, Reason, RuleName,
    SetId, TableId, Tables, compile,
};
use policy_core::{Decision, index::Event as IndexEvent};
use proptest::{
    collection::vec, prelude::*, sample::Index, test_runner::TestCaseError, test_runner::TestRunner,
};
use std::{collections::BTreeMap, mem::take, net::IpAddr};
use tests_policy::{
    cases,
    live::NODES,
    node_client::{NodeClient, feed},
    scenario::{Event, Scenario, events, id, world},
};

/// The entries of an interval table, with names instead of the numbers of rules.
type Entries = Vec<(u32, Vec<(u16, Decision, bool, Result<RuleName, Reason>)>)>;

/// Tables without the numbers of one compilation.
#[derive(Debug, PartialEq)]
struct Contents {
    addresses: BTreeMap<Address, ClassId>,
    prefixes: BTreeMap<Prefix, ClassId>,
    services: BTreeMap<Address, u64>,
    defaults: BTreeMap<SetId, Entries>,
    rows: BTreeMap<(SetId, ClassId, u64), Entries>,
    pods: BTreeMap<String, PodSets>,
}

fn contents(tables: &Tables) -> Contents {
    let verdict = |first: u16, verdict: &datapath_plan::Verdict| {
        let reason = match verdict.reason {
            Reason::Rule(id) => Ok(tables.rules[id.0 as usize].clone()),
            other @ (Reason::Default | Reason::Isolation) => Err(other),
        };
        (first, verdict.decision, verdict.is_logged, reason)
    };
    let entries = |table: &IntervalTable| {
        let entry = |entry: &Entry| match entry {
            Entry::Verdict(of) => vec![verdict(0, of)],
            Entry::BySource(ports) => ports.iter().map(|(first, of)| verdict(*first, of)).collect(),
        };
        table.entries().iter().map(|(start, of)| (start.0, entry(of))).collect::<Entries>()
    };
    let table = |id: &TableId| entries(&tables.tables[id]);
    let defaults = tables.sets.iter().map(|(id, set)| (*id, table(&set.default)));
    let rows = tables.sets.iter().flat_map(|(id, set)| {
        set.rows.iter().map(move |((class, service), of)| ((*id, *class, *service), of))
    });
    Contents {
        addresses: tables.addresses.clone(),
        prefixes: tables.prefixes.clone(),
        services: tables.services.clone(),
        defaults: defaults.collect(),
        rows: rows.map(|(key, of)| (key, table(of))).collect(),
        pods: tables.pods.clone(),
    }
}

/// The maps of a node, which follow its snapshots by differences.
struct Maps {
    compilation: Compilation,
    target: Target,
    numbers: Numbers,
    held: Held,
    /// `None` before the first state.
    scope: Option<Scope>,
    pods: BTreeMap<u32, Pod>,
}

/// The pods' links, by numbers that follow from the UIDs' order. A pod that is refused is closed.
fn pods(target: &Target) -> BTreeMap<u32, Pod> {
    let row = |uid: &String| match target.rows.get(uid) {
        Some(Ok(row)) => *row,
        Some(Err(_)) | None => Row::CLOSED,
    };
    let pod = |uid: &String| Pod { uid: uid.clone(), row: row(uid), ..Pod::default() };
    (1..).zip(target.rows.keys().map(pod)).collect()
}

impl Maps {
    fn new() -> Self {
        let held = Held::default();
        Self {
            compilation: Compilation::default(),
            target: Target::default(),
            numbers: held.numbers(),
            held,
            scope: None,
            pods: BTreeMap::new(),
        }
    }

    /// Takes the steps of a backend for the client's changes.
    fn follow(
        &mut self,
        client: &mut NodeClient,
        resolved: &[(IpAddr, String)],
    ) -> Result<(), TestCaseError> {
        let changed = take(&mut client.changed);
        let names = &Names::of_all(&client.snapshot, resolved);
        let delta = match &self.scope {
            Some(_) => self.compilation.update(&client.snapshot, names, &changed),
            None => None,
        };
        match (delta, &mut self.scope) {
            (Some(delta), Some(scope)) => {
                let tables = self.compilation.tables();
                let later = self.target.update(tables, &delta, &mut self.numbers);
                scope.extend(later.expect("few tables"));
            }
            _ => {
                self.compilation = Compilation::new(&client.snapshot, names);
                let target = Target::of(self.compilation.tables(), &mut self.numbers);
                (self.target, self.scope) = (target.expect("few tables"), None);
            }
        }
        let tables = self.compilation.tables();
        prop_assert_eq!(contents(tables), contents(&compile(&client.snapshot, names)));
        let (pods, own) = (pods(&self.target), Own::default());
        if let Some(scope) = self.scope.as_mut().filter(|_| pods != self.pods) {
            scope.extend_pods();
        }
        self.pods.clone_from(&pods);
        let plan = |held: &Held, target: &Target, scope: Option<&Scope>| {
            plan(held, target, &pods, &own, scope).expect("few rows")
        };
        let of_scope = plan(&self.held, &self.target, self.scope.as_ref());
        let of_all = plan(&self.held, &self.target, None);
        prop_assert_eq!(&of_scope, &of_all);
        of_scope.writes().for_each(|write| self.held.apply(write));
        if let Some(scope) = &mut self.scope {
            scope.extend_writes(of_scope.writes());
        }
        prop_assert!(plan(&self.held, &self.target, None).is_empty());
        // The numbers of a target from scratch are those of the maps.
        let scratch = Target::of(&compile(&client.snapshot, names), &mut self.numbers);
        let scratch = scratch.expect("few tables");
        let rules = self.target.prune();
        prop_assert_eq!(&self.target.classes, &scratch.classes);
        prop_assert_eq!(&self.target.prefixes, &scratch.prefixes);
        prop_assert_eq!(&self.target.services, &scratch.services);
        prop_assert_eq!(&self.target.set_rows, &scratch.set_rows);
        prop_assert_eq!(&self.target.small_tables, &scratch.small_tables);
        prop_assert_eq!(&self.target.large_tables, &scratch.large_tables);
        prop_assert_eq!(&self.target.rules, &scratch.rules);
        prop_assert_eq!(&self.target.rows, &scratch.rows);
        if let Some(scope) = &mut self.scope {
            scope.extend_rules(rules);
        }
        let unused = cleanup(&self.held, &self.target, self.scope.as_ref());
        prop_assert_eq!(&unused, &cleanup(&self.held, &self.target, None));
        unused.iter().for_each(|write| self.held.apply(write));
        self.held.release(&mut self.numbers);
        let all = Scope::of(&self.held, &self.target);
        let mut scope = self.scope.take().unwrap_or_else(|| all.clone());
        scope.settle(&self.held, &self.target);
        prop_assert_eq!(&scope, &all);
        self.scope = Some(scope);
        Ok(())
    }
}

fn change(event: Event, scenario: &mut Scenario, hub: &mut Hub) {
    match event {
        Event::Insert(object) => {
            scenario.objects.retain(|other| id(other) != id(&object));
            feed(hub, &object);
            scenario.objects.push(*object);
        }
        Event::Remove(_) if scenario.objects.is_empty() => {}
        Event::Remove(which) => {
            let gone = id(which.get(&scenario.objects));
            scenario.objects.retain(|other| id(other) != gone);
            let (kind, namespace, name) = &gone;
            let (kind, uid) = (*kind, "");
            hub.apply(IndexEvent::Gone { kind, namespace, name, uid });
        }
    }
}

/// A failure is shrunk to few objects and events.
#[test]
fn a_compilation_that_follows_equals_one_from_scratch() {
    let mut runner = TestRunner::new(cases(200));
    let steps = events().prop_flat_map(|events| {
        let count = events.len();
        (Just(events), vec((any::<bool>(), any::<Index>()), count))
    });
    let run = runner.run(&(world(), steps), |(mut scenario, (events, more))| {
        let mut hub = Hub::new([7; 16], 3);
        scenario.objects.iter().for_each(|object| feed(&mut hub, object));
        hub.loaded();
        let mut nodes = NODES.map(|node| (node, NodeClient::default(), Maps::new()));
        let names = scenario.names.clone();
        for (node, client, maps) in &mut nodes {
            client.follow(node, &mut hub)?;
            maps.follow(client, &names)?;
        }
        for (event, (is_applied, known)) in events.into_iter().zip(more) {
            change(event, &mut scenario, &mut hub);
            // Names resolve to more and to fewer addresses.
            let names = &names[..known.index(names.len() + 1)];
            for (node, client, maps) in &mut nodes {
                client.follow(node, &mut hub)?;
                // A backend that is busy gets the changes of several generations at once.
                if is_applied {
                    maps.follow(client, names)?;
                }
            }
        }
        for (_, client, maps) in &mut nodes {
            maps.follow(client, &names)?;
        }
        Ok(())
    });
    if let Err(error) = run {
        panic!("{error}");
    }
}
