//! The book.

mod early;
mod policy;

use crate::{Realization, bits::Bits, names::Names};
use early::Early;
use policy::{Kept, Stands};
use policy_core::PolicyKey;
use policy_objects::Kind;
use std::collections::{BTreeMap, BTreeSet};

/// How often one policy's status is written at most, in milliseconds.
pub(crate) const EVERY_MS: u64 = 5_000;
/// How long a policy waits for its nodes' first reports.
pub(crate) const FIRST_REPORTS_MS: u64 = 60_000;
/// How long a NetworkPolicy may lack nodes before an object of ours says so.
pub(crate) const PATIENCE_MS: u64 = 10_000;
/// How long what is not there is not looked for.
const NOWHERE_MS: u64 = 60_000;
/// Why a policy is not in force on a node whose agent has no backend.
const NO_BACKEND: &str = "computed, and nothing enforces it: its agent has no backend";
/// How many policies are looked at for one answer.
const LOOKS: usize = 10_000;
/// How long a policy's UID may be, in bytes; no API server gives longer ones.
const UID: usize = 128;

/// Which nodes are to have a policy, and at which generation of its spec.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All of them.
    All(Vec<String>),
    /// What changed: these are to have it now, or no longer.
    Moved(BTreeMap<String, bool>),
}

/// What a node says of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The policy's UID.
    pub uid: String,
    /// Of its spec.
    pub generation: i64,
    /// Why it is not in force; empty if it is.
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

/// What is to be written of a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// The policy's UID.
    pub uid: String,
    /// The policy.
    pub key: PolicyKey,
    /// How far it is enforced; `None`: our object that says so goes, of a NetworkPolicy alone.
    pub says: Option<Realization>,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The cluster has it, written now or before.
    Stands,
    /// Another wrote meanwhile, or it could not be written: it is read again and tried again.
    Refused,
    /// There is no such policy, or no such kind: it is not tried again within a minute.
    Nowhere,
}

/// What nodes have reported since this replica holds the Lease, and what it has written.
#[derive(Debug)]
pub struct Book {
    begun_ms: u64,
    names: Names,
    /// Nodes that have reported in full.
    heard: Bits,
    policies: BTreeMap<String, Kept>,
    /// When to look at which policy.
    agenda: BTreeSet<(u64, String)>,
    early: Early,
    /// NetworkPolicies that are not known yet, and have an object of ours.
    found: BTreeSet<String>,
}

impl Book {
    /// An empty one: this replica has begun to hold the Lease.
    pub fn new(now_ms: u64) -> Self {
        Self {
            begun_ms: now_ms,
            names: Names::default(),
            heard: Bits::default(),
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

    /// There is an object of ours that says how far a NetworkPolicy is enforced; who held the Lease before wrote it.
    /// The policy may be told of later.
    pub fn found(&mut self, uid: &str, now_ms: u64) {
        match self.policies.get_mut(uid).filter(|kept| kept.key.is_some()) {
            Some(kept) => {
                kept.stands = Stands::Unread;
                self.look(uid, now_ms);
            }
            None => drop(self.found.insert(uid.to_owned())),
        }
    }

    /// A node says what became of policies; in full, of all that it has.
    pub fn report(&mut self, node: &str, full: bool, reports: &[Report], now_ms: u64) {
        let node = self.names.number(node);
        if full {
            self.forget(node, now_ms);
            self.heard.insert(node);
        }
        for Report { uid, generation, error, gone } in reports {
            let is_known = self.policies.get(uid).is_some_and(|kept| kept.key.is_some());
            if uid.len() > UID || !(is_known || self.early.takes(node, uid, *gone)) {
                continue;
            }
            let kept = self.policies.entry(uid.clone()).or_default();
            kept.hear(node, *generation, (!gone).then_some(error.as_str()));
            if kept.key.is_none() && !kept.is_reported() {
                self.policies.remove(uid);
                continue;
            }
            self.look(uid, now_ms);
        }
    }

    /// A node is gone: nothing that it said holds.
    pub fn node_gone(&mut self, node: &str, now_ms: u64) {
        if let Some(node) = self.names.find(node) {
            self.forget(node, now_ms);
            self.heard.remove(node);
        }
    }

    fn forget(&mut self, node: u32, now_ms: u64) {
        self.early.forget(node);
        let mut touched = Vec::new();
        for (uid, kept) in &mut self.policies {
            // Also of those of which it had not said a word: whether it is silent has changed.
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

    /// How far a policy is enforced; `None` for one that is not known.
    pub fn realization(&self, uid: &str) -> Option<Realization> {
        let kept = self.policies.get(uid).filter(|kept| kept.key.is_some())?;
        Some(kept.realization(&self.heard, &self.names))
    }

    /// What is to be written now, so much at most. Of each it must be told what became of it
    /// ([`done`](Self::done)); until then it is not due again.
    pub fn due(&mut self, now_ms: u64, most: usize) -> Vec<Write> {
        let mut due = Vec::new();
        for _ in 0..LOOKS {
            let first = self.agenda.first().filter(|(at_ms, _)| *at_ms <= now_ms);
            let Some((at_ms, uid)) = first.filter(|_| due.len() < most).cloned() else { break };
            self.agenda.remove(&(at_ms, uid.clone()));
            if let Some(kept) = self.policies.get_mut(&uid) {
                kept.at_ms = None;
            }
            due.extend(self.wish(uid, now_ms));
        }
        due
    }

    /// When something may be due next.
    pub fn wake_at(&self) -> Option<u64> {
        self.agenda.first().map(|(at_ms, _)| *at_ms)
    }

    /// What became of a write.
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

    /// Whether there are NetworkPolicies of which nothing is said, as there was no place for it.
    pub fn has_nowhere(&self) -> bool {
        self.policies.values().any(Kept::has_nowhere)
    }

    /// There is a place for what is said of NetworkPolicies now: it is not waited for any longer.
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

    /// Forgets the names of nodes that nothing is about any more.
    pub fn tidy(&mut self) {
        let mut used = self.heard.clone();
        self.policies.values().for_each(|kept| kept.nodes(&mut used));
        self.names.keep(&used);
    }

    /// How many nodes are known, for metrics.
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

    /// What is to be written of a policy, if that differs from what the cluster has.
    fn wish(&mut self, uid: String, now_ms: u64) -> Option<Write> {
        let Self { policies, heard, names, begun_ms, .. } = self;
        let kept = policies.get_mut(&uid)?;
        let key = kept.key.clone()?;
        // Who has not reported since may well enforce it.
        let until_ms = *begun_ms + FIRST_REPORTS_MS;
        if now_ms < until_ms && !kept.desired.without(heard).is_empty() {
            self.put(&uid, until_ms);
            return None;
        }
        let is = kept.realization(heard, names);
        let says = if key.kind == Kind::NetworkPolicy {
            match kept.patience(&is, now_ms) {
                Some(until_ms) => {
                    // What another holder of the Lease said stands as long.
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
