//! Which replica a node follows: each node has its own order of them, so that nodes spread.

use config_model::{Span, Time};
use sha1::{Digest as _, Sha1};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
};

/// After a round in which none was good; doubled up to [`PAUSE_LAST`].
const PAUSE_FIRST: Span = Span::millis(250);
const PAUSE_LAST: Span = Span::seconds(15);
/// As long as every replica has read less than the node holds, the newest of them is not taken.
const BEHIND: Span = Span::seconds(30);

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Connect to this one.
    Dial {
        /// Where it is.
        at: SocketAddr,
        /// Even if it has read less than the node holds.
        take_behind: bool,
    },
    /// Not before this moment.
    Wait(Time),
    /// There is none: wait for one to be told.
    Nobody,
}

/// The replicas, and what is known of them.
#[derive(Debug)]
pub struct Replicas {
    node: String,
    /// In the node's own order.
    order: Vec<SocketAddr>,
    /// Those that were tried in this round.
    tried: BTreeSet<SocketAddr>,
    rounds: u32,
    /// The next round does not begin before.
    round_at: Time,
    /// How far each lags that said so in this round.
    behind: BTreeMap<SocketAddr, u64>,
    /// Since when each that answered was behind.
    behind_since: Option<Time>,
}

impl Replicas {
    /// None is known yet.
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

    /// These are ready now. With new ones no pause is waited for.
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

    /// All of them, in this node's order.
    pub fn all(&self) -> &[SocketAddr] {
        &self.order
    }

    /// Whether this one is ready no more, and others are.
    pub fn is_left_out(&self, at: SocketAddr) -> bool {
        !self.order.is_empty() && !self.order.contains(&at)
    }

    /// Which to try now. `draw` is any number: it spreads the pauses of nodes.
    pub fn next(&mut self, now: Time, draw: u64) -> Next {
        if self.order.is_empty() {
            self.behind_since = None;
            return Next::Nobody;
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
            // Nobody answered that he is behind: one who does so later has the whole time to catch up.
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

    /// This one lags so far behind what the node holds.
    pub fn is_behind(&mut self, at: SocketAddr, lag: u64, now: Time) {
        self.behind.insert(at, lag);
        self.behind_since.get_or_insert(now);
    }

    /// A stream has begun.
    pub fn began(&mut self) {
        self.tried.clear();
        self.behind.clear();
        self.behind_since = None;
    }

    /// It was of use: the pauses are short again.
    pub fn worked(&mut self) {
        self.rounds = 0;
    }

    /// A stream that had begun is over. The same replica is tried first again, soon.
    pub fn ended(&mut self, now: Time, draw: u64) {
        self.pause(now, draw);
    }

    /// Pauses are drawn from the upper half, so that nodes do not come back in step.
    fn pause(&mut self, now: Time, draw: u64) {
        let length = PAUSE_FIRST.0.saturating_mul(1 << self.rounds.min(16)).min(PAUSE_LAST.0);
        self.rounds = self.rounds.saturating_add(1);
        self.round_at = now + Span(length / 2 + draw % (length / 2 + 1));
    }
}
