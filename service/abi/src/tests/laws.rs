//! Laws of all plans.

use super::*;
use crate::{BackendRow, FrontendRow, Refused, TableSize, Write};
use proptest::test_runner::TestCaseError;
use std::collections::BTreeSet;

/// A step of a mirror's life.
#[derive(Clone, Debug)]
enum Step {
    Change(Changes),
    Replace(Frontends),
    Release,
    /// Another process takes the maps over.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let change = proptest::option::weighted(0.7, frontend());
    prop_oneof![
        4 => proptest::collection::btree_map(place(), change, 1..4).prop_map(Step::Change),
        3 => frontends().prop_map(Step::Replace),
        2 => Just(Step::Release),
        1 => Just(Step::Restart),
    ]
}

/// The words that programs may have read since the last release, with their choices at that time. Source ranges are kept
/// in the same way.
#[derive(Default)]
struct Seen {
    choices: BTreeMap<u64, (Word, Choice)>,
    sources: BTreeMap<u32, BTreeSet<SourceRange>>,
}

fn see(kernel: &Held, seen: &mut Seen) {
    for row in kernel.frontends.values() {
        if row.has_sources {
            let ranges = kernel.sources.get(&row.word).cloned().unwrap_or_default();
            seen.sources.entry(row.word).or_insert(ranges);
        }
        for number in [row.word, row.word + 1] {
            if let Some(word) = kernel.words.get(&number)
                && let Some(choice) = resolve(kernel, word)
            {
                seen.choices.entry(word.to_number()).or_insert((*word, choice));
            }
        }
    }
}

/// A program that has read a word before finds the choice of that time, or knows that a backend was removed.
fn check_seen(kernel: &Held, seen: &Seen) -> Result<(), TestCaseError> {
    for (word, ranges) in &seen.sources {
        prop_assert_eq!(&kernel.sources.get(word).cloned().unwrap_or_default(), ranges);
    }
    for (word, choice) in seen.choices.values() {
        let Word::Table { slot, count } = word else { continue };
        let table = kernel.tables.get(slot).expect("a table of a word");
        let at = |number: &u32| kernel.backends.get(*number).and_then(|row| row.at);
        let backends = table.iter().take(usize::from(*count)).map(at).collect::<Option<Vec<_>>>();
        prop_assert_eq!(&Choice::Backends(sorted(backends.unwrap_or_default())), choice);
    }
    Ok(())
}

/// Carries out a plan. Each packet on the way finds the earlier or the later frontend, whole.
fn carry_out(
    node: &mut Node,
    plan: &Plan,
    wanted: &Frontends,
    seen: &mut Seen,
) -> Result<(), TestCaseError> {
    let before = read(&node.kernel).expect("each frontend can be read");
    let wanted = &all_in_family(wanted);
    let is_full = node.kernel.limits == FEW;
    for write in &plan.writes {
        node.kernel.apply(write);
        let now = read(&node.kernel).expect("each frontend can be read");
        for (place, frontend) in &now {
            let states = [&before, wanted].map(|of| of.get(place));
            let mut states = states.into_iter().flatten();
            // Without free words a change of backends and affinity takes two writes.
            let is_state = states.any(|of| {
                let inside = |of: &Frontend| (of.inside.clone(), of.sources.clone());
                inside(frontend) == inside(of) && (is_full || frontend.affinity == of.affinity)
            });
            prop_assert!(is_state, "{place:?} is neither the earlier nor the later one");
            let states = [&before, wanted].map(|of| of.get(place));
            let mut states = states.into_iter().flatten();
            let outside = |of: &Frontend| (of.outside.clone(), of.sources.clone());
            prop_assert!(states.any(|of| outside(of) == outside(frontend)), "{place:?}");
        }
        check_seen(&node.kernel, seen)?;
        see(&node.kernel, seen);
    }
    // A frontend that is refused keeps its earlier rows, unless its source ranges are new.
    let mut reached = wanted.clone();
    for place in plan.refused.keys() {
        let excludes = |earlier: &&Frontend| {
            let sources = &wanted[place].sources;
            sources.is_some() && *sources != earlier.sources
        };
        match before.get(place).filter(|earlier| !excludes(earlier)) {
            Some(earlier) => reached.insert(*place, earlier.clone()),
            None => reached.remove(place),
        };
    }
    prop_assert_eq!(read(&node.kernel), Some(reached));
    Ok(())
}

