//! The node: events and the time in, effects out.

mod force;
mod overview;
mod stream;
mod wait;

pub use overview::Overview;

use crate::{
    Answer, Applied, Desired, LocalPod, PodId, Report, ReportTo, Ticket,
    desired::{pods_among, policies_of},
    realized::{Reports, State},
    store::Record,
    waiting::{Waiting, first_end},
};
use config_model::{Span, Time};
use control_wire::{
    Fault, Held, Progress, VERSIONS,
    proto::{self, Hello},
};
use prost::Message as _;
use std::{
    collections::{BTreeMap, VecDeque},
    mem,
    net::SocketAddr,
    sync::Arc,
};

/// As many pods that were started here are remembered: more than a node can have.
pub const START_LIMIT: usize = 2048;
/// A generation of more parts than this is no generation.
const PARTS_MAX: usize = 4096;
/// How many marks of how far the cluster was read wait for the backend.
const MARKS_MAX: usize = 16;
/// What the backend could not do is tried again after this time; doubled up to [`RETRY_LAST`].
const RETRY_FIRST: Span = Span::millis(250);
const RETRY_LAST: Span = Span::seconds(30);

/// Something that is to be done.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Put this into force, and say what came of it. One is under way at a time.
    Apply(Desired),
    /// A pod that starts is answered.
    Answer {
        /// Whose question it was.
        ticket: Ticket,
        /// The answer.
        answer: Answer,
    },
    /// Every ready replica is to be told of a pod's addresses.
    Announce(LocalPod),
    /// The replica that is followed is to be told that this generation is held.
    Holds(u64),
    /// What the replica said cannot be: it is to be followed anew.
    FollowAnew(Fault),
    /// The disk is to have these.
    Keep(Vec<Record>),
    /// Send it, and say whether it arrived.
    Report(Report),
}

/// How it goes with the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Contact {
    /// Not since the start, or no more, and why.
    None(String),
    /// This replica is followed.
    With {
        at: SocketAddr,
        /// How far this node held that it had been read, as long as the replica has read less.
        lacks: BTreeMap<String, u64>,
    },
}

/// What is being put into force: its policies are what a report is about.
#[derive(Debug)]
struct Applying {
    revision: u64,
    policies: BTreeMap<String, i64>,
}

/// What a node holds of policy, and who waits for it.
#[derive(Debug)]
pub struct Node {
    held: Arc<Held>,
    local: Arc<BTreeMap<String, LocalPod>>,
    /// A generation was held at some time: what is held is what a replica has told, and no mere nothing.
    told: bool,
    /// Counts states of the two above.
    revision: u64,
    applied: u64,
    applying: Option<Applying>,
    /// The same is to be tried again then.
    retry_at: Option<Time>,
    retries: u32,
    trouble: Option<String>,
    /// By UID, of what is in force otherwise.
    failing: BTreeMap<String, String>,
    waiting: BTreeMap<Ticket, Waiting>,
    tickets: u64,
    reports: Reports,
    contact: Contact,
    /// No stream lasts, or a generation was refused: what comes is not listened to.
    deaf: bool,
    /// A generation was refused: the next stream compares.
    distrust: bool,
    /// How far the cluster was read for states that are not in force yet, by their revision.
    marks: VecDeque<(u64, BTreeMap<String, u64>)>,
    /// Parts of the generation that is coming, for the disk.
    parts: Vec<Record>,
    effects: Vec<Effect>,
}

impl Node {
    /// With what lay on the disk, which is put into force at once if a replica had told it.
    pub fn new(held: Held, local: BTreeMap<String, LocalPod>) -> Self {
        let told = held.objects().next().is_some() || held.generation > 0;
        let mut node = Self {
            held: Arc::new(held),
            local: Arc::new(local),
            told,
            revision: u64::from(told),
            applied: 0,
            applying: None,
            retry_at: None,
            retries: 0,
            trouble: None,
            failing: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tickets: 0,
            reports: Reports::default(),
            contact: Contact::None("none was reached since the start".to_owned()),
            deaf: false,
            distrust: false,
            marks: VecDeque::new(),
            parts: Vec::new(),
            effects: Vec::new(),
        };
        node.apply();
        node
    }

    /// What is to be done, in this order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        mem::take(&mut self.effects)
    }

    /// What is held, for the disk.
    pub fn image(&self) -> (Arc<Held>, Arc<BTreeMap<String, LocalPod>>) {
        (Arc::clone(&self.held), Arc::clone(&self.local))
    }

    /// What became of a report.
    pub fn reported(&mut self, to: SocketAddr, arrived: bool, now: Time) {
        self.reports.sent(to, arrived, now);
        self.tick(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        if self.retry_at.is_some_and(|at| now >= at) && self.applying.is_none() {
            self.retry_at = None;
            self.apply_anyhow();
        }
        self.settle(now);
        if let Some(report) = self.reports.due(now) {
            self.effects.push(Effect::Report(report));
        }
    }

    /// When [`Self::tick`] has something to do, if nothing happens before.
    pub fn wake_at(&self) -> Option<Time> {
        let retry = self.retry_at.filter(|_| self.applying.is_none());
        [first_end(&self.waiting), retry, self.reports.wake_at()].into_iter().flatten().min()
    }
}
