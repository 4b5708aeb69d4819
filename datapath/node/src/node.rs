//! The core of the agent: events and the time in, effects out.

mod force;
mod links;
mod overview;
mod own;
mod stream;
mod wait;

pub use links::Links;
pub use overview::Overview;
pub use own::OwnRead;

use crate::{
    Answer, Changed, Desired, Endpoint, Endpoints, LocalPod, NodeIdentity, PodId, Report, ReportTo,
    Results, Services, Ticket,
    desired::{pods_among, policies_of},
    realized::{Reports, State},
    store::Record,
    waiting::{Waiting, first_end},
};
use config_model::{Span, Time};
use control_wire::{
    Fault, NodeSnapshot, ObjectId, ObjectKind, Progress,
    proto::{self, Hello},
};
use prost::Message as _;
use service_objects::ObjectName;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    mem,
    net::SocketAddr,
    sync::Arc,
};

/// The number of pods of this node that are kept: more than a node can have.
pub const START_LIMIT: usize = 2048;
/// A generation of more parts is refused.
const PARTS_MAX: usize = 4096;
/// The number of bookmarks that wait for the backend.
const MARKS_MAX: usize = 16;
/// The pause before a failed apply is repeated; doubled up to [`RETRY_LAST`].
const RETRY_FIRST: Span = Span::millis(250);
const RETRY_LAST: Span = Span::seconds(30);
/// The interval at which links and the backend's state are observed.
const OBSERVE_EVERY: Span = Span::seconds(10);

/// An action of the agent.
#[derive(Clone, Debug)]
pub enum Effect {
    /// Hand the state to the backend and return its outcome ([`Node::applied`]). One is under way at a time.
    Apply(Desired),
    /// Observe the pods' links ([`Node::links_observed`]) and the backend's state ([`Node::observed`]), in this order.
    Observe,
    /// Answer a pod that starts.
    Answer {
        /// The admission.
        ticket: Ticket,
        /// The answer to return to the plugin.
        answer: Answer,
    },
    /// Announce the pod's addresses to every ready replica.
    Announce(LocalPod),
    /// Acknowledge this generation to the replica that is followed.
    Acknowledge(u64),
    /// The replica's update does not fit the snapshot: start a new stream with a full comparison.
    Resync(Fault),
    /// Persist these records.
    Persist(Vec<Record>),
    /// Send the report, and return whether it arrived ([`Node::reported`]).
    Report(Report),
}

/// The connection to the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Contact {
    /// The node follows no replica; the text is the reason.
    None(String),
    /// The node follows this replica.
    With {
        at: SocketAddr,
        /// Resource versions of the node's snapshot by kind, as long as the replica has read less.
        lacks: BTreeMap<String, u64>,
    },
}

/// The state that the backend is applying. The next report is about its policies.
#[derive(Debug)]
struct Applying {
    revision: u64,
    endpoints: Arc<Endpoints>,
    state: Arc<NodeSnapshot>,
    /// The state has the policies of the state before, which was handed over without a full pass.
    keeps_policies: bool,
}

/// The state of policy on a node, and the pods that wait for it.
#[derive(Debug)]
pub struct Node {
    held: Arc<NodeSnapshot>,
    local: Arc<BTreeMap<String, LocalPod>>,
    /// The pods of `local` with their links, and pods that were not admitted.
    endpoints: Arc<Endpoints>,
    /// The links of the last observation.
    seen: Links,
    /// The backend serves Services.
    serves: bool,
    identity: Arc<NodeIdentity>,
    /// A replica has sent a generation at some time, so that an empty snapshot means an empty cluster.
    has_snapshot: bool,
    /// Counts the states of snapshot and endpoints.
    revision: u64,
    applied: u64,
    applying: Option<Applying>,
    /// The differences to the state that was handed to the backend last, which has the revision `given`.
    changed: Changed,
    given: u64,
    /// The next apply is a full pass.
    full: bool,
    /// The state is applied again as soon as the backend is free.
    again: bool,
    /// An observation is under way.
    observing: bool,
    /// The next observation; `None` before the first apply.
    observe_at: Option<Time>,
    /// The last difference that was observed between the backend's state and the one that was applied.
    drift: Option<String>,
    drifts: u64,
    /// The time at which the same state is applied again.
    retry_at: Option<Time>,
    retries: u32,
    fault: Option<String>,
    /// Services that are not in force, each with the cause.
    failing_services: BTreeMap<ObjectName, String>,
    /// Policies that are not in force, by UID, while the rest of the state is.
    failing: BTreeMap<String, String>,
    /// Endpoints that are not in force, by UID, while the rest of the state is.
    failing_endpoints: BTreeMap<String, String>,
    /// Endpoints that the last apply put into force.
    in_force: BTreeSet<String>,
    /// The endpoints of the state that was in force last, and their results.
    counted: Option<(Arc<Endpoints>, Arc<Results>)>,
    waiting: BTreeMap<Ticket, Waiting>,
    tickets: u64,
    reports: Reports,
    contact: Contact,
    /// There is no stream, or a generation was refused: messages of the stream are ignored.
    ignoring_stream: bool,
    /// A generation was refused: the next stream starts with a full comparison.
    resync: bool,
    /// Resource versions of the states that are not in force yet, by revision and kind.
    marks: VecDeque<(u64, BTreeMap<String, u64>)>,
    /// The parts of the next generation so far, for the disk.
    parts: Vec<Record>,
    effects: Vec<Effect>,
}

