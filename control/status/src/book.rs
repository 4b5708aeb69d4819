//! The book.

mod early;
mod policy;

use crate::{Realization, bits::Bits, names::Names};
use early::Early;
use policy::{Kept, Stands};
use policy_core::PolicyKey;
use policy_objects::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// Minimum interval between status writes of one policy, in milliseconds.
pub(crate) const EVERY_MS: u64 = 5_000;
/// Maximum wait of a policy for its nodes' first reports, in milliseconds.
pub(crate) const FIRST_REPORTS_MS: u64 = 60_000;
/// Time for which a NetworkPolicy may lack nodes before an object of ours reports it, in milliseconds.
pub(crate) const PATIENCE_MS: u64 = 10_000;
/// Time before a missing object or kind is looked up again, in milliseconds.
const NOWHERE_MS: u64 = 60_000;
/// Reason why a policy is not in force on a node whose agent has no backend.
const NO_BACKEND: &str = "computed, and nothing enforces it: its agent has no backend";
/// Maximum number of policies that one call examines.
const LOOKS: usize = 10_000;
/// Maximum length of a policy's UID, in bytes; no API server creates longer ones.
const UID: usize = 128;

/// Nodes that need a policy, and the generation of its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All of them.
    All(Vec<String>),
    /// Changes only: nodes that have started (true) or stopped (false) to need the policy.
    Moved(BTreeMap<String, bool>),
}

/// A node's report about one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The policy's UID.
    pub uid: String,
    /// Of its spec.
    pub generation: i64,
    /// Reason why the policy is not in force; empty if it is.
    pub error: String,
    /// The node no longer has it.
    pub gone: bool,
}

impl Report {
    /// The same of a node on which nothing enforces policy: what it has is computed alone.
    #[must_use]
    pub fn unenforced(mut self) -> Self {
        if self.error.is_empty() {
            NO_BACKEND.clone_into(&mut self.error);
        }
        self
    }
}

/// Pending status write of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The policy's UID.
    pub uid: String,
    /// The policy.
    pub key: PolicyKey,
    /// Degree of enforcement; `None` deletes our object about a NetworkPolicy.
    pub says: Option<Realization>,
}

/// Result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cluster has it, written now or before.
    Stands,
    /// Another wrote meanwhile, or it could not be written: it is read again and tried again.
    Refused,
    /// There is no such policy, or no such kind: it is not tried again within a minute.
    Nowhere,
}

/// Reports of nodes since this replica became the lease holder, and the statuses that it has written.
#[derive(Debug)]
pub struct Book {
    begun_ms: u64,
    names: Names,
    /// Nodes that have reported in full.
    reporting: Bits,
    policies: BTreeMap<String, Kept>,
    /// When to look at which policy.
    agenda: BTreeSet<(u64, String)>,
    early: Early,
    /// NetworkPolicies that are not known yet, and have an object of ours.
    found: BTreeSet<String>,
}

impl Book {
    /// Creates an empty book for a replica that has just become the lease holder.
    pub fn new(now_ms: u64) -> Self {
        Self {
            begun_ms: now_ms,
            names: Names::default(),
            reporting: Bits::default(),
            policies: BTreeMap::new(),
            agenda: BTreeSet::new(),
            early: Early::default(),
            found: BTreeSet::new(),
        }
    }

    /// A policy is new or has changed, or nodes are to have it or no longer.
    pub fn policy(
        &mut self,
        uid: &str,
        key: &PolicyKey,
        generation: i64,
        spread: Spread,
        now_ms: u64,
    ) {
        let Self { policies, names, early, .. } = self;
        let kept = policies.entry(uid.to_owned()).or_default();
        if kept.key.is_none() {
            early.over(uid);
        }
        kept.turn(key, generation);
        if self.found.remove(uid) {
            kept.stands = Stands::Unread;
        }
        match spread {
            Spread::All(nodes) => {
                kept.desired.clear();
                nodes.iter().for_each(|node| kept.desired.insert(names.number(node)));
            }
            Spread::Moved(moves) => {
                for (node, is_in) in moves {
                    match (is_in, names.find(&node)) {
                        (true, _) => kept.desired.insert(names.number(&node)),
                        (false, Some(number)) => kept.desired.remove(number),
                        (false, None) => {}
                    }
                }
            }
        }
        self.look(uid, now_ms);
    }

