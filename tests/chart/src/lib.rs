//! The chart `charts/ferrule`, rendered by the real Helm and applied to a real API server.
//!
//! [`Chart`] renders and installs it. [`pairs`] covers every pair of choices with few rows of values. [`server`] sends
//! objects to the API server, and [`requests`] sends requests with the tokens of service accounts.

mod chart;
pub mod pairs;
pub mod requests;
pub mod server;

pub use chart::{Chart, IMAGE, Rendered};

/// Returns the values file of amazon-vpc-cni's chart.
///
/// # Errors
/// If it is not YAML.
pub fn amazon_values() -> anyhow::Result<serde_json::Value> {
    use anyhow::Context as _;
    serde_saphyr::from_str(include_str!("amazon.yaml")).context("amazon.yaml is not YAML")
}
