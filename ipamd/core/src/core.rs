//! The core: events in, effects out.

use crate::{Checkpoint, Effect, Event, Limits, NodeFacts, PodView, PoolConfig, Snapshot, Start};
use config_model::{PodKey, Time};

/// The node's address book and its planner.
///
/// It knows no clock and does nothing itself. Feed it events with [`Core::on_event`], carry out the
/// effects in order, and send [`Event::Tick`] when [`Core::wake_at`] is reached. Send one `Tick`
/// right after [`Core::new`]: it yields the first effects.
#[derive(Debug)]
pub struct Core {
    outbox: Vec<Effect>,
}

impl Core {
    /// Starts from what an earlier process left.
    pub fn new(
        _config: PoolConfig,
        _node: NodeFacts,
        _limits: Limits,
        _restored: Checkpoint,
        _start: Start,
        _now: Time,
    ) -> Self {
        Self { outbox: Vec::new() }
    }

    /// Takes in what happened and says what to do, in order.
    pub fn on_event(&mut self, _event: Event, _now: Time) -> Vec<Effect> {
        std::mem::take(&mut self.outbox)
    }

    /// When the core next has something to do of its own accord.
    pub fn wake_at(&self) -> Option<Time> {
        None
    }

    /// Everything, for those who only look. Costs as much as there are addresses.
    pub fn snapshot(&self, _now: Time) -> Snapshot {
        Snapshot::default()
    }

    /// What the key holds.
    pub fn inspect(&self, _key: &PodKey) -> Option<PodView> {
        None
    }

    /// What the records persisted so far add up to; `compact()` of it replaces the file.
    pub fn checkpoint(&self) -> Checkpoint {
        Checkpoint::default()
    }
}
