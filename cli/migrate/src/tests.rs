#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod laws;
mod node;
mod preconditions;
mod refusals;
