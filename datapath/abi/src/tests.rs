//! Sequences of states, cut at every write: each packet gets the answer of the earlier state or of the later one.

use crate::{
    Held, Own, Plan, Pod, Row, SmallTable, Target, Write, cleanup, held::BY_PREFIX,
    intervals::look_up, is_new, numbers::Numbers, plan, plan_started,
};
use datapath_plan::{Address, PodSets, Prefix, SetId};
use proptest::{
    collection::{btree_map, vec},
    option,
    prelude::*,
    strategy::ValueTree as _,
    test_runner::{RngAlgorithm, TestRng, TestRunner},
};
use std::collections::BTreeMap;

const LINKS: u32 = 3;
const ADDRESSES: u128 = 6;

/// The contents of a state. Classes and sets are small numbers that stand for contents.
#[derive(Clone, Debug)]
struct State {
    classes: BTreeMap<u128, u64>,
    prefixes: BTreeMap<(u128, u8), u64>,
    /// The set of each pod.
    pods: BTreeMap<u32, u64>,
}

fn state() -> impl Strategy<Value = State> {
    let class = 10_u64..14;
    let prefix = (0..ADDRESSES, 124_u8..=128);
    (
        btree_map(0..ADDRESSES, class.clone(), 0..5),
        btree_map(prefix, class, 0..4),
        btree_map(0..LINKS, 20_u64..24, 0..4),
    )
        .prop_map(|(classes, prefixes, pods)| State { classes, prefixes, pods })
}

/// The verdict of a set about a class. It follows from both.
fn verdict(set: u64, class: u64) -> u32 {
    u32::try_from((set * 7 + class * 5) % 3 % 2).expect("0 or 1")
}

fn table(verdict: u32) -> SmallTable {
    let mut table = [0xff; 8 * crate::SMALL];
    table[..4].fill(0);
    table[4..8].copy_from_slice(&verdict.to_ne_bytes());
    table
}

impl State {
    fn target(&self, numbers: &mut Numbers) -> Target {
        let mut target = Target::default();
        target.classes.extend(self.classes.iter().map(|(at, class)| (Address(*at), *class)));
        let prefix = |(first, length): &(u128, u8)| Prefix::around(Address(*first), *length);
        target.prefixes.extend(self.prefixes.iter().map(|(at, class)| (prefix(at), *class)));
        let classes = target.classes.values().chain(target.prefixes.values());
        let classes: Vec<u64> = classes.copied().chain([0]).collect();
        for set in self.pods.values() {
            for class in &classes {
                let content = table(verdict(*set, *class));
                let number = numbers.small.number(&content).expect("a free number");
                target.small_tables.insert(number, content);
                target.set_rows.insert((*set, *class, 0), number);
            }
        }
        target
    }

    fn pods(&self) -> BTreeMap<u32, Pod> {
        let pod = |set: u64| Pod { row: Row([set, 0, 0, 0]), ..Pod::default() };
        self.pods.iter().map(|(link, set)| (*link, pod(*set))).collect()
    }
}

/// The answers of the maps, as the programs look them up: for each pod one for each address.
fn answers(held: &Held) -> BTreeMap<u32, Vec<u32>> {
    let half = held.half();
    let class = |address: Address| {
        let own = held.classes.get(&address).map_or(BY_PREFIX, |of| of[half]);
        let mut prefixes = (0..=128)
            .rev()
            .filter_map(|length| held.prefixes.get(&Prefix::around(address, length)));
        if own == BY_PREFIX { prefixes.next().map_or(0, |of| of[half]) } else { own }
    };
    let answer = |set: u64, address: Address| {
        let row = held.set_rows.get(&(set, class(address), 0));
        let row = row.or_else(|| held.set_rows.get(&(set, 0, 0)));
        let table = row.and_then(|number| held.small_tables.get(number));
        // Set 0 allows everything, and a set without rows nothing.
        let otherwise = if set == 0 { 0 } else { 9 };
        table.map_or(otherwise, |table| look_up(table, 7))
    };
    let of_pod = |endpoint: &crate::Endpoint| {
        let set = held.row_of(endpoint).map_or(u64::MAX, |row| row.0[0]);
        (0..ADDRESSES).map(|address| answer(set, Address(address))).collect()
    };
    held.endpoints.iter().map(|(link, endpoint)| (*link, of_pod(endpoint))).collect()
}

/// Carries out the writes, with a check after each.
fn carry_out<'a>(
    held: &mut Held,
    writes: impl Iterator<Item = &'a Write>,
    mut check: impl FnMut(&Held) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    for write in writes {
        held.apply(write);
        check(held)?;
    }
    Ok(())
}

