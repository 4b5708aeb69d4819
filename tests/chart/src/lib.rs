//! The chart `charts/ferrule`, rendered by the real Helm and put before a real API server.
//!
//! [`Chart`] renders it and installs it, [`pairs`] makes few rows of values in which every pair of choices stands
//! somewhere, [`server`] asks the API server what it thinks of objects.

mod chart;
pub mod pairs;
pub mod server;

pub use chart::{Chart, Rendered};
