//! Status of policy enforcement: the book of the replica that writes status.
//!
//! Nodes report the state of each policy, and the hub returns the nodes that need it. [`Book`] compares the two
//! and returns the writes that are [`due`](Book::due): statuses that differ from the cluster's. Writes are limited
//! in rate for each policy and in number for each call. [`render`] creates the text of each kind. Time is an argument.
//!
//! A book starts empty with each lease holder. A missing report does not count as missing enforcement:
//! a policy waits until its nodes have reported in full, and for a minute at most.

mod bits;
mod book;
mod names;
mod realization;
pub mod render;

pub use book::{Book, Outcome, Report, Spread, Write};
pub use realization::{Failing, NAMED, Phase, Realization};
