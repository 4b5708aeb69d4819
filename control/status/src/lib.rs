//! How far policies are enforced: the book that the replica keeps which writes status.
//!
//! Nodes report what became of each policy; the hub says which nodes are to have it. [`Book`] puts the two
//! together and says what is [`due`](Book::due) to be written: what differs from what the cluster has, each
//! policy once in a while, so much at a time. [`render`] puts it in the words of each kind. Time is an argument.
//!
//! A book begins empty with each holder of the Lease. What no node has reported yet is not said to be not
//! enforced: a policy waits until its nodes have reported in full, and for a minute at most.

mod bits;
mod book;
mod names;
mod realization;
pub mod render;

pub use book::{Book, Outcome, Report, Spread, Write};
pub use realization::{Failing, NAMED, Phase, Realization};
