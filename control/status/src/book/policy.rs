//! One policy of the book.

use super::PATIENCE_MS;
use crate::{Failing, NAMED, Phase, Realization, bits::Bits, names::Names};
use policy_core::PolicyKey;
use policy_objects::Kind;
use std::collections::BTreeMap;

/// Maximum stored length of a node's error, in characters.
const WHY: usize = 200;

/// Known status of a policy in the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Stands {
    /// Something or nothing: a status that has not been read since.
    #[default]
    Unread,
    /// No object of ours.
    Nothing,
    Read(Option<Realization>),
    /// The object or its kind was missing.
    Nowhere,
}

#[derive(Debug, Default)]
pub(super) struct Kept {
    /// `None`: nodes have reported of it, and it has not been read.
    pub(super) key: Option<PolicyKey>,
    generation: i64,
    pub(super) desired: Bits,
    /// At this generation.
    realized: Bits,
    failing: Bits,
    /// Errors of some of the failing nodes.
    why: BTreeMap<u32, String>,
    /// Reports about a generation that this replica has not read yet.
    ahead: BTreeMap<u32, (i64, String)>,
    /// Since when it is not in force everywhere; of a NetworkPolicy alone.
    pub(super) since_ms: Option<u64>,
    pub(super) stands: Stands,
    /// Status in a write whose result is pending.
    pub(super) writing: Option<Option<Realization>>,
    pub(super) written_ms: Option<u64>,
    /// When it is to be looked at.
    pub(super) at_ms: Option<u64>,
}

impl Kept {
    /// True if a node has a valid report.
    pub(super) fn is_reported(&self) -> bool {
        !(self.ahead.is_empty() && self.realized.is_empty() && self.failing.is_empty())
    }

    /// True for a NetworkPolicy whose status could not be written because its object or kind was missing.
    pub(super) fn has_nowhere(&self) -> bool {
        let is_ours = |key: &PolicyKey| key.kind == Kind::NetworkPolicy;
        self.stands == Stands::Nowhere && self.key.as_ref().is_some_and(is_ours)
    }

    /// Records a new or changed policy.
    pub(super) fn turn(&mut self, key: &PolicyKey, generation: i64) {
        if self.key.is_none() && key.kind == policy_objects::Kind::NetworkPolicy {
            // Existing objects of ours are recorded afterward.
            self.stands = Stands::Nothing;
        }
        if self.key.as_ref() == Some(key) && self.generation == generation {
            return;
        }
        if self.key.is_some() && self.generation == generation {
            self.key = Some(key.clone());
            return;
        }
        (self.key, self.generation) = (Some(key.clone()), generation);
        self.realized.clear();
        self.failing.clear();
        self.why.clear();
        for (node, (of, error)) in std::mem::take(&mut self.ahead) {
            self.record(node, of, Some(&error));
        }
    }

    /// Applies a node's report: an error, success (empty), or `None` if the node no longer has the policy.
    pub(super) fn record(&mut self, node: u32, generation: i64, error: Option<&str>) {
        self.forget(node);
        let Some(error) = error else { return };
        if self.key.is_none() || generation > self.generation {
            self.ahead.insert(node, (generation, cut(error)));
        } else if generation == self.generation && error.is_empty() {
            self.realized.insert(node);
        } else if generation == self.generation {
            self.failing.insert(node);
            if self.why.len() < NAMED {
                self.why.insert(node, cut(error));
            }
        }
    }

    /// Drops a node's report. Returns true if there was one.
    pub(super) fn forget(&mut self, node: u32) -> bool {
        let had = self.realized.has(node) || self.failing.has(node);
        self.realized.remove(node);
        self.failing.remove(node);
        self.why.remove(&node);
        self.ahead.remove(&node).is_some() || had
    }

    /// Adds the nodes that this is about.
    pub(super) fn nodes(&self, nodes: &mut Bits) {
        for bits in [&self.desired, &self.realized, &self.failing] {
            nodes.add(bits);
        }
        self.ahead.keys().for_each(|node| nodes.insert(*node));
    }

    pub(super) fn realization(&self, reporting: &Bits, names: &Names) -> Realization {
        let failing = self.desired.and(&self.failing);
        let realized = self.desired.and(&self.realized);
        let silent = self.desired.without(reporting).without(&realized).without(&failing);
        let name = |node: u32| names.name(node).to_owned();
        let fails = |node: u32| {
            let why = self.why.get(&node).cloned().unwrap_or_default();
            Failing { node: name(node), why }
        };
        Realization {
            generation: self.generation,
            desired: self.desired.len(),
            realized: realized.len(),
            failing: failing.len(),
            failures: failing.iter().take(NAMED).map(fails).collect(),
            silent: silent.len(),
            silence: silent.iter().take(NAMED).map(name).collect(),
        }
    }

    /// Until when a NetworkPolicy that is not in force everywhere is waited for.
    pub(super) fn patience(&mut self, is: &Realization, now_ms: u64) -> Option<u64> {
        if is.phase() == Phase::Realized {
            self.since_ms = None;
            return None;
        }
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        let until_ms = since_ms + PATIENCE_MS;
        (is.failing == 0 && now_ms < until_ms).then_some(until_ms)
    }
}

fn cut(text: &str) -> String {
    text.chars().take(WHY).collect()
}
