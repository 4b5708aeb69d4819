//! The adapter against a real API server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod annotations;
mod elected;
mod events;
mod forwarder;
mod node;
mod outages;
mod pods;
mod replicas;
mod rights;
mod services;
mod trunk;
mod world;
