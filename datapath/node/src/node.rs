//! The node: events and the time in, effects out.

mod wait;

use crate::{
    Answer, Applied, Desired, LocalPod, PodId, Report, ReportTo, Ticket,
    desired::{pods_among, policies_of},
    realized::{Reports, State},
    store::Record,
    waiting::{Waiting, first_end},
};
use config_model::{Span, Time};
use policy_wire::{
    Fault, Held, Progress, VERSIONS,
    proto::{self, Hello},
};
use prost::Message as _;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    net::{IpAddr, SocketAddr},
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
        /// It has read less than this node held.
        behind: bool,
    },
}

/// What is being put into force: its policies are what a report is about.
#[derive(Debug)]
struct Applying {
    revision: u64,
    policies: BTreeMap<String, i64>,
}

/// How the node is, for people and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overview {
    /// The run of the replica that the generation is of.
    pub epoch: Vec<u8>,
    /// The generation that is held.
    pub generation: u64,
    /// How far each kind had been read for it.
    pub reached: BTreeMap<String, u64>,
    /// The replica that is followed.
    pub replica: Option<SocketAddr>,
    /// It has read less than this node held, and was taken since none had read more.
    pub behind: bool,
    /// Why none is followed.
    pub alone: Option<String>,
    /// This process's count of states, and the last that the backend has put into force.
    pub revision: u64,
    /// See `revision`.
    pub applied: u64,
    /// Why the backend puts nothing into force.
    pub trouble: Option<String>,
    /// Policies, address groups, applied-to groups and pods that are held.
    pub counts: [usize; 4],
    /// Policies that are not in force: UID, name, reason.
    pub failing: Vec<(String, String, String)>,
    /// Pods that wait, with why.
    pub waiting: Vec<(PodId, String)>,
    /// Pods that were started here.
    pub local: usize,
}

/// What a node holds of policy, and who waits for it.
#[derive(Debug)]
pub struct Node {
    held: Arc<Held>,
    local: Arc<BTreeMap<String, LocalPod>>,
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
    /// A generation was refused: what comes on this stream is not listened to, and the next one compares.
    deaf: bool,
    distrust: bool,
    /// How far the cluster was read for states that are not in force yet, by their revision.
    marks: VecDeque<(u64, BTreeMap<String, u64>)>,
    /// Parts of the generation that is coming, for the disk.
    parts: Vec<Record>,
    effects: Vec<Effect>,
}