    /// A policy is gone; its status or our object goes with it.
    pub fn policy_gone(&mut self, uid: &str) {
        self.found.remove(uid);
        self.early.over(uid);
        if let Some(kept) = self.policies.remove(uid) {
            kept.at_ms.map(|at_ms| self.agenda.remove(&(at_ms, uid.to_owned())));
        }
    }

    /// Records an existing object of ours about a NetworkPolicy, which an earlier lease holder wrote.
    /// The policy itself may arrive later.
    pub fn found(&mut self, uid: &str, now_ms: u64) {
        match self.policies.get_mut(uid).filter(|kept| kept.key.is_some()) {
            Some(kept) => {
                kept.stands = Stands::Unread;
                self.look(uid, now_ms);
            }
            None => drop(self.found.insert(uid.to_owned())),
        }
    }

    /// Applies a node's report about policies; a full one contains all of the node's policies.
    pub fn report(&mut self, node: &str, full: bool, reports: &[Report], now_ms: u64) {
        let node = self.names.number(node);
        if full {
            self.forget(node, now_ms);
            self.reporting.insert(node);
        }
        for Report { uid, generation, error, gone } in reports {
            let is_known = self.policies.get(uid).is_some_and(|kept| kept.key.is_some());
            if uid.len() > UID || !(is_known || self.early.takes(node, uid, *gone)) {
                continue;
            }
            let kept = self.policies.entry(uid.clone()).or_default();
            kept.record(node, *generation, (!gone).then_some(error.as_str()));
            if kept.key.is_none() && !kept.is_reported() {
                self.policies.remove(uid);
                continue;
            }
            self.look(uid, now_ms);
        }
    }

    /// Drops all reports of a node that is gone.
    pub fn node_gone(&mut self, node: &str, now_ms: u64) {
        if let Some(node) = self.names.find(node) {
            self.forget(node, now_ms);
            self.reporting.remove(node);
        }
    }

    fn forget(&mut self, node: u32, now_ms: u64) {
        self.early.forget(node);
        let mut touched = Vec::new();
        for (uid, kept) in &mut self.policies {
            // Also policies without a report from the node, as their count of silent nodes has changed.
            if kept.forget(node) || kept.desired.has(node) {
                touched.push(uid.clone());
            }
        }
        for uid in touched {
            let is_nothing = self
                .policies
                .get(&uid)
                .is_some_and(|kept| kept.key.is_none() && !kept.is_reported());
            if is_nothing {
                self.policies.remove(&uid);
            } else {
                self.look(&uid, now_ms);
            }
        }
    }

    /// Returns the degree of a policy's enforcement; `None` for an unknown policy.
    pub fn realization(&self, uid: &str) -> Option<Realization> {
        let kept = self.policies.get(uid).filter(|kept| kept.key.is_some())?;
        Some(kept.realization(&self.reporting, &self.names))
    }

    /// Returns the writes that are due now, up to a maximum. The caller passes the result of each to
    /// [`done`](Self::done); until then it is not due again.
    pub fn due(&mut self, now_ms: u64, most: usize) -> Vec<Write> {
        let mut due = Vec::new();
        for _ in 0..LOOKS {
            let first = self.agenda.first().filter(|(at_ms, _)| *at_ms <= now_ms);
            let Some((at_ms, uid)) = first.filter(|_| due.len() < most).cloned() else { break };
            self.agenda.remove(&(at_ms, uid.clone()));
            if let Some(kept) = self.policies.get_mut(&uid) {
                kept.at_ms = None;
            }
            due.extend(self.due_write(uid, now_ms));
        }
        due
    }

    /// When something may be due next.
    pub fn wake_at(&self) -> Option<u64> {
        self.agenda.first().map(|(at_ms, _)| *at_ms)
    }

