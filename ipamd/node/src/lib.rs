//! The pure decisions of the IPAM daemon besides the core itself.
//!
//! [`desired`] derives the node's host networking from the address book. [`conntrack`] decides about the settings of
//! connection tracking on nodes without kube-proxy. [`readiness`] derives the ENIs that pods can use from a repair pass.
//! [`Outbox`] holds back effects until the records before them are durable. The crate has no clock, file, socket or task:
//! the daemon and the simulation (`tests/sim`) run the same code.

pub mod conntrack;
pub mod desired;
mod outbox;
mod readiness;

pub use outbox::{Durable, Outbox};
pub use readiness::readiness;