/// The states of a sequence, each with the number of writes after which the process ends.
type States = Vec<(State, Option<usize>)>;

fn states() -> impl Strategy<Value = States> {
    vec((state(), option::weighted(0.3, 0_usize..40)), 1..8)
}

/// Carries out a sequence of states and checks the answers after each write.
fn check_sequence(
    states: States,
    order: impl Fn(&Plan) -> Vec<&Write>,
) -> Result<(), TestCaseError> {
    let mut held = Held::default();
    let mut numbers = held.numbers();
    let own = Own::default();
    for (state, cut) in states {
        let target = state.target(&mut numbers);
        let plan = plan(&held, &target, &state.pods(), &own, None).expect("it fits");
        let mut after = held.clone();
        plan.writes().for_each(|write| after.apply(write));
        let writes = order(&plan);
        let (before, later) = (answers(&held), answers(&after));
        let uncut = cut.unwrap_or(usize::MAX);
        carry_out(&mut held, writes.iter().copied().take(uncut), |held| {
            let now = answers(held);
            // A pod that leaves keeps its answers or is closed, and a pod that comes has its answers at once.
            let closed = vec![9; ADDRESSES as usize];
            let is_old = |(link, of): (&u32, &Vec<u32>)| {
                of == before.get(link).or(later.get(link)).unwrap_or(&closed)
            };
            let is_new = |(link, of): (&u32, &Vec<u32>)| {
                Some(of) == later.get(link)
                    || !later.contains_key(link) && (*of == closed || Some(of) == before.get(link))
            };
            // One flip changes the answers of all pods at once.
            prop_assert!(
                now.iter().all(is_old) || now.iter().all(is_new),
                "{:?} between {:?} and {:?}",
                now,
                before,
                later
            );
            Ok(())
        })?;
        if writes.len() > uncut {
            // The process has ended. The next one reads the maps.
            numbers = held.numbers();
            continue;
        }
        let expected: BTreeMap<u32, Vec<u32>> = state
            .pods
            .iter()
            .map(|(link, set)| {
                let class = |address: u128| {
                    let in_prefix = (0..=128_u8).rev().find_map(|length| {
                        target.prefixes.get(&Prefix::around(Address(address), length))
                    });
                    state.classes.get(&address).or(in_prefix).copied().unwrap_or(0)
                };
                (*link, (0..ADDRESSES).map(|address| verdict(*set, class(address))).collect())
            })
            .collect();
        prop_assert_eq!(&later, &expected);
        prop_assert_eq!(
            super::plan(&held, &target, &state.pods(), &own, None),
            Ok(Plan::default())
        );
        let removed = cleanup(&held, &target, None);
        carry_out(&mut held, removed.iter(), |held| {
            prop_assert_eq!(answers(held), expected.clone());
            Ok(())
        })?;
        prop_assert_eq!(cleanup(&held, &target, None), []);
        held.release(&mut numbers);
        prop_assert_eq!(
            super::plan(&held, &target, &state.pods(), &own, None),
            Ok(Plan::default())
        );
        prop_assert!(held.set_rows.keys().eq(target.set_rows.keys()), "rows of earlier states");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    #[test]
    fn each_packet_gets_the_answer_of_the_earlier_state_or_of_the_later_one(states in states()) {
        check_sequence(states, |plan| plan.writes().collect())?;
    }
}

/// Pods that start, by link: a UID, and true if the pod has rules.
fn starting() -> impl Strategy<Value = BTreeMap<u32, (u8, bool)>> {
    btree_map(0..2 * LINKS, (0_u8..2, any::<bool>()), 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig::default())]

    /// The pods of states have no UID.
    #[test]
    fn a_pod_that_starts_under_a_refused_state_changes_no_other_pod(
        states in vec(state(), 1..4),
        refused in vec((starting(), option::weighted(0.3, 0_usize..20)), 1..4),
        last in state(),
    ) {
        let mut held = Held::default();
        let mut numbers = held.numbers();
        let own = Own::default();
        for state in states {
            let target = state.target(&mut numbers);
            let plan = plan(&held, &target, &state.pods(), &own, None).expect("it fits");
            plan.writes().for_each(|write| held.apply(write));
        }
        let closed = vec![9; ADDRESSES as usize];
        for (starting, cut) in refused {
            let row = |has_rules| if has_rules { Row::CLOSED } else { Row::default() };
            let pod = |(uid, has_rules): &(u8, bool)| {
                Pod { uid: format!("new{uid}"), row: row(*has_rules), ..Pod::default() }
            };
            let pods: BTreeMap<u32, Pod> =
                starting.iter().map(|(link, of)| (*link, pod(of))).collect();
            let before = answers(&held);
            let earlier = held.clone();
            let is_new = |link: &u32| is_new(&earlier, *link, &pods[link].uid);
            let new: Vec<u32> = pods.keys().filter(|link| is_new(link)).copied().collect();
            let plan = plan_started(&held, &pods).expect("it fits");
            prop_assert_eq!(&plan.flip, &None);
            carry_out(&mut held, plan.writes().take(cut.unwrap_or(usize::MAX)), |held| {
                for (link, of) in answers(held) {
                    let was = before.get(&link);
                    let is_started = new.contains(&link) && held.endpoints[&link].uid == pods[&link].uid;
                    if is_started {
                        prop_assert_eq!(of == closed, pods[&link].row == Row::CLOSED);
                    } else {
                        prop_assert_eq!(Some(&of), was);
                    }
                }
                Ok(())
            })?;
            let slots: std::collections::BTreeSet<u32> =
                held.endpoints.values().map(|of| of.slot).collect();
            prop_assert_eq!(slots.len(), held.endpoints.len(), "two links have one slot");
            if cut.is_none() {
                prop_assert!(new.iter().all(|link| held.endpoints[link].uid == pods[link].uid));
                prop_assert_eq!(plan_started(&held, &pods), Ok(Plan::default()), "it rests");
            }
        }
        // A state that fits is in force as always.
        let target = last.target(&mut numbers);
        let plan = plan(&held, &target, &last.pods(), &own, None).expect("it fits");
        plan.writes().for_each(|write| held.apply(write));
        let mut fresh = Held::default();
        let whole = super::plan(&fresh, &target, &last.pods(), &own, None).expect("it fits");
        whole.writes().for_each(|write| fresh.apply(write));
        prop_assert_eq!(answers(&held), answers(&fresh));
    }
}

