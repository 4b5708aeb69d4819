//! The choice of the replica to follow. Each node has its own order, so that nodes spread over the replicas.

use config_model::{Span, Time};
use sha1::{Digest as _, Sha1};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// The pause after a round without success; doubled up to [`PAUSE_LAST`].
const PAUSE_FIRST: Span = Span::millis(250);
const PAUSE_LAST: Span = Span::seconds(15);
/// The time before a node follows a replica that has read less than the node holds, if all replicas have.
const BEHIND: Span = Span::seconds(30);

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Connect to this replica.
    Dial {
        /// The replica's address.
        at: SocketAddr,
        /// Follow it even if it has read less than the node holds.
        take_behind: bool,
    },
    /// Do nothing before this time.
    Wait(Time),
    /// No replica is known: wait until one is.
    NoReplica,
}

/// The ready replicas and the outcome of the last attempts.
#[derive(Debug)]
pub struct Replicas {
    node: String,
    /// The replicas in the node's own order.
    order: Vec<SocketAddr>,
    /// The replicas that were tried in this round.
    tried: BTreeSet<SocketAddr>,
    rounds: u32,
    /// The earliest start of the next round.
    round_at: Time,
    /// The lag of each replica that reported one in this round.
    behind: BTreeMap<SocketAddr, u64>,
    /// The time since which every replica that answered was behind.
    behind_since: Option<Time>,
}

impl Replicas {
    /// Starts without any replica.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            order: Vec::new(),
            tried: BTreeSet::new(),
            rounds: 0,
            round_at: Time(0),
            behind: BTreeMap::new(),
            behind_since: None,
        }
    }

    /// Sets the replicas that are ready. A new replica ends the pause.
    pub fn ready(&mut self, ready: &BTreeSet<SocketAddr>) {
        let weight = |at: &SocketAddr| Sha1::digest(format!("{} {at}", self.node)).to_vec();
        let has_new = ready.iter().any(|at| !self.order.contains(at));
        let mut order: Vec<SocketAddr> = ready.iter().copied().collect();
        order.sort_by_key(|at| (weight(at), *at));
        self.order = order;
        self.tried.retain(|at| ready.contains(at));
        self.behind.retain(|at, _| ready.contains(at));
        if has_new {
            (self.rounds, self.round_at) = (0, Time(0));
        }
    }

    /// All replicas in this node's order.
    pub fn all(&self) -> &[SocketAddr] {
        &self.order
    }

    /// Returns true if this replica is no longer ready while others are.
    pub fn is_left_out(&self, at: SocketAddr) -> bool {
        !self.order.is_empty() && !self.order.contains(&at)
    }

    /// The next step. `draw` is a random number that spreads the pauses of nodes.
    pub fn next(&mut self, now: Time, draw: u64) -> Next {
        if self.order.is_empty() {
            self.behind_since = None;
            return Next::NoReplica;
        }
        if now < self.round_at {
            return Next::Wait(self.round_at);
        }
        if let Some(at) = self.order.iter().find(|at| !self.tried.contains(at)).copied() {
            self.tried.insert(at);
            return Next::Dial { at, take_behind: false };
        }
        let patient = self.behind_since.is_none_or(|since| now.since(since) < BEHIND);
        let newest = self.behind.iter().min_by_key(|(_, lag)| **lag).map(|(at, _)| *at);
        if newest.is_none() {
            // No replica reported that it is behind: one that does so later has the whole time to catch up.
            self.behind_since = None;
        }
        self.tried.clear();
        self.behind.clear();
        if let (false, Some(at)) = (patient, newest) {
            self.pause(now, draw);
            return Next::Dial { at, take_behind: true };
        }
        self.pause(now, draw);
        Next::Wait(self.round_at)
    }

    /// The replica has read less than the node holds, by `lag` versions.
    pub fn is_behind(&mut self, at: SocketAddr, lag: u64, now: Time) {
        self.behind.insert(at, lag);
        self.behind_since.get_or_insert(now);
    }

    /// A stream has started.
    pub fn began(&mut self) {
        self.tried.clear();
        self.behind.clear();
        self.behind_since = None;
    }

    /// The stream delivered a generation: the pauses start from the shortest again.
    pub fn worked(&mut self) {
        self.rounds = 0;
    }

    /// A stream has ended. The same replica is tried first again after a short pause.
    pub fn ended(&mut self, now: Time, draw: u64) {
        self.pause(now, draw);
    }

    /// Pauses are drawn from the upper half, so that nodes do not reconnect at the same time.
    fn pause(&mut self, now: Time, draw: u64) {
        let length = PAUSE_FIRST.0.saturating_mul(1 << self.rounds.min(16)).min(PAUSE_LAST.0);
        self.rounds = self.rounds.saturating_add(1);
        self.round_at = now + Span(length / 2 + draw % (length / 2 + 1));
    }
}
