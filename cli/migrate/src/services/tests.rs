#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod cluster;
mod findings;
mod laws;
mod manifests;
mod objects;
mod rules;