impl Node {
    /// Starts with the snapshot and the pods from the disk, and with the links that were observed now. A snapshot that
    /// a replica had sent is applied immediately.
    pub fn new(held: NodeSnapshot, local: BTreeMap<String, LocalPod>, links: &Links) -> Self {
        let has_snapshot = held.objects().next().is_some() || held.generation > 0;
        let endpoint = |(uid, pod): (&String, &LocalPod)| {
            let links = links.get(&pod.container).cloned().unwrap_or_default();
            (uid.clone(), Arc::new(Endpoint { pod: pod.clone(), links }))
        };
        let mut node = Self {
            held: Arc::new(held),
            endpoints: Arc::new(local.iter().map(endpoint).collect()),
            seen: links.clone(),
            serves: false,
            identity: Arc::default(),
            local: Arc::new(local),
            has_snapshot,
            revision: u64::from(has_snapshot),
            applied: 0,
            applying: None,
            changed: Changed::default(),
            given: 0,
            full: true,
            again: false,
            observing: false,
            observe_at: None,
            drift: None,
            drifts: 0,
            retry_at: None,
            retries: 0,
            fault: None,
            failing: BTreeMap::new(),
            failing_endpoints: BTreeMap::new(),
            failing_services: BTreeMap::new(),
            in_force: BTreeSet::new(),
            counted: None,
            waiting: BTreeMap::new(),
            tickets: 0,
            reports: Reports::default(),
            contact: Contact::None("none was reached since the start".to_owned()),
            ignoring_stream: false,
            resync: false,
            marks: VecDeque::new(),
            parts: Vec::new(),
            effects: Vec::new(),
        };
        node.adopt();
        node.apply();
        node
    }

    /// Sets the name of the node, by which EndpointSlices name it. A node that `serves` receives the Services of the
    /// cluster. The caller does this before the first effect.
    #[must_use]
    pub fn named(mut self, name: &str, serves: bool) -> Self {
        self.serves = serves;
        Arc::make_mut(&mut self.identity).name = name.to_owned();
        let services = self.services();
        for effect in &mut self.effects {
            if let Effect::Apply(desired) = effect {
                desired.node = Arc::clone(&self.identity);
                desired.services = Arc::clone(&services);
            }
        }
        self
    }

    /// The Services that the backend is to serve.
    fn services(&self) -> Arc<Services> {
        if !self.serves {
            return Arc::default();
        }
        let NodeSnapshot { services, slices, .. } = &*self.held;
        Arc::new(Services { services: services.clone(), slices: slices.clone() })
    }

    /// The actions since the last call, in order.
    pub fn take_effects(&mut self) -> Vec<Effect> {
        mem::take(&mut self.effects)
    }

    /// A pod of this node by its UID.
    pub fn pod(&self, uid: &str) -> Option<&PodId> {
        self.endpoints.get(uid).map(|endpoint| &endpoint.pod.pod)
    }

    /// A policy of the snapshot by its UID.
    pub fn policy(&self, uid: &str) -> Option<&control_wire::model::Policy> {
        self.held.policies.get(uid).map(AsRef::as_ref)
    }

    /// The snapshot and the pods, for the disk.
    pub fn image(&self) -> (Arc<NodeSnapshot>, Arc<BTreeMap<String, LocalPod>>) {
        (Arc::clone(&self.held), Arc::clone(&self.local))
    }

    /// The outcome of [`Effect::Report`].
    pub fn reported(&mut self, to: SocketAddr, arrived: bool, now: Time) {
        self.reports.sent(to, arrived, now);
        self.tick(now);
    }

    /// Time has passed.
    pub fn tick(&mut self, now: Time) {
        if self.retry_at.is_some_and(|at| now >= at) && self.applying.is_none() {
            self.retry_at = None;
            self.hand_over();
        }
        if self.observe_due().is_some_and(|at| now >= at) {
            (self.observing, self.observe_at) = (true, None);
            self.effects.push(Effect::Observe);
        }
        self.settle(now);
        if let Some(report) = self.reports.due(now) {
            self.effects.push(Effect::Report(report));
        }
    }

    /// The time at which [`Self::tick`] has something to do, if nothing happens before.
    pub fn wake_at(&self) -> Option<Time> {
        let retry = self.retry_at.filter(|_| self.applying.is_none());
        let observe = self.observe_due();
        let times = [first_end(&self.waiting), retry, self.reports.wake_at(), observe];
        times.into_iter().flatten().min()
    }

    /// The time of the next observation, if the backend is free for it.
    fn observe_due(&self) -> Option<Time> {
        self.observe_at.filter(|_| self.applying.is_none() && !self.observing)
    }
}
