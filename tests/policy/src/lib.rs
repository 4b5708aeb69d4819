//! What the policy model is tested against.
//!
//! `naive` answers for a packet from the parsed objects alone. It was written from the rules, not from
//! `policy-core`, shares no code with it and scans everything for every question: where both agree on
//! worlds and packets made up at random, one mistake would have to have been made twice. Its tests are the
//! properties in `tests/`; `vectors/` holds worlds written down by hand, with the answer expected.

pub mod announced;
pub mod beside;
mod config;
pub mod indexed;
pub mod lived;
pub mod made;
pub mod naive;
pub mod on_node;

pub use config::tries;
