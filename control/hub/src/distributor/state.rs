//! The state of a distributor, without its source.

use super::{history::History, queue::NodeQueue, reached::Reached};
use control_wire::{Features, ObjectKind};
use std::collections::{BTreeMap, BTreeSet};

/// Everything except the source.
#[derive(Debug)]
pub(super) struct State {
    pub(super) epoch: [u8; 16],
    pub(super) is_loaded: bool,
    pub(super) generation: u64,
    pub(super) history: History,
    pub(super) nodes: BTreeMap<String, NodeQueue>,
    /// The number of the newest stream.
    pub(super) streams: u64,
    pub(super) reached: Reached,
    /// Nodes that got pending objects since the last call of [`Distributor::take_touched`](super::Distributor::take_touched).
    pub(super) touched: BTreeSet<String>,
    /// The kinds of object that this replica sends.
    pub(super) kinds: BTreeSet<ObjectKind>,
    /// The match features that this replica uses.
    pub(super) features: Features,
}
