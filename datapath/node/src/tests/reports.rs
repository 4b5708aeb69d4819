//! Who is told what of policies.

use super::{entry, part, policy, removed};
use crate::{Applied, Effect, Node, Report};
use config_model::{Span, Time};
use control_wire::{
    ObjectId,
    proto::{Bookmark, Reached, ReportRequest},
};
use std::collections::BTreeMap;

struct Told {
    node: Node,
    now: Time,
    generation: u64,
}

impl Told {
    fn new() -> Self {
        let mut node = Node::new(Default::default(), BTreeMap::new());
        node.began("10.9.9.1:1".parse().unwrap(), &[1; 16], false);
        Self { node, now: Time(0), generation: 0 }
    }

    fn tell(&mut self, changes: Vec<control_wire::proto::Change>) {
        self.generation += 1;
        self.node.part(part(self.generation, changes), self.now);
    }

    fn bookmark(&mut self, version: u64, to: &str) {
        let reached = vec![Reached { kind: "Pod".to_owned(), version }];
        let generation = self.generation;
        let bookmark = Bookmark { generation, reached, reports_to: to.to_owned() };
        self.node.bookmark(&bookmark, self.now);
    }

    /// The backend answers all that it is given; the reports that come.
    fn reports(&mut self, came: &Applied) -> Vec<Report> {
        let mut reports = Vec::new();
        loop {
            let effects = self.node.take_effects();
            if effects.is_empty() {
                return reports;
            }
            for effect in effects {
                match effect {
                    Effect::Apply(desired) => {
                        self.node.applied(desired.revision, came.clone(), self.now);
                    }
                    Effect::Report(report) => reports.push(report),
                    Effect::Answer { .. }
                    | Effect::Announce(_)
                    | Effect::Holds(_)
                    | Effect::FollowAnew(_)
                    | Effect::Keep(_) => {}
                }
            }
            self.node.tick(self.now);
        }
    }

    fn one(&mut self, came: &Applied) -> ReportRequest {
        let mut reports = self.reports(came);
        for _ in 0..100 {
            if !reports.is_empty() {
                break;
            }
            self.now = self.node.wake_at().unwrap();
            self.node.tick(self.now);
            reports = self.reports(came);
        }
        let [report] = <[Report; 1]>::try_from(reports).unwrap();
        self.node.reported(report.to, true, self.now);
        report.message
    }
}

fn says(report: &ReportRequest) -> (bool, Vec<(&str, &str, bool)>) {
    let realized = report.realized.iter();
    (report.full, realized.map(|r| (r.uid.as_str(), r.error.as_str(), r.gone)).collect())
}

fn done() -> Applied {
    Applied::Done(BTreeMap::new())
}

#[test]
fn all_is_told_first_then_what_changes_and_all_again_to_another() {
    let mut told = Told::new();
    told.tell([policy(1, &[0]), policy(2, &[]), vec![entry(0)]].concat());
    assert!(told.reports(&done()).is_empty(), "nobody takes reports");
    told.bookmark(10, "10.9.9.2:1");
    let report = told.one(&done());
    assert_eq!(says(&report), (true, vec![("policy-1", "", false), ("policy-2", "", false)]));
    told.tell([policy(3, &[0]), vec![removed(&ObjectId::Policy("policy-1".into()))]].concat());
    let failing = Applied::Done([("policy-2".to_owned(), "no room".to_owned())].into());
    let report = told.one(&failing);
    let changes =
        vec![("policy-1", "", true), ("policy-2", "no room", false), ("policy-3", "", false)];
    assert_eq!(says(&report), (false, changes));
    told.bookmark(10, "10.9.9.3:1");
    let report = told.one(&failing);
    assert_eq!(
        says(&report),
        (true, vec![("policy-2", "no room", false), ("policy-3", "", false)])
    );
}

#[test]
fn how_far_the_cluster_was_read_is_told_once_it_is_in_force() {
    let mut told = Told::new();
    told.bookmark(5, "10.9.9.2:1");
    told.tell(policy(1, &[0]));
    told.bookmark(10, "10.9.9.2:1");
    // The backend has not answered yet.
    let reached = |report: &ReportRequest| report.reached.first().map(|reached| reached.version);
    let effects = told.node.take_effects();
    let (mut first, mut revision) = (None, None);
    for effect in effects {
        if let Effect::Report(report) = effect {
            first = Some(report);
        } else if let Effect::Apply(desired) = effect {
            revision = Some(desired.revision);
        }
    }
    let first = first.unwrap();
    assert_eq!(reached(&first.message), Some(5));
    told.node.reported(first.to, true, told.now);
    told.node.applied(revision.unwrap(), done(), told.now);
    assert_eq!(reached(&told.one(&done())), Some(10));
}

#[test]
fn a_report_that_did_not_arrive_is_sent_again_with_pauses() {
    let mut told = Told::new();
    told.tell(policy(1, &[0]));
    told.bookmark(10, "10.9.9.2:1");
    let mut pauses = Vec::new();
    for _ in 0..10 {
        let reports = told.reports(&done());
        let [report] = reports.as_slice() else { panic!("{reports:?}") };
        assert!(report.message.full);
        told.node.reported(report.to, false, told.now);
        let due = told.node.wake_at().unwrap();
        pauses.push(due.since(told.now));
        told.now = due;
        told.node.tick(told.now);
    }
    assert!(pauses.is_sorted() && pauses[0] >= Span::seconds(1), "{pauses:?}");
    assert_eq!(pauses.last(), Some(&Span::seconds(60)));
}

#[test]
fn a_replica_that_had_read_less_is_behind_until_it_has_caught_up() {
    let mut told = Told::new();
    told.tell(policy(1, &[0]));
    told.bookmark(10, "");
    let behind = |told: &Told| told.node.overview().behind;
    assert!(!behind(&told));
    let began = |told: &mut Told, behind: bool| {
        told.node.began("10.9.9.3:1".parse().unwrap(), &[2; 16], behind);
        told.generation = 0;
    };
    began(&mut told, true);
    assert!(behind(&told));
    told.tell(Vec::new());
    told.bookmark(7, "");
    assert!(behind(&told), "it has read less");
    // What this node holds now says less than it did.
    told.bookmark(9, "");
    assert!(behind(&told));
    told.bookmark(10, "");
    assert!(!behind(&told), "it has read as much");
    // One that has read as much by the time that its stream begins.
    began(&mut told, true);
    told.tell(Vec::new());
    told.bookmark(12, "");
    assert!(!behind(&told));
    began(&mut told, true);
    began(&mut told, false);
    assert!(!behind(&told));
}
