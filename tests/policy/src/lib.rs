//! Generators and reference evaluators for the policy model.
//!
//! `naive` decides a packet from the parsed objects alone. It was written from the specifications, shares no
//! code with `policy-core`, and scans all objects for each question. If both agree on random worlds and
//! packets, a fault must be in both. The properties are in `tests/`. `vectors/` contains worlds in YAML with
//! the expected verdicts.

pub mod announced;
pub mod compare;
pub mod compiled;
mod config;
pub mod indexed;
pub mod live;
pub mod naive;
pub mod node_client;
pub mod on_node;
pub mod scenario;

pub use config::cases;
