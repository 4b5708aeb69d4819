//! Reports to the controller.

use super::{entry, part, policy, removed};
use crate::{Applied, Desired, Effect, Node, Observed, Report};
use config_model::{Span, Time};
use control_wire::{
    ObjectId,
    proto::{Bookmark, Reached, ReportRequest},
};
use service_objects::ObjectName;
use std::collections::BTreeMap;

struct Scenario {
    node: Node,
    now: Time,
    generation: u64,
}

impl Scenario {
    fn new() -> Self {
        let mut node = Node::new(Default::default(), BTreeMap::new(), &BTreeMap::new());
        node.began("10.9.9.1:1".parse().unwrap(), &[1; 16], false);
        Self { node, now: Time(0), generation: 0 }
    }

    fn send(&mut self, changes: Vec<control_wire::proto::Change>) {
        self.generation += 1;
        self.node.part(part(self.generation, changes), self.now);
    }

    fn bookmark(&mut self, version: u64, to: &str) {
        let reached = vec![Reached { kind: "Pod".to_owned(), version }];
        let generation = self.generation;
        let bookmark = Bookmark { generation, reached, reports_to: to.to_owned() };
        self.node.bookmark(&bookmark, self.now);
    }

    /// The backend applies every state, with these policies failing; the reports that are sent.
    fn reports(&mut self, failing: &Failing) -> Vec<Report> {
        let mut reports = Vec::new();
        loop {
            let effects = self.node.take_effects();
            if effects.is_empty() {
                return reports;
            }
            for effect in effects {
                match effect {
                    Effect::Apply(desired) => {
                        let outcome = failing_policies(&desired, failing);
                        self.node.applied(desired.revision, outcome, self.now);
                    }
                    Effect::Report(report) => reports.push(report),
                    Effect::Observe => {
                        let endpoints = self.node.image().1.keys().cloned().collect();
                        let observed = Observed { endpoints, drift: Vec::new() };
                        self.node.observed(Ok(observed), self.now);
                    }
                    Effect::Answer { .. }
                    | Effect::Announce(_)
                    | Effect::Acknowledge(_)
                    | Effect::Resync(_)
                    | Effect::Persist(_) => {}
                }
            }
            self.node.tick(self.now);
        }
    }

    /// The next report, whenever it is due.
    fn next(&mut self, failing: &Failing) -> Report {
        let mut reports = self.reports(failing);
        for _ in 0..100 {
            if !reports.is_empty() {
                break;
            }
            self.now = self.node.wake_at().unwrap();
            self.node.tick(self.now);
            reports = self.reports(failing);
        }
        let [report] = <[Report; 1]>::try_from(reports).unwrap();
        report
    }

    /// The next report, which arrives.
    fn one(&mut self, failing: &Failing) -> ReportRequest {
        let report = self.next(failing);
        self.node.reported(report.to, true, self.now);
        report.message
    }
}

fn realized_of(report: &ReportRequest) -> (bool, Vec<(&str, &str, bool)>) {
    let realized = report.realized.iter();
    (report.full, realized.map(|r| (r.uid.as_str(), r.error.as_str(), r.gone)).collect())
}

/// Policies that the backend cannot put into force, by UID, with the cause.
type Failing = BTreeMap<String, String>;

fn done() -> Failing {
    BTreeMap::new()
}

fn failing_policies(desired: &Desired, failing: &Failing) -> Applied {
    Applied { policies: failing.clone(), ..Applied::complete(desired) }
}

#[test]
fn a_full_report_comes_first_then_changes_and_a_full_one_to_a_new_recipient() {
    let mut scenario = Scenario::new();
    scenario.send([policy(1, &[0]), policy(2, &[]), vec![entry(0)]].concat());
    assert!(scenario.reports(&done()).is_empty(), "no replica accepts reports");
    scenario.bookmark(10, "10.9.9.2:1");
    let report = scenario.one(&done());
    assert_eq!(
        realized_of(&report),
        (true, vec![("policy-1", "", false), ("policy-2", "", false)])
    );
    scenario.send([policy(3, &[0]), vec![removed(&ObjectId::policy("policy-1"))]].concat());
    let failing = Failing::from([("policy-2".to_owned(), "no room".to_owned())]);
    let report = scenario.one(&failing);
    let changes =
        vec![("policy-1", "", true), ("policy-2", "no room", false), ("policy-3", "", false)];
    assert_eq!(realized_of(&report), (false, changes));
    scenario.bookmark(10, "10.9.9.3:1");
    let report = scenario.one(&failing);
    assert_eq!(
        realized_of(&report),
        (true, vec![("policy-2", "no room", false), ("policy-3", "", false)])
    );
}

