//! Policy state for each node, and its updates: the controller without its cluster and its network.
//!
//! [`Hub::apply`] applies an event of an object and marks the nodes that get pending objects from it.
//! [`Hub::next_update`] returns the pending objects of one node. Content that several nodes need is encoded once.
//!
//! A generation is a change of the cluster. A node receives whole generations and may skip some. An update
//! is the difference between the last generation that the node received and the newest one.

mod announced;
mod claims;
mod encoded;
mod history;
mod hub;
mod mirrors;
mod objects;
mod outside;
mod policies;
mod policy_changes;
mod queue;
mod reached;
mod refused;
mod wholes;

pub use hub::{
    AgentReport, Announce, Capabilities, ClientState, Handshake, Hub, Measures, PolicyReport,
    Stream, Update,
};
pub use policy_changes::{Needed, NeededBy, PolicyChange};
pub use refused::AnnounceError;