impl Node {
    /// With what lay on the disk, which is put into force at once.
    pub fn new(held: Held, local: BTreeMap<String, LocalPod>) -> Self {
        let knows = held != Held::default() || !local.is_empty();
        let mut node = Self {
            held: Arc::new(held),
            local: Arc::new(local),
            revision: u64::from(knows),
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

    /// What a replica is told first.
    pub fn hello(&self, take_behind: bool) -> Hello {
        let digest = |(id, digest): (policy_wire::ObjectId, policy_wire::Digest)| proto::Digest {
            id: Some(id.to_proto()),
            hash: digest.0.to_vec(),
        };
        Hello {
            versions: Some(proto::Versions { oldest: *VERSIONS.start(), newest: *VERSIONS.end() }),
            // Where a change did not fit, the same change would not fit again.
            epoch: if self.distrust { Vec::new() } else { self.held.epoch.clone() },
            generation: if self.distrust { 0 } else { self.held.generation },
            reached: reached(&self.held.reached),
            holds: self.held.digests().into_iter().map(digest).collect(),
            take_behind,
        }
    }

    /// How far a replica that has read so far lags behind what is held.
    pub fn lag(&self, theirs: &BTreeMap<String, u64>) -> u64 {
        let lag = |(kind, ours): (&String, &u64)| {
            ours.saturating_sub(theirs.get(kind).copied().unwrap_or(*ours))
        };
        self.held.reached.iter().map(lag).fold(0, u64::saturating_add)
    }

    /// A stream has begun.
    pub fn began(&mut self, at: SocketAddr, epoch: &[u8], behind: bool) {
        Arc::make_mut(&mut self.held).begin(epoch);
        self.parts.clear();
        self.deaf = false;
        self.contact = Contact::With { at, behind };
        self.effects.push(Effect::Keep(vec![Record::Begun { epoch: epoch.to_vec() }]));
    }

    /// None is followed, and why.
    pub fn alone(&mut self, why: String) {
        self.contact = Contact::None(why);
        self.parts.clear();
    }

    /// A part of a generation came.
    pub fn part(&mut self, part: proto::Part, now: Time) {
        if self.deaf {
            return;
        }
        let generation = part.generation;
        self.parts.push(Record::Part(part.encode_to_vec()));
        let taken = match self.parts.len() > PARTS_MAX {
            true => Err(Fault::OutOfOrder { generation, held: self.held.generation }),
            false => Arc::make_mut(&mut self.held).take(part),
        };
        match taken {
            Ok(Progress::Waits) => {}
            Ok(Progress::Holds(touched)) => {
                self.distrust = false;
                let mut records = mem::take(&mut self.parts);
                let gone: Vec<String> = pods_among(&touched)
                    .filter(|uid| !self.held.pods.contains_key(*uid))
                    .filter(|uid| self.local.contains_key(*uid))
                    .map(str::to_owned)
                    .collect();
                for uid in gone {
                    Arc::make_mut(&mut self.local).remove(&uid);
                    records.push(Record::Ended { uid });
                }
                self.effects.push(Effect::Keep(records));
                self.effects.push(Effect::Holds(generation));
                // One that brings nothing is in force as the one before is, if there was one.
                if !touched.is_empty() || self.revision == 0 {
                    self.changed(now);
                }
            }
            Err(fault) => {
                (self.deaf, self.distrust) = (true, true);
                self.parts.clear();
                self.effects.push(Effect::FollowAnew(fault));
            }
        }
    }

    /// How far the cluster was read, and who takes reports.
    pub fn bookmark(&mut self, bookmark: &proto::Bookmark, now: Time) {
        if self.deaf {
            return;
        }
        let told = bookmark.reached.iter();
        let is_new = |of: &proto::Reached| self.held.reached.get(&of.kind) != Some(&of.version);
        if told.clone().any(is_new) {
            Arc::make_mut(&mut self.held).mark(bookmark);
            let record = Record::Bookmark(bookmark.encode_to_vec());
            self.effects.push(Effect::Keep(vec![record]));
        }
        if bookmark.generation <= self.held.generation && self.marks.len() < MARKS_MAX {
            self.marks.push_back((self.revision, self.held.reached.clone()));
            self.marked(now);
        }
        let epoch = self.held.epoch.clone();
        let to = bookmark.reports_to.parse().ok().map(|at| ReportTo { at, epoch });
        self.reports.to(to, now);
        self.tick(now);
    }

    /// What came of a state that was to be put into force.
    pub fn applied(&mut self, revision: u64, came: Applied, now: Time) {
        let Some(applying) = self.applying.take_if(|applying| applying.revision == revision) else {
            return;
        };
        let policies = applying.policies.into_iter();
        let state: State = match came {
            Applied::Done(errors) => {
                (self.applied, self.trouble) = (revision, None);
                let state = policies.map(|(uid, generation)| {
                    let error = errors.get(&uid).cloned().unwrap_or_default();
                    (uid, (generation, error))
                });
                state.collect()
            }
            Applied::Failed(why) => {
                let state = policies.map(|(uid, generation)| (uid, (generation, why.clone())));
                let state = state.collect();
                self.trouble = Some(why);
                state
            }
        };
        let failing = state.iter().filter(|(_, (_, error))| !error.is_empty());
        self.failing = failing.map(|(uid, (_, error))| (uid.clone(), error.clone())).collect();
        self.reports.is(state, now);
        self.marked(now);
        if self.trouble.is_none() && self.failing.is_empty() {
            (self.retry_at, self.retries) = (None, 0);
        } else {
            let pause = RETRY_FIRST.0.saturating_mul(1 << self.retries.min(16));
            self.retries = self.retries.saturating_add(1);
            self.retry_at = Some(now + Span(pause.min(RETRY_LAST.0)));
        }
        // While all fails, a state that is newer waits for the next try as well.
        if self.trouble.is_none() && self.revision > revision {
            self.apply();
        }
        self.settle(now);
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

    /// How the node is.
    pub fn overview(&self) -> Overview {
        let held = &self.held;
        let (replica, behind, alone) = match &self.contact {
            Contact::None(why) => (None, false, Some(why.clone())),
            Contact::With { at, behind } => (Some(*at), *behind, None),
        };
        let name = |uid: &String| held.policies.get(uid).map(|policy| policy.key.to_string());
        let failing = self
            .reports
            .failing()
            .map(|(uid, why)| (uid.clone(), name(uid).unwrap_or_default(), why.clone()));
        Overview {
            epoch: held.epoch.clone(),
            generation: held.generation,
            reached: held.reached.clone(),
            replica,
            behind,
            alone,
            revision: self.revision,
            applied: self.applied,
            trouble: self.trouble.clone(),
            counts: [
                held.policies.len(),
                held.addresses.len(),
                held.applied.len(),
                held.pods.len(),
            ],
            failing: failing.collect(),
            waiting: self.waiting.values().map(|one| (one.pod.clone(), self.why(one))).collect(),
            local: self.local.len(),
        }
    }

    /// How far the cluster was read for what is in force.
    fn marked(&mut self, now: Time) {
        while let Some((_, reached)) = self.marks.pop_front_if(|mark| mark.0 <= self.applied) {
            self.reports.reached(reached, now);
        }
    }

    /// There is another state, which is to be in force.
    fn changed(&mut self, now: Time) {
        self.revision += 1;
        self.entries();
        self.apply();
        self.settle(now);
    }

    fn apply(&mut self) {
        let is_new = self.revision > self.applied;
        if is_new && self.trouble.is_none() {
            self.apply_anyhow();
        }
    }

    fn apply_anyhow(&mut self) {
        if self.applying.is_some() {
            return;
        }
        let (held, local) = self.image();
        let policies = held.policies.values().map(|policy| (policy.uid.clone(), policy.generation));
        let revision = self.revision;
        self.applying = Some(Applying { revision, policies: policies.collect() });
        self.effects.push(Effect::Apply(Desired { revision, held, local }));
    }
}

fn reached(of: &BTreeMap<String, u64>) -> Vec<proto::Reached> {
    let one =
        |(kind, version): (&String, &u64)| proto::Reached { kind: kind.clone(), version: *version };
    of.iter().map(one).collect()
}
