//! What a node is told of policy: the words between the controller and the nodes, and what a node holds.
//!
//! A [`told::Policy`] is a policy with its groups looked up: a node needs no selector and no object of the
//! cluster to enforce it. [`Held`] is all that one node has been told; it changes by whole generations. Each
//! object has one encoding, the same on every replica, and its digest.

mod decode;
pub mod encode;
pub mod group;
mod held;
mod object;
mod part;
pub mod told;

/// The messages as they are sent.
#[allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    reason = "what is generated has its words in the .proto"
)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/ferrule.policy.v1.rs"));
}

pub use decode::Unreadable;
pub use held::{Fault, Held, Progress};
pub use object::{Digest, ObjectId, digest_of};
pub use part::{Entry, Mark, PART_BYTES, Reach, entry, parts};

#[cfg(test)]
mod tests;

/// The versions of the protocol that this crate speaks.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;
