//! Answers for people about a world: one packet in words, reachability between pods, and the effects of a change.
//!
//! [`packet`] converts words to the packet that [`verdict`](crate::verdict) judges. A [`Matrix`] evaluates every
//! pair of pods with all traffic that their policies distinguish ([`Samples`]). Pods that policies do not distinguish
//! are evaluated once, so the cost depends on the number of kinds of pods. [`changes`] compares two worlds
//! in the same way.

mod ask;
mod diff;
mod kinds;
mod matrix;
mod samples;
mod svg;
mod table;
#[cfg(test)]
mod tests;

pub use ask::{Question, Unclear, packet};
pub use diff::{Change, Changes, changes};
pub use matrix::{Group, Matrix};
pub use samples::{Allowed, Sample, Samples};
