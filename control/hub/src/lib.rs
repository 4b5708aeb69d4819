//! What each node is to be told of policy, and when: the controller without its cluster and its network.
//!
//! [`Hub::apply`] takes in what happened to an object and says which nodes have something to be told;
//! [`Hub::tell`] gives one of them what it lacks. Everything that several nodes need is encoded once.
//!
//! A generation is a change of the cluster. A node is told generations whole, and may skip some: what
//! it is told then is the difference between the last that it was told and the newest.

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