#[test]
fn resource_versions_are_reported_once_the_state_is_in_force() {
    let mut scenario = Scenario::new();
    scenario.bookmark(5, "10.9.9.2:1");
    scenario.send(policy(1, &[0]));
    scenario.bookmark(10, "10.9.9.2:1");
    // The backend has not answered yet.
    let reached = |report: &ReportRequest| report.reached.first().map(|reached| reached.version);
    let effects = scenario.node.take_effects();
    let (mut first, mut given) = (None, None);
    for effect in effects {
        if let Effect::Report(report) = effect {
            first = Some(report);
        } else if let Effect::Apply(desired) = effect {
            given = Some(desired);
        }
    }
    let first = first.unwrap();
    assert_eq!(reached(&first.message), Some(5));
    scenario.node.reported(first.to, true, scenario.now);
    let given = given.unwrap();
    scenario.node.applied(given.revision, Applied::complete(&given), scenario.now);
    assert_eq!(reached(&scenario.one(&done())), Some(10));
}

#[test]
fn a_report_that_did_not_arrive_is_sent_again_with_pauses() {
    let mut scenario = Scenario::new();
    scenario.send(policy(1, &[0]));
    scenario.bookmark(10, "10.9.9.2:1");
    let mut pauses = Vec::new();
    let mut report = scenario.next(&done());
    for _ in 0..10 {
        assert!(report.message.full);
        let sent = scenario.now;
        scenario.node.reported(report.to, false, sent);
        report = scenario.next(&done());
        pauses.push(scenario.now.since(sent));
    }
    assert!(pauses.is_sorted() && pauses[0] >= Span::seconds(1), "{pauses:?}");
    assert_eq!(pauses.last(), Some(&Span::seconds(60)));
}

#[test]
fn a_replica_that_had_read_less_is_behind_until_it_has_caught_up() {
    let mut scenario = Scenario::new();
    scenario.send(policy(1, &[0]));
    scenario.bookmark(10, "");
    let behind = |scenario: &Scenario| scenario.node.overview().behind;
    assert!(!behind(&scenario));
    let began = |scenario: &mut Scenario, behind: bool| {
        scenario.node.began("10.9.9.3:1".parse().unwrap(), &[2; 16], behind);
        scenario.generation = 0;
    };
    began(&mut scenario, true);
    assert!(behind(&scenario));
    scenario.send(Vec::new());
    scenario.bookmark(7, "");
    assert!(behind(&scenario), "it has read less");
    // The snapshot has read less than the earlier one.
    scenario.bookmark(9, "");
    assert!(behind(&scenario));
    scenario.bookmark(10, "");
    assert!(!behind(&scenario), "it has read as much");
    // A replica that has read as much when its stream starts.
    began(&mut scenario, true);
    scenario.send(Vec::new());
    scenario.bookmark(12, "");
    assert!(!behind(&scenario));
    began(&mut scenario, true);
    began(&mut scenario, false);
    assert!(!behind(&scenario));
}

#[test]
fn services_that_are_not_in_force_are_in_the_overview_until_they_are() {
    let mut scenario = Scenario::new();
    let web = ObjectName { namespace: "default".into(), name: "web".into() };
    let full = BTreeMap::from([(web, "the map is full".to_owned())]);
    // The policies of a state can fail while its Services are in force, and the other way around.
    let outcomes =
        [(full.clone(), Ok(())), (BTreeMap::new(), Ok(())), (full, Err("no map".to_owned()))];
    for (number, (services, in_force)) in (1..).zip(outcomes) {
        scenario.send(policy(number, &[0]));
        let mut applied = None;
        for effect in scenario.node.take_effects() {
            if let Effect::Apply(desired) = effect {
                applied = Some(desired);
            }
        }
        let desired = applied.unwrap();
        let outcome =
            Applied { in_force, services: services.clone(), ..Applied::complete(&desired) };
        scenario.node.applied(desired.revision, outcome, scenario.now);
        assert_eq!(scenario.node.overview().failing_services, services);
    }
}
