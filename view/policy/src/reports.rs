//! The reports of all nodes.

use crate::{Failing, Realized};
use control_wire::proto::ReportRequest;
use std::collections::{BTreeMap, BTreeSet};

/// Limit of kinds per node. It bounds the memory that a compromised node can use.
const KINDS: usize = 64;
/// Limit of policies per node.
const POLICIES: usize = 100_000;
/// Limit of a policy's UID in bytes. API servers assign shorter ones.
const UID: usize = 128;
/// Limit of a kind's name in bytes: kind and API group.
const KIND: usize = 63 + 1 + 253;
/// Limit of failing policies per node whose reason is kept.
const REASONS: usize = 1_000;
/// The reason of the others.
const NO_REASON: &str = "no reason is kept: the node reports too many";
/// Limit of a reason in bytes.
const REASON: usize = 1024;

/// The last report of each node.
#[derive(Debug, Default)]
pub struct Reports {
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug, Default)]
struct Node {
    at_ms: u64,
    good: BTreeSet<String>,
    bad: BTreeMap<String, (i64, String)>,
    reached: BTreeMap<String, u64>,
    unenforced: bool,
}

impl Reports {
    /// Limit of failing policies that a document lists.
    pub const FAILING: usize = 100;

    /// Records a node's report.
    pub fn take(&mut self, node: &str, report: &ReportRequest, now_ms: u64) {
        let node = self.nodes.entry(node.to_owned()).or_default();
        if report.full {
            *node = Node::default();
        }
        (node.at_ms, node.unenforced) = (now_ms, report.unenforced);
        // Names beyond the limits are neither policies nor kinds.
        for realized in report.realized.iter().filter(|realized| realized.uid.len() <= UID) {
            node.good.remove(&realized.uid);
            node.bad.remove(&realized.uid);
            if realized.gone || node.good.len() + node.bad.len() >= POLICIES {
                continue;
            }
            match realized.error.as_str() {
                "" => drop(node.good.insert(realized.uid.clone())),
                why => {
                    let is_kept = node.bad.len() < REASONS;
                    let why = if is_kept { cut(why) } else { NO_REASON };
                    let said = (realized.generation, why.to_owned());
                    node.bad.insert(realized.uid.clone(), said);
                }
            }
        }
        let reached = report.reached.iter().filter(|reached| reached.kind.len() <= KIND);
        for reached in reached.take(KINDS) {
            node.reached.insert(reached.kind.clone(), reached.version);
        }
        while node.reached.len() > KINDS {
            node.reached.pop_last();
        }
    }

    /// Removes a node that left the cluster.
    pub fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Removes all reports, because another replica collects them now.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// Returns true if the node has reported.
    pub fn knows(&self, node: &str) -> bool {
        self.nodes.contains_key(node)
    }

    /// The nodes that have reported.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// Returns a node's report.
    pub fn realized(&self, node: &str, now_ms: u64) -> Option<Realized> {
        let node = self.nodes.get(node)?;
        let failing = node.bad.iter().take(Self::FAILING).map(|(uid, (generation, error))| {
            Failing { uid: uid.clone(), generation: *generation, error: error.clone() }
        });
        Some(Realized {
            seconds_ago: now_ms.saturating_sub(node.at_ms) / 1000,
            policies: node.good.len(),
            unenforced: node.unenforced,
            reached: node.reached.clone(),
            failing: failing.collect(),
        })
    }
}

fn cut(text: &str) -> &str {
    let end = (0..=REASON.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    &text[..end.unwrap_or_default()]
}

#[cfg(test)]
mod tests {
    use super::*;
    use control_wire::proto::{Reached, Realized as Said};

    fn state_of(uid: &str, error: &str, gone: bool) -> Said {
        Said { uid: uid.to_owned(), generation: 1, error: error.to_owned(), gone }
    }

    fn report(full: bool, realized: Vec<Said>, reached: &[(&str, u64)]) -> ReportRequest {
        let reached = reached
            .iter()
            .map(|(kind, version)| Reached { kind: (*kind).to_owned(), version: *version });
        ReportRequest { full, realized, reached: reached.collect(), unenforced: false }
    }

    #[test]
    fn changes_accumulate_and_a_full_report_replaces_all() {
        let mut reports = Reports::default();
        let first = vec![state_of("a", "", false), state_of("b", "no room", false)];
        reports.take("n", &report(true, first, &[("Pod", 7)]), 1_000);
        let seen = reports.realized("n", 4_500).unwrap_or_default();
        assert_eq!((seen.seconds_ago, seen.policies, seen.failing.len()), (3, 1, 1));
        assert_eq!(seen.failing[0].error, "no room");
        let then =
            vec![state_of("b", "", false), state_of("a", "", true), state_of("c", "", false)];
        reports.take("n", &report(false, then, &[("Pod", 9)]), 5_000);
        let seen = reports.realized("n", 5_000).unwrap_or_default();
        assert_eq!((seen.policies, seen.failing, seen.reached["Pod"]), (2, vec![], 9));
        reports.take("n", &report(true, vec![state_of("d", "", false)], &[]), 6_000);
        let seen = reports.realized("n", 6_000).unwrap_or_default();
        assert_eq!((seen.policies, seen.reached.len()), (1, 0));
        reports.forget("n");
        assert_eq!(reports.realized("n", 6_000), None);
    }

    #[test]
    fn a_node_without_a_backend_is_known_by_its_last_report() {
        let mut reports = Reports::default();
        for unenforced in [true, false, true] {
            let report = report(true, vec![state_of("a", "", false)], &[("Pod", 7)]);
            reports.take("n", &ReportRequest { unenforced, ..report }, 0);
            let seen = reports.realized("n", 0).unwrap_or_default();
            assert_eq!((seen.unenforced, seen.policies), (unenforced, 1));
        }
    }

    #[test]
    fn a_report_above_the_limit_is_truncated() {
        let mut reports = Reports::default();
        let kinds: Vec<String> = (0..200).map(|n| format!("kind-{n:03}")).collect();
        let kinds: Vec<(&str, u64)> = kinds.iter().map(|kind| (kind.as_str(), 1)).collect();
        let long = "ä".repeat(REASON);
        reports.take("n", &report(true, vec![state_of("a", &long, false)], &kinds), 0);
        reports.take("n", &report(false, vec![], &[("Pod", 1)]), 0);
        let seen = reports.realized("n", 0).unwrap_or_default();
        assert_eq!((seen.reached.len(), seen.failing[0].error.len()), (KINDS, REASON));
    }

    #[test]
    fn names_that_are_too_long_are_none_and_few_reasons_are_kept() {
        let mut reports = Reports::default();
        let (uid, kind) = ("u".repeat(UID), "k".repeat(KIND));
        let (longer, other) = (format!("{uid}u"), format!("{kind}k"));
        let of = vec![
            state_of(&uid, "", false),
            state_of(&longer, "", false),
            state_of(&longer, "no", false),
        ];
        reports.take("n", &report(true, of, &[(&kind, 1), (&other, 1)]), 0);
        let seen = reports.realized("n", 0).unwrap_or_default();
        assert_eq!((seen.policies, seen.failing), (1, vec![]));
        assert_eq!(seen.reached.into_keys().collect::<Vec<_>>(), [kind]);
        let many = (0..2 * REASONS).map(|at| state_of(&format!("{at}"), "no room", false));
        reports.take("n", &report(true, many.collect(), &[]), 0);
        let bad = &reports.nodes["n"].bad;
        let kept = bad.values().filter(|(_, why)| why == "no room").count();
        assert_eq!((bad.len(), kept), (2 * REASONS, REASONS));
    }
}
