//! A naive evaluator of Services, written apart from `service-core`, and random clusters.
//!
//! `naive` decides a packet from the objects alone, by scans. `scenario` makes random worlds, the events that change
//! them, and every packet of interest. `judge` compares the answers of any implementation with the naive ones, and
//! `planted` has wrong implementations that it must find. `text` prints and reads worlds; `vectors/` has worlds in this
//! form with the expected routes. `reasons` checks why endpoints are backends or not.

pub mod judge;
pub mod naive;
pub mod planted;
pub mod reasons;
pub mod scenario;
pub mod text;
