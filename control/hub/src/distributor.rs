//! The distributor: the queue of pending objects of each node, generations, history, and streams.
//!
//! It knows objects by id, encoding and digest only. Their content and their spans belong to a [`Source`].

mod generation;
mod history;
mod queue;
mod reached;
mod state;
mod stream;

pub use generation::Generation;
pub use queue::Pending;
pub use stream::{ClientState, Handshake, Stream, Update};

use crate::Source;
use control_wire::{Features, KINDS, ObjectKind};
use history::History;
use queue::NodeQueue;
use reached::Reached;
use state::State;
use std::collections::{BTreeMap, BTreeSet};

/// A source, and the state of each node's stream.
#[derive(Debug)]
pub struct Distributor<S> {
    source: S,
    state: State,
}

/// A node that has a stream, or had one less than a minute ago.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentReport {
    pub node: String,
    /// The node has a stream now.
    pub follows: bool,
    /// Last generation of which the node was sent everything except pending objects.
    pub sent: u64,
    /// Last generation that the node acknowledged.
    pub acknowledged: u64,
    /// Number of objects that are pending, or sent and not acknowledged.
    pub pending: usize,
}

impl<S: Source> Distributor<S> {
    /// Creates a distributor without streams. The epoch is 16 random bytes, different at each start. Objects of the
    /// first lists are added before [`loaded`](Self::loaded).
    pub fn of(source: S, epoch: [u8; 16]) -> Self {
        let state = State {
            epoch,
            is_loaded: false,
            generation: 0,
            history: History::default(),
            nodes: BTreeMap::new(),
            streams: 0,
            reached: Reached::default(),
            touched: BTreeSet::new(),
            kinds: KINDS.into(),
            features: Features::supported(),
        };
        Self { source, state }
    }

    /// Sets the kinds of object that this replica sends, and the match features that its rules use. The caller does
    /// this before the first stream.
    #[must_use]
    pub fn sending(mut self, kinds: BTreeSet<ObjectKind>, features: Features) -> Self {
        (self.state.kinds, self.state.features) = (kinds, features);
        self
    }

    /// Returns the source.
    pub fn source(&self) -> &S {
        &self.source
    }

    /// Runs a change of the source. All that it reports belongs to one generation, also if the source is a pair and
    /// both parts change. A change without a report makes no generation.
    pub fn change<R>(&mut self, apply: impl FnOnce(&mut S, &mut Generation<'_>) -> R) -> R {
        apply(&mut self.source, &mut Generation::new(&mut self.state))
    }

    /// Changes state of the source that no node receives.
    pub(crate) fn source_mut(&mut self) -> &mut S {
        &mut self.source
    }

    /// Records that all first lists are read. Nodes receive updates from now on.
    pub fn loaded(&mut self) {
        self.source.loaded();
        (self.state.is_loaded, self.state.generation) = (true, 1);
    }

    /// True if the first lists are read.
    pub fn is_loaded(&self) -> bool {
        self.state.is_loaded
    }

    /// Returns the identity of this run of the replica.
    pub fn epoch(&self) -> [u8; 16] {
        self.state.epoch
    }

    /// Returns the newest generation.
    pub fn generation(&self) -> u64 {
        self.state.generation
    }

    /// Records that all events of a kind up to this resource version have been applied.
    pub fn reach(&mut self, kind: &str, version: u64) {
        self.state.reached.raise(kind, version);
    }

    /// Records a relist of a kind with all of it as of this resource version. That is less than before if the
    /// cluster was set back to an earlier state.
    pub fn relisted(&mut self, kind: &str, version: u64) {
        self.state.reached.set(kind, version);
    }

    /// Records that the cluster no longer has a kind and that the controller does not read it.
    pub fn unreach(&mut self, kind: &str) {
        self.state.reached.forget(kind);
    }

    /// Returns the last applied resource version of each kind.
    pub fn reached(&self) -> &BTreeMap<String, u64> {
        self.state.reached.kinds()
    }

    /// Returns the address and port for reports; empty if no replica takes them now.
    pub fn reports_to(&self) -> &str {
        self.state.reached.reports_to()
    }

    /// Sets the receiver of reports and sends it to all nodes.
    pub fn set_reports_to(&mut self, at: &str) {
        if self.state.reached.report_to(at) {
            self.state.touched.extend(self.state.nodes.keys().cloned());
        }
    }

    /// Returns the nodes that got pending objects since the last call.
    pub fn take_touched(&mut self) -> BTreeSet<String> {
        std::mem::take(&mut self.state.touched)
    }

    /// Returns the nodes with a stream, and those whose stream ended less than a minute ago, in the order of their
    /// names.
    pub fn agents(&self) -> Vec<AgentReport> {
        self.state.nodes.keys().filter_map(|node| self.agent(node)).collect()
    }

    /// Returns one of the [`agents`](Self::agents).
    pub fn agent(&self, node: &str) -> Option<AgentReport> {
        let queue = self.state.nodes.get(node)?;
        Some(AgentReport {
            node: node.to_owned(),
            follows: queue.disconnected_ms.is_none(),
            sent: queue.last(),
            acknowledged: queue.acknowledged(),
            pending: queue.len(),
        })
    }

    /// Returns the number of nodes with a stream.
    pub(crate) fn streams(&self) -> usize {
        let connected = |queue: &&NodeQueue| queue.disconnected_ms.is_none();
        self.state.nodes.values().filter(connected).count()
    }

    /// Returns the number of pending objects of all nodes together.
    pub(crate) fn pending(&self) -> usize {
        self.state.nodes.values().map(NodeQueue::len).sum()
    }

    /// Returns the size of the history in bytes.
    pub(crate) fn history_bytes(&self) -> usize {
        self.state.history.bytes()
    }
}
