//! What nodes have reported.

use crate::{Failing, Realized};
use policy_wire::proto::ReportRequest;
use std::collections::{BTreeMap, BTreeSet};

/// How many kinds a node may name, so that one that lies takes no memory to speak of.
const KINDS: usize = 64;
/// How many policies are kept of a node.
const POLICIES: usize = 100_000;
/// How long a reason may be, in bytes.
const REASON: usize = 1024;

/// The book of what nodes have in force.
#[derive(Debug, Default)]
pub struct Heard {
    nodes: BTreeMap<String, Node>,
}

#[derive(Debug, Default)]
struct Node {
    at_ms: u64,
    good: BTreeSet<String>,
    bad: BTreeMap<String, (i64, String)>,
    reached: BTreeMap<String, u64>,
}

impl Heard {
    /// How many failing policies are told of a node.
    pub const FAILING: usize = 100;

    /// Takes a node's report in.
    pub fn take(&mut self, node: &str, report: &ReportRequest, now_ms: u64) {
        let node = self.nodes.entry(node.to_owned()).or_default();
        if report.full {
            *node = Node::default();
        }
        node.at_ms = now_ms;
        for realized in &report.realized {
            node.good.remove(&realized.uid);
            node.bad.remove(&realized.uid);
            if realized.gone || node.good.len() + node.bad.len() >= POLICIES {
                continue;
            }
            match realized.error.as_str() {
                "" => drop(node.good.insert(realized.uid.clone())),
                why => {
                    let said = (realized.generation, cut(why).to_owned());
                    node.bad.insert(realized.uid.clone(), said);
                }
            }
        }
        for reached in report.reached.iter().take(KINDS) {
            node.reached.insert(reached.kind.clone(), reached.version);
        }
        while node.reached.len() > KINDS {
            node.reached.pop_last();
        }
    }

    /// Forgets a node that is no longer in the cluster.
    pub fn forget(&mut self, node: &str) {
        self.nodes.remove(node);
    }

    /// Forgets all: nodes report elsewhere.
    pub fn clear(&mut self) {
        self.nodes.clear();
    }

    /// The nodes that have reported.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        self.nodes.keys().map(String::as_str)
    }

    /// What a node has in force.
    pub fn realized(&self, node: &str, now_ms: u64) -> Option<Realized> {
        let node = self.nodes.get(node)?;
        let failing = node.bad.iter().take(Self::FAILING).map(|(uid, (generation, error))| {
            Failing { uid: uid.clone(), generation: *generation, error: error.clone() }
        });
        Some(Realized {
            seconds_ago: now_ms.saturating_sub(node.at_ms) / 1000,
            policies: node.good.len(),
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
    use policy_wire::proto::{Reached, Realized as Said};

    fn said(uid: &str, error: &str, gone: bool) -> Said {
        Said { uid: uid.to_owned(), generation: 1, error: error.to_owned(), gone }
    }

    fn report(full: bool, realized: Vec<Said>, reached: &[(&str, u64)]) -> ReportRequest {
        let reached = reached
            .iter()
            .map(|(kind, version)| Reached { kind: (*kind).to_owned(), version: *version });
        ReportRequest { full, realized, reached: reached.collect() }
    }

    #[test]
    fn changes_add_up_and_a_full_report_begins_anew() {
        let mut heard = Heard::default();
        let first = vec![said("a", "", false), said("b", "no room", false)];
        heard.take("n", &report(true, first, &[("Pod", 7)]), 1_000);
        let seen = heard.realized("n", 4_500).unwrap_or_default();
        assert_eq!((seen.seconds_ago, seen.policies, seen.failing.len()), (3, 1, 1));
        assert_eq!(seen.failing[0].error, "no room");
        let then = vec![said("b", "", false), said("a", "", true), said("c", "", false)];
        heard.take("n", &report(false, then, &[("Pod", 9)]), 5_000);
        let seen = heard.realized("n", 5_000).unwrap_or_default();
        assert_eq!((seen.policies, seen.failing, seen.reached["Pod"]), (2, vec![], 9));
        heard.take("n", &report(true, vec![said("d", "", false)], &[]), 6_000);
        let seen = heard.realized("n", 6_000).unwrap_or_default();
        assert_eq!((seen.policies, seen.reached.len()), (1, 0));
        heard.forget("n");
        assert_eq!(heard.realized("n", 6_000), None);
    }

    #[test]
    fn a_node_that_says_too_much_is_cut_off() {
        let mut heard = Heard::default();
        let kinds: Vec<String> = (0..200).map(|n| format!("kind-{n:03}")).collect();
        let kinds: Vec<(&str, u64)> = kinds.iter().map(|kind| (kind.as_str(), 1)).collect();
        let long = "ä".repeat(REASON);
        heard.take("n", &report(true, vec![said("a", &long, false)], &kinds), 0);
        heard.take("n", &report(false, vec![], &[("Pod", 1)]), 0);
        let seen = heard.realized("n", 0).unwrap_or_default();
        assert_eq!((seen.reached.len(), seen.failing[0].error.len()), (KINDS, REASON));
    }
}
