//! The book compared with a model that counts all reports again, and a cluster to which the book writes.

use control_status::{Book, Outcome, Phase, Realization, Report, Spread, Write};
use policy_core::PolicyKey;
use policy_objects::Kind;
use proptest::{collection::vec, prelude::*, sample::select};
use std::collections::{BTreeMap, BTreeSet};

const NODES: [&str; 3] = ["n1", "n2", "n3"];
const POLICIES: [(&str, Kind); 4] = [
    ("p", Kind::NetworkPolicy),
    ("q", Kind::NetworkPolicy),
    ("r", Kind::AntreaNetworkPolicy),
    ("s", Kind::ClusterNetworkPolicy),
];

fn key(uid: &str) -> PolicyKey {
    let kind = POLICIES.iter().find(|(name, _)| *name == uid).expect("a policy").1;
    PolicyKey { kind, namespace: "x".to_owned(), name: uid.to_owned() }
}

#[derive(Clone, Debug)]
enum Step {
    Policy(&'static str, i64, BTreeSet<&'static str>),
    Moved(&'static str, &'static str, bool),
    Gone(&'static str),
    Report(&'static str, bool, Vec<(&'static str, i64, &'static str, bool)>),
    NodeGone(&'static str),
    Passes(u64),
    /// Due statuses are written; this many of the writes fail.
    Writes(usize),
}

fn uid() -> impl Strategy<Value = &'static str> {
    select(POLICIES.map(|(uid, _)| uid).to_vec())
}

fn node() -> impl Strategy<Value = &'static str> {
    select(NODES.to_vec())
}

fn step() -> impl Strategy<Value = Step> {
    let error = prop_oneof![3 => Just(""), 1 => Just("it is broken")];
    let report = (uid(), 1..4_i64, error, prop::bool::weighted(0.15));
    let nodes = vec(node(), 0..4).prop_map(|nodes| nodes.into_iter().collect());
    prop_oneof![
        3 => (uid(), 1..4_i64, nodes).prop_map(|(uid, of, nodes)| Step::Policy(uid, of, nodes)),
        2 => (uid(), node(), any::<bool>()).prop_map(|(uid, node, is)| Step::Moved(uid, node, is)),
        1 => uid().prop_map(Step::Gone),
        6 => (node(), any::<bool>(), vec(report, 0..5))
            .prop_map(|(node, full, all)| Step::Report(node, full, all)),
        1 => node().prop_map(Step::NodeGone),
        4 => (1..20_000_u64).prop_map(Step::Passes),
        4 => (0..3_usize).prop_map(Step::Writes),
    ]
}

/// All reports, and the cluster to which the book writes.
#[derive(Default)]
struct Model {
    policies: BTreeMap<&'static str, (i64, BTreeSet<&'static str>)>,
    reports: BTreeMap<(&'static str, &'static str), (i64, &'static str)>,
    reporting: BTreeSet<&'static str>,
    now_ms: u64,
    written: BTreeMap<String, Realization>,
    written_ms: BTreeMap<String, u64>,
}

impl Model {
    fn realization(&self, uid: &str) -> Option<Realization> {
        let (generation, desired) = self.policies.get(uid)?;
        let mut is = Realization {
            generation: *generation,
            desired: u32::try_from(desired.len()).expect("few"),
            ..Realization::default()
        };
        for node in desired {
            let reports = self.reports.iter().find(|((of, by), _)| *of == uid && by == node);
            match reports.map(|(_, reports)| reports).filter(|(of, _)| of == generation) {
                Some((_, "")) => is.realized += 1,
                Some(_) => is.failing += 1,
                None if self.reporting.contains(node) => {}
                None => is.silent += 1,
            }
        }
        Some(is)
    }

