//! The chart `charts/ferrule`, rendered by the real Helm and applied to a real API server.
//!
//! [`Chart`] renders and installs it. [`pairs`] covers every pair of choices with few rows of values. [`server`] sends
//! objects to the API server.

mod chart;
pub mod pairs;
pub mod server;

pub use chart::{Chart, Rendered};
