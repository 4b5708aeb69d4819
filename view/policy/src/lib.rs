//! What a replica of the controller says of itself to people, as documents of a Kubernetes API: policies and
//! groups with the nodes that need them, and how far each node is.
//!
//! The API is `view.policy.ferrule.io/v1alpha1`, of the cluster, and can be read alone. [`answer`] takes a path and
//! a query to a status and a document; whoever serves it looks to who may ask. [`Heard`] is the book of what nodes have
//! reported, which the replica keeps that nodes report to.

mod answer;
mod document;
mod heard;

pub use answer::{Answer, Asked, answer};
pub use document::{Agent, Failing, Group, Meta, Peer, Policy, Realized, Stream};
pub use heard::Heard;

/// The API's group.
pub const GROUP: &str = "view.policy.ferrule.io";
/// Its version.
pub const VERSION: &str = "v1alpha1";
