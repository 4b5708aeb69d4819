//! What people ask of a world: one packet in their words, who reaches whom, and what a change changes.
//!
//! [`packet`] turns words into the packet that [`verdict`](crate::verdict) judges. A [`Matrix`] asks it for
//! every pair of pods and all that sets their policies apart ([`Samples`]); pods that no policy tells apart
//! are asked for once, so that hundreds of them cost what their kinds cost. [`changes`] compares two worlds
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