fn check_numbers(node: &Node) -> Result<(), TestCaseError> {
    let held = node.mirror.held();
    prop_assert_eq!(&found(&node.kernel), held, "the mirror has the rows of the maps");
    let slots: BTreeSet<_> = held.words.values().filter_map(Word::slot).collect();
    prop_assert_eq!(&slots, &held.tables.keys().copied().collect());
    let contents: BTreeSet<_> = held.tables.values().collect();
    prop_assert_eq!(contents.len(), held.tables.len(), "equal tables are one");
    let used: BTreeSet<u32> = held.tables.values().flat_map(|of| of.iter().copied()).collect();
    let present = held.backends.present().map(|(number, _)| number);
    prop_assert_eq!(used, present.collect());
    Ok(())
}

/// All numbers that have no use are free after a release.
fn check_free(node: &Node, limits: Limits) -> Result<(), TestCaseError> {
    let mirror = &node.mirror;
    prop_assert!(!mirror.has_retired());
    let used = mirror.held().frontends.len();
    prop_assert_eq!(mirror.free_pairs.len() + used, limits.words as usize / 2);
    let ranged = mirror.held().frontends.values().filter(|row| row.has_sources);
    let ranged: BTreeSet<u32> = ranged.map(|row| row.word).collect();
    prop_assert!(mirror.held().sources.keys().all(|word| ranged.contains(word)));
    for size in TableSize::ALL {
        let used = mirror.held().tables.keys().filter(|slot| slot.size == size).count();
        let free = mirror.free_tables[size as usize].len();
        prop_assert_eq!(free + used, limits.tables(size) as usize);
    }
    let present = mirror.held().backends.present().count();
    prop_assert_eq!(mirror.free_backends.len() + present, limits.backends as usize);
    Ok(())
}

fn live(steps: Vec<Step>, limits: Limits) -> Result<(), TestCaseError> {
    let mut node = Node::new(limits);
    let mut seen = Seen::default();
    for step in steps {
        let state = read(&node.kernel).expect("each frontend can be read");
        match step {
            Step::Change(changes) => {
                let mut wanted = state;
                for (place, frontend) in &changes {
                    match frontend {
                        Some(frontend) => wanted.insert(*place, frontend.clone()),
                        None => wanted.remove(place),
                    };
                }
                let plan = node.mirror.change(&changes);
                let is_own = |write: &Write| match write {
                    Write::Frontend(place, _) | Write::RemoveFrontend(place) => {
                        changes.contains_key(place)
                    }
                    Write::Backend(..)
                    | Write::Table(..)
                    | Write::Word(..)
                    | Write::Source(..)
                    | Write::RemoveSource(..) => true,
                };
                prop_assert!(plan.writes.iter().all(is_own));
                carry_out(&mut node, &plan, &wanted, &mut seen)?;
                // The plan itself can have made room for a frontend that it has refused.
                let again = node.mirror.change(&changes);
                prop_assert!(again.refused.keys().all(|place| plan.refused.contains_key(place)));
                prop_assert!(!plan.refused.is_empty() || again.writes.is_empty());
                carry_out(&mut node, &again, &wanted, &mut seen)?;
            }
            Step::Replace(wanted) => {
                let plan = node.mirror.replace(&wanted);
                carry_out(&mut node, &plan, &wanted, &mut seen)?;
            }
            Step::Release => {
                node.release();
                seen = Seen::default();
                see(&node.kernel, &mut seen);
                check_free(&node, limits)?;
            }
            Step::Restart => {
                node.mirror = Mirror::of(found(&node.kernel));
                let plan = node.mirror.replace(&state);
                let is_rest = |write: &Write| matches!(write, Write::RemoveSource(..));
                prop_assert!(plan.writes.iter().all(is_rest), "it finds the state in the maps");
                prop_assert_eq!(&plan.refused, &BTreeMap::new());
                node.write(&plan);
                // No program of the earlier process's time runs any longer.
                seen = Seen::default();
                see(&node.kernel, &mut seen);
                check_free(&node, limits)?;
            }
        }
        check_numbers(&node)?;
    }
    Ok(())
}

proptest! {
    #[test]
    fn no_packet_finds_half_of_a_change_and_no_number_is_lost(
        steps in proptest::collection::vec(step(), 1..12),
    ) {
        live(steps, LIMITS)?;
    }

    #[test]
    fn full_maps_refuse_frontends_and_keep_the_others_whole(
        steps in proptest::collection::vec(step(), 1..12),
    ) {
        live(steps, FEW)?;
    }

    #[test]
    fn a_state_with_room_is_reached_from_each_other_one(
        states in proptest::collection::vec(frontends(), 1..6),
    ) {
        let mut node = Node::new(LIMITS);
        for state in states {
            node.reach(&state);
            prop_assert_eq!(node.mirror.replace(&state), Plan::default());
            node.release();
        }
    }
}

