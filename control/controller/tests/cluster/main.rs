//! The controller's program against a real API server, with agents' real tokens and streams.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should say where")]

mod agent;
mod announce;
mod between;
mod certificates;
mod clocks;
mod conflicts;
mod crowd;
mod follows;
mod kinds;
mod outages;
mod replica;
mod reports;
mod services;
mod setback;
mod tokens;
mod view;
mod whole;
mod world;
