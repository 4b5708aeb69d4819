//! Objects for each node, and their updates: the controller without its cluster and its network.
//!
//! A [`Source`] owns objects with a span. [`Distributor::change`] applies a change of the source and marks the nodes
//! that get pending objects from it. [`Distributor::next_update`] returns the pending objects of one node. Content that
//! several nodes need is encoded once.
//!
//! A generation is a change of the sources. A node receives whole generations and may skip some. An update
//! is the difference between the last generation that the node received and the newest one.
//!
//! [`PolicySource`] is the first source, and [`Hub`] is the distributor of a replica with all of its sources. The
//! distributor does not depend on policy.

mod distributor;
mod encoded_objects;
mod hub;
mod policy;
mod services;
mod source;

pub use distributor::{
    AgentReport, ClientState, Distributor, Generation, Handshake, Pending, Stream, Update,
};
pub use encoded_objects::EncodedObjects;
pub use hub::{Capabilities, Hub, Measures};
pub use policy::{
    Announce, AnnounceError, Needed, NeededBy, PolicyChange, PolicyReport, PolicySource,
};
pub use services::ServiceSource;
pub use source::{Recipient, Source};
