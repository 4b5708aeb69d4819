//! The messages between replicas of the controller and nodes, and the objects that a node holds.
//!
//! A [`model::Policy`] is a policy with resolved groups: a node needs no selector and no object of the cluster to
//! enforce it. [`NodeSnapshot`] is the whole content of one node; it changes by whole generations. Each object has one
//! encoding for a set of [`Features`], the same on every replica, and its digest.
//!
//! Peers of different versions follow one stream. An agent names the kinds that it can hold ([`KINDS`]) and the match
//! features that it understands. A replica sends, compares and removes objects of these kinds only. A new kind of object
//! needs a number and a variant of `Change`. A new field that changes the matches of a rule needs a feature number in
//! `Rule.requires`. No other change of meaning is compatible.

mod changed;
mod decode;
mod digest;
pub mod encode;
mod features;
pub mod group;
pub mod model;
mod object;
mod part;
mod services;
mod shared;
mod snapshot;

/// The messages as they are sent.
#[allow(
    missing_docs,
    clippy::missing_docs_in_private_items,
    reason = "the .proto documents the generated types"
)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/ferrule.node.v1.rs"));
}

pub use changed::{Changed, Difference};
pub use decode::DecodeError;
pub use digest::Digest;
pub use features::Features;
pub use object::{KnownId, ObjectId, ObjectKind, digest_of};
pub use part::{EncodedBookmark, Entry, PART_BYTES, Positions, entry, parts};
pub use shared::SharedMap;
pub use snapshot::{Fault, NodeSnapshot, Progress};

#[cfg(test)]
mod tests;

/// The versions of the protocol that this crate speaks.
pub const VERSIONS: std::ops::RangeInclusive<u32> = 1..=1;

/// The kinds of object that [`NodeSnapshot`] can hold.
pub const KINDS: [ObjectKind; 7] = [
    ObjectKind::POLICY,
    ObjectKind::ADDRESS_GROUP,
    ObjectKind::APPLIED_GROUP,
    ObjectKind::POD,
    ObjectKind::NODE,
    ObjectKind::SERVICE,
    ObjectKind::SLICE,
];

/// The kinds that only agents that serve Services hold.
pub const SERVICE_KINDS: [ObjectKind; 2] = [ObjectKind::SERVICE, ObjectKind::SLICE];