#[test]
fn a_pod_is_closed_in_the_directions_for_which_it_has_rules() {
    let sets = |all: [u64; 4]| {
        let [ingress, egress, hairpin_ingress, hairpin_egress] = all.map(SetId);
        PodSets { ingress, egress, hairpin_ingress, hairpin_egress }
    };
    let row = |all| Row::closed_where_judged(&sets(all)).0;
    const CLOSED: u64 = u64::MAX;
    assert_eq!(row([0; 4]), [0; 4], "no policy selects it");
    assert_eq!(row([7, 0, 0, 0]), [CLOSED, 0, 0, 0]);
    assert_eq!(row([0, 9, 0, 0]), [0, CLOSED, 0, 0]);
    assert_eq!(row([7, 9, 5, 3]), [CLOSED; 4]);
    assert_eq!(row([7, 0, 5, 0]), [CLOSED, 0, CLOSED, 0]);
}

#[test]
fn a_pod_that_starts_needs_a_free_slot() {
    let pods = |links: std::ops::Range<u32>| links.map(|link| (link, Pod::default())).collect();
    let mut held = Held::default();
    let all = plan_started(&held, &pods(0..2048)).expect("a slot for each");
    all.writes().for_each(|write| held.apply(write));
    let full = plan_started(&held, &pods(2048..2049)).expect_err("one link too many");
    assert_eq!((full.map, full.needed), ("endpoints", 2049));
}

/// A plan with the flip before the rows that it puts into force is detected.
#[test]
#[expect(clippy::print_stdout, reason = "the seed is a figure")]
fn a_flip_before_the_other_writes_is_detected() {
    fn flip_first(plan: &Plan) -> Vec<&Write> {
        plan.flip.iter().chain(&plan.before).chain(&plan.after).collect()
    }
    let seed = (0..1000_u64).find(|seed| {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let mut runner = TestRunner::new_with_rng(ProptestConfig::default(), rng);
        let states = states().new_tree(&mut runner).expect("a sequence").current();
        check_sequence(states, flip_first).is_err()
    });
    println!("planted fault FLIP: detected by seed {}", seed.expect("within 1,000 seeds"));
}

#[test]
fn a_map_that_would_be_full_is_not_written() {
    let mut target = Target::default();
    target.classes.extend((0..16_385).map(|at| (Address(at), 7)));
    let full = plan(&Held::default(), &target, &BTreeMap::new(), &Own::default(), None);
    let full = full.expect_err("one row too many").to_string();
    assert!(full.contains("map classes: it has 16384 rows"), "{full}");
    let pods = (0..2049).map(|link| (link, Pod::default())).collect();
    let full = plan(&Held::default(), &Target::default(), &pods, &Own::default(), None);
    assert_eq!(full.expect_err("one link too many").map, "endpoints");
}