    fn step(&mut self, book: &mut Book, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Policy(uid, generation, nodes) => {
                let before = self.policies.get(uid).map_or(0, |(before, _)| *before);
                // Generations rise, and reports about earlier ones no longer count.
                let generation = generation.max(before);
                self.reports.retain(|(of, _), (at, _)| *of != uid || *at >= generation);
                self.policies.insert(uid, (generation, nodes.clone()));
                let all = nodes.into_iter().map(ToOwned::to_owned).collect();
                book.policy(uid, &key(uid), generation, Spread::All(all), self.now_ms);
            }
            Step::Moved(uid, node, is_in) => {
                let Some((generation, nodes)) = self.policies.get_mut(uid) else { return Ok(()) };
                if is_in {
                    nodes.insert(node)
                } else {
                    nodes.remove(node)
                };
                let moves = BTreeMap::from([(node.to_owned(), is_in)]);
                book.policy(uid, &key(uid), *generation, Spread::Moved(moves), self.now_ms);
            }
            Step::Gone(uid) => {
                self.policies.remove(uid);
                self.reports.retain(|(of, _), _| *of != uid);
                // Its objects go with it.
                self.written.remove(uid);
                self.written_ms.remove(uid);
                book.policy_gone(uid);
            }
            Step::Report(node, full, all) => {
                if full {
                    self.reports.retain(|(_, by), _| *by != node);
                    self.reporting.insert(node);
                }
                for (uid, generation, error, gone) in &all {
                    let known = self.policies.get(uid).map(|(generation, _)| *generation);
                    self.reports.remove(&(*uid, node));
                    if !gone && known.is_none_or(|known| *generation >= known) {
                        self.reports.insert((*uid, node), (*generation, *error));
                    }
                }
                let report = |(uid, generation, error, gone): &(&str, i64, &str, bool)| Report {
                    uid: (*uid).to_owned(),
                    generation: *generation,
                    error: (*error).to_owned(),
                    gone: *gone,
                };
                let all: Vec<Report> = all.iter().map(report).collect();
                book.report(node, full, &all, self.now_ms);
            }
            Step::NodeGone(node) => {
                self.reports.retain(|(_, by), _| *by != node);
                self.reporting.remove(node);
                book.node_gone(node, self.now_ms);
            }
            Step::Passes(ms) => self.now_ms += ms,
            Step::Writes(wrong) => {
                self.write(book, 2, wrong)?;
                book.tidy();
            }
        }
        for (uid, _) in POLICIES {
            let is = book.realization(uid);
            if let Some(is) = &is {
                prop_assert_eq!(u32::try_from(is.failures.len()), Ok(is.failing));
                prop_assert!(is.failures.iter().all(|failing| failing.why == "it is broken"));
            }
            let plain =
                |is: Realization| Realization { failures: Vec::new(), silence: Vec::new(), ..is };
            prop_assert_eq!(is.map(plain), self.realization(uid), "{}", uid);
        }
        Ok(())
    }

