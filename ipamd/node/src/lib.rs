//! The pure decisions of the IPAM daemon besides the core itself.
//!
//! [`desired`] derives the node's host networking from the address book, [`readiness`] reads from a repair pass which
//! ENIs pods can use, and [`Outbox`] holds back effects until the records before them are durable. The crate has no
//! clock, file, socket or task: the daemon and the simulation (`tests/sim`) run the same code.

pub mod desired;
mod outbox;
mod readiness;

pub use outbox::{Durable, Outbox};
pub use readiness::readiness;