    /// Records the result of a write.
    pub fn done(&mut self, uid: &str, outcome: Outcome, now_ms: u64) {
        let Some(kept) = self.policies.get_mut(uid) else { return };
        let Some(says) = kept.writing.take() else { return };
        kept.written_ms = Some(now_ms);
        kept.stands = match outcome {
            Outcome::Stands => Stands::Read(says),
            Outcome::Refused => Stands::Unread,
            Outcome::Nowhere => Stands::Nowhere,
        };
        if outcome != Outcome::Nowhere {
            self.look(uid, now_ms);
        }
    }

    /// True if NetworkPolicies lack a status because its object or kind was missing.
    pub fn has_nowhere(&self) -> bool {
        self.policies.values().any(Kept::has_nowhere)
    }

    /// Records that the object's kind exists now, and ends the wait for it.
    pub fn somewhere(&mut self, now_ms: u64) {
        let waiting = self.policies.iter().filter(|(_, kept)| kept.has_nowhere());
        let uids: Vec<String> = waiting.map(|(uid, _)| uid.clone()).collect();
        for uid in uids {
            if let Some(kept) = self.policies.get_mut(&uid) {
                kept.stands = Stands::Unread;
            }
            self.look(&uid, now_ms);
        }
    }

    /// Forgets the names of unused nodes.
    pub fn tidy(&mut self) {
        let mut used = self.reporting.clone();
        self.policies.values().for_each(|kept| kept.nodes(&mut used));
        self.names.keep(&used);
    }

    /// Returns the number of known nodes, for metrics.
    pub fn nodes(&self) -> usize {
        self.names.len()
    }

    /// Puts a policy on the agenda.
    fn look(&mut self, uid: &str, now_ms: u64) {
        let Some(kept) = self.policies.get_mut(uid) else { return };
        if kept.key.is_none() || kept.writing.is_some() {
            return;
        }
        let pause_ms = if kept.stands == Stands::Nowhere { NOWHERE_MS } else { EVERY_MS };
        let at_ms = kept.written_ms.map_or(now_ms, |written| now_ms.max(written + pause_ms));
        self.put(uid, at_ms);
    }

    /// The earlier of two times stands.
    fn put(&mut self, uid: &str, at_ms: u64) {
        let Some(kept) = self.policies.get_mut(uid) else { return };
        if kept.at_ms.is_some_and(|before| before <= at_ms) {
            return;
        }
        if let Some(before) = kept.at_ms.replace(at_ms) {
            self.agenda.remove(&(before, uid.to_owned()));
        }
        self.agenda.insert((at_ms, uid.to_owned()));
    }

    /// Returns the write of a policy if it differs from the cluster's status.
    fn due_write(&mut self, uid: String, now_ms: u64) -> Option<Write> {
        let Self { policies, reporting, names, begun_ms, .. } = self;
        let kept = policies.get_mut(&uid)?;
        let key = kept.key.clone()?;
        // A node that has not reported since may enforce the policy.
        let until_ms = *begun_ms + FIRST_REPORTS_MS;
        if now_ms < until_ms && !kept.desired.without(reporting).is_empty() {
            self.put(&uid, until_ms);
            return None;
        }
        let is = kept.realization(reporting, names);
        let says = if key.kind == Kind::NetworkPolicy {
            match kept.patience(&is, now_ms) {
                Some(until_ms) => {
                    // The status of another lease holder is kept until then.
                    self.put(&uid, until_ms);
                    return None;
                }
                None => kept.since_ms.map(|_| is),
            }
        } else {
            Some(is)
        };
        let kept = self.policies.get_mut(&uid)?;
        let stands = match &kept.stands {
            Stands::Nothing => says.is_none(),
            Stands::Read(stands) => *stands == says,
            Stands::Unread | Stands::Nowhere => false,
        };
        if stands {
            return None;
        }
        kept.writing = Some(says.clone());
        Some(Write { uid, key, says })
    }
}