    /// Writes what is due.
    fn write(&mut self, book: &mut Book, most: usize, wrong: usize) -> Result<(), TestCaseError> {
        let due = book.due(self.now_ms, most);
        prop_assert!(due.len() <= most);
        for (at, Write { uid, key: of, says }) in due.into_iter().enumerate() {
            prop_assert_eq!(&of, &key(&uid));
            if let Some(before) = self.written_ms.insert(uid.clone(), self.now_ms) {
                prop_assert!(self.now_ms >= before + 5_000, "{} is written too often", uid);
            }
            if self.now_ms < 60_000 {
                let (_, desired) = &self.policies[uid.as_str()];
                prop_assert!(desired.is_subset(&self.reporting), "{} is written too early", uid);
            }
            if of.kind == Kind::NetworkPolicy {
                let is_bad = says.as_ref().is_none_or(|says| says.phase() != Phase::Realized);
                prop_assert!(is_bad, "an object says that all is well");
            } else {
                prop_assert!(says.is_some());
            }
            if at < wrong {
                book.done(&uid, Outcome::Refused, self.now_ms);
                continue;
            }
            match says {
                Some(says) => drop(self.written.insert(uid.clone(), says)),
                None => drop(self.written.remove(&uid)),
            }
            book.done(&uid, Outcome::Stands, self.now_ms);
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn the_cluster_comes_to_say_what_nodes_have_reported_and_then_rests(
        steps in vec(step(), 0..60),
    ) {
        let (mut book, mut model) = (Book::new(0), Model::default());
        for step in steps {
            model.step(&mut book, step)?;
        }
        // Time passes without events: the first-report wait, PATIENCE_MS, and one interval for each write.
        for _ in 0..20 {
            model.now_ms += 10_000;
            model.write(&mut book, 50, 0)?;
        }
        for uid in model.policies.keys() {
            let is = book.realization(uid).expect("it is known");
            let plain = key(uid).kind == Kind::NetworkPolicy;
            let due = (!plain || is.phase() != Phase::Realized).then_some(is);
            prop_assert_eq!(model.written.get(*uid), due.as_ref(), "{}", uid);
        }
        prop_assert!(model.written.keys().all(|uid| model.policies.contains_key(uid.as_str())));
        prop_assert_eq!(book.due(model.now_ms + 1_000_000, 50), Vec::new());
        prop_assert_eq!(book.wake_at(), None);
        NODES.iter().for_each(|node| book.node_gone(node, model.now_ms));
        POLICIES.iter().for_each(|(uid, _)| book.policy_gone(uid));
        book.tidy();
        prop_assert_eq!((book.nodes(), book.wake_at()), (0, None));
    }
}

fn spread(nodes: &[&str]) -> Spread {
    Spread::All(nodes.iter().map(|node| (*node).to_owned()).collect())
}

fn report(uid: &str, error: &str) -> Report {
    Report { uid: uid.to_owned(), generation: 1, error: error.to_owned(), gone: false }
}

#[test]
fn a_new_lease_holder_writes_nothing_before_nodes_have_reported() {
    let mut book = Book::new(1_000_000);
    book.policy("r", &key("r"), 1, spread(&["n1", "n2"]), 1_000_000);
    book.report("n1", true, &[report("r", "")], 1_001_000);
    assert_eq!(book.due(1_059_999, 10), Vec::new());
    // n2 is silent for a minute: the status reports silence, not missing enforcement.
    let due = book.due(1_060_000, 10);
    let says = due[0].says.as_ref().expect("a status");
    assert_eq!((says.realized, says.desired, says.silent), (1, 2, 1));
    assert_eq!(says.silence, ["n2"]);
    book.done("r", Outcome::Stands, 1_060_000);
    book.report("n2", true, &[report("r", "")], 1_061_000);
    assert_eq!(book.due(1_064_999, 10), Vec::new(), "it has just been written");
    let due = book.due(1_065_000, 10);
    assert_eq!(due[0].says.as_ref().map(Realization::phase), Some(Phase::Realized));
}

#[test]
fn an_object_of_the_holder_before_goes_when_all_is_well_and_stays_when_it_is_not() {
    for (error, says) in [("", false), ("it is broken", true)] {
        let mut book = Book::new(0);
        // Both orders of arrival.
        if says {
            book.found("p", 0);
        }
        book.policy("p", &key("p"), 1, spread(&["n1"]), 0);
        if !says {
            book.found("p", 0);
        }
        assert_eq!(book.due(0, 10), Vec::new());
        book.report("n1", true, &[report("p", error)], 100);
        let due = book.due(100, 10);
        assert_eq!(due.len(), 1);
        assert_eq!(due[0].says.is_some(), says);
    }
}

#[test]
fn a_network_policy_that_is_late_gets_an_object_after_ten_seconds() {
    let mut book = Book::new(0);
    book.report("n1", true, &[], 0);
    book.policy("p", &key("p"), 1, spread(&["n1"]), 0);
    assert_eq!(book.due(0, 10), Vec::new());
    assert_eq!(book.wake_at(), Some(10_000));
    assert_eq!(book.due(10_000, 10).len(), 1);
    book.done("p", Outcome::Stands, 10_000);
    book.report("n1", false, &[report("p", "")], 12_000);
    let due = book.due(15_000, 10);
    assert_eq!(due.iter().map(|write| write.says.is_some()).collect::<Vec<_>>(), [false]);
}

#[test]
fn at_most_ten_nodes_are_named() {
    let nodes: Vec<String> = (0..25).map(|number| format!("n{number:02}")).collect();
    let mut book = Book::new(0);
    book.policy("r", &key("r"), 1, Spread::All(nodes.clone()), 0);
    nodes.iter().for_each(|node| book.report(node, true, &[report("r", "it is broken")], 0));
    let says = book.realization("r").expect("it is known");
    assert_eq!((says.failing, says.failures.len()), (25, 10));
    assert_eq!(says.phase(), Phase::Failed);
    assert!(says.to_string().ends_with(" and 15 more"), "{says}");
}

#[test]
fn what_a_node_without_a_backend_has_is_not_in_force() {
    let mut book = Book::new(0);
    book.policy("r", &key("r"), 1, spread(&["n1", "n2"]), 0);
    book.report("n1", true, &[report("r", "").unenforced()], 0);
    book.report("n2", true, &[report("r", "")], 0);
    let says = book.realization("r").expect("it is known");
    assert_eq!((says.realized, says.failing, says.phase()), (1, 1, Phase::Failed));
    let why = "in force on 1 of 2 nodes; 1 cannot enforce it: n1 (computed, and nothing enforces it: its agent \
               has no backend)";
    assert_eq!(says.to_string(), why);
    // With a backend, of another run of the agent.
    book.report("n1", true, &[report("r", "")], 0);
    assert_eq!(book.realization("r").expect("it is known").phase(), Phase::Realized);
    // The node's own error has priority.
    let broken = report("r", "it is broken").unenforced();
    assert_eq!(broken.error, "it is broken");
}

#[test]
fn what_is_not_there_is_not_looked_for_within_a_minute_and_then_if_there_is_news() {
    let mut book = Book::new(0);
    book.policy("r", &key("r"), 1, spread(&["n1"]), 0);
    book.report("n1", true, &[report("r", "it is broken")], 0);
    assert_eq!(book.due(0, 10).len(), 1);
    book.done("r", Outcome::Nowhere, 0);
    assert_eq!(book.wake_at(), None);
    book.report("n1", false, &[report("r", "")], 10_000);
    assert_eq!(book.wake_at(), Some(60_000));
    assert_eq!(book.due(60_000, 10).len(), 1);
}

#[test]
fn what_had_no_place_is_written_as_soon_as_there_is_one() {
    let mut book = Book::new(0);
    book.report("n1", true, &[report("p", "it is broken"), report("r", "it is broken")], 0);
    book.policy("p", &key("p"), 1, spread(&["n1"]), 0);
    book.policy("r", &key("r"), 1, spread(&["n1"]), 0);
    assert!(!book.has_nowhere());
    for write in [book.due(0, 10), book.due(10_000, 10)].concat() {
        book.done(&write.uid, Outcome::Nowhere, 10_000);
    }
    assert!(book.has_nowhere());
    assert_eq!(book.wake_at(), None);
    book.somewhere(12_000);
    assert!(!book.has_nowhere());
    let due = book.due(15_000, 10);
    let uids: Vec<&str> = due.iter().map(|write| write.uid.as_str()).collect();
    assert_eq!(uids, ["p"], "the other has a place of its own, where it was not found");
    book.done("p", Outcome::Stands, 15_000);
    book.somewhere(16_000);
    assert_eq!(book.due(30_000, 10), Vec::new());
}

fn reports(uids: impl Iterator<Item = String>) -> Vec<Report> {
    uids.map(|uid| Report { uid, generation: 1, error: String::new(), gone: false }).collect()
}

#[test]
fn a_node_that_makes_policies_up_crowds_out_no_early_report_of_another() {
    let mut book = Book::new(0);
    let made_up = reports((0..10_000).map(|at| format!("made-up-{at}")));
    book.report("liar", true, &made_up, 0);
    book.report("liar", false, &made_up, 0);
    book.report("n1", true, &reports(["p".to_owned()].into_iter()), 0);
    book.policy("p", &key("p"), 1, Spread::All(vec!["n1".to_owned()]), 0);
    let is = book.realization("p").expect("a policy");
    assert_eq!((is.desired, is.realized), (1, 1));
}

#[test]
fn an_over_long_uid_is_no_policy() {
    let mut book = Book::new(0);
    let (longest, longer) = ("p".repeat(128), "p".repeat(129));
    book.report("n1", true, &reports([longest.clone(), longer.clone()].into_iter()), 0);
    let mut realized = |uid: &str| {
        book.policy(uid, &key("p"), 1, Spread::All(vec!["n1".to_owned()]), 0);
        book.realization(uid).map(|is| is.realized)
    };
    assert_eq!((realized(&longest), realized(&longer)), (Some(1), Some(0)));
}
