//! Addresses of the DNS names that rules name.
//!
//! A pod whose rules have names gets its DNS answers by the agent. [`read`] parses an answer, and [`Names`] owns
//! the addresses of each pod's names with their expiry. It keeps an answer until its addresses are in force.
//! [`Streams`] joins the segments of answers over TCP, and [`Frame`] is a packet as a pod receives it.
//!
//! All of it is pure: packets and the time in, frames and rows out.

mod frame;
mod message;
mod names;
mod stream;
mod wanted;

#[cfg(test)]
mod tests;

pub use frame::{Checksum, Frame, FrameError, Segment};
pub use message::{Answer, MessageError, read};
pub use names::{Counters, Learned, Limits, Names, Row};
pub use stream::{StreamKey, Streams};
pub use wanted::Wanted;