/// A row that another process changes.
#[derive(Clone, Debug)]
enum Foreign {
    Frontend(Place, FrontendRow),
    NoFrontend(usize),
    /// The position among the words, and another one.
    Word(usize, Option<Word>),
    Table(usize, Vec<u32>),
    Backend(usize, BackendRow),
    NoBackend(usize),
    Source(u32, SourceRange),
    /// The position among the words with ranges.
    NoSource(usize),
}

fn foreign() -> impl Strategy<Value = Foreign> {
    let row = (0_u32..300, 0_u32..3, any::<bool>())
        .prop_map(|(word, affinity, has_sources)| FrontendRow { word, affinity, has_sources });
    let source = proptest::sample::select(&RANGES[..]).prop_map(|text| range(text).into());
    let size = prop_oneof![Just(TableSize::Small), Just(TableSize::Medium), Just(TableSize::Large)];
    let slot = (size, 0_u32..300).prop_map(|(size, number)| TableSlot { size, number });
    let word = (slot, 1_u16..20).prop_map(|(slot, count)| Word::Table { slot, count });
    let word = prop_oneof![Just(Word::NoEndpoints), Just(Word::NoSuchPort), word];
    let of = (proptest::option::of(1_u8..22), any::<bool>(), 0_u32..3);
    let of =
        of.prop_map(|(at, is_present, life)| BackendRow { at: at.map(backend), is_present, life });
    prop_oneof![
        (place(), row).prop_map(|(place, row)| Foreign::Frontend(place, row)),
        (0_usize..10).prop_map(Foreign::NoFrontend),
        (0_usize..20, proptest::option::of(word)).prop_map(|(at, word)| Foreign::Word(at, word)),
        (0_usize..10, proptest::collection::vec(0_u32..30, 1..20))
            .prop_map(|(at, of)| Foreign::Table(at, of)),
        (0_usize..30, of).prop_map(|(at, of)| Foreign::Backend(at, of)),
        (0_usize..30).prop_map(Foreign::NoBackend),
        (0_u32..300, source).prop_map(|(word, range)| Foreign::Source(word, range)),
        (0_usize..10).prop_map(Foreign::NoSource),
    ]
}

impl Foreign {
    fn apply(self, held: &mut Held) {
        fn key<K: Copy + Ord, V>(map: &BTreeMap<K, V>, at: usize) -> Option<K> {
            map.keys().nth(at % map.len().max(1)).copied()
        }
        fn backend(held: &Held, at: usize) -> Option<u32> {
            let count = held.backends.iter().count().max(1);
            held.backends.iter().nth(at % count).map(|(number, _)| number)
        }
        match self {
            Self::Frontend(place, row) => {
                held.frontends.insert(place, row);
            }
            Self::NoFrontend(at) => {
                key(&held.frontends, at).map(|place| held.frontends.remove(&place));
            }
            Self::Word(at, word) => {
                if let Some(number) = key(&held.words, at) {
                    match word {
                        Some(word) => held.words.insert(number, word),
                        None => held.words.remove(&number),
                    };
                }
            }
            Self::Table(at, of) => {
                key(&held.tables, at).map(|slot| held.tables.insert(slot, of.into()));
            }
            Self::Backend(at, row) => {
                if let Some(number) = backend(held, at) {
                    held.backends.insert(number, row);
                }
            }
            Self::NoBackend(at) => {
                if let Some(number) = backend(held, at) {
                    held.backends.remove(number);
                }
            }
            Self::Source(word, range) => held.apply(&Write::Source(word, range)),
            Self::NoSource(at) => {
                key(&held.sources, at).map(|word| held.sources.remove(&word));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn rows_that_another_process_has_changed_are_repaired(
        state in frontends(),
        rows in proptest::collection::vec(foreign(), 1..6),
    ) {
        let mut node = Node::new(LIMITS);
        node.reach(&state);
        rows.into_iter().for_each(|row| row.apply(&mut node.kernel));
        let found = found(&node.kernel);
        node.mirror = Mirror::of(found);
        let plan = node.mirror.replace(&state);
        prop_assert_eq!(&plan.refused, &BTreeMap::<Place, Refused>::new());
        node.write(&plan);
        prop_assert_eq!(read(&node.kernel), Some(all_in_family(&state)));
        prop_assert_eq!(node.mirror.replace(&state), Plan::default());
        node.release();
        check_numbers(&node)?;
        check_free(&node, LIMITS)?;
    }
}
