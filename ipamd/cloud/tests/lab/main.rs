//! The adapter against the lab's EC2 and metadata service, over HTTP on loopback.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod environment;
mod life;
mod metadata;
mod modes;
mod remedies;
mod stub;
mod wire;
mod world;
