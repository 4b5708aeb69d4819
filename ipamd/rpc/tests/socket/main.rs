//! Client and server over a real unix socket.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on may panic")]

mod bounds;
mod calls;
mod daemon;
mod enforcer;
mod multiplexed;
mod takeover;
mod waiting;
