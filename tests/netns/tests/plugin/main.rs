//! The plugin's real binary against a real kernel, in namespaces of each test's own, and a scripted
//! daemon behind the real socket.
//!
//! Needs root and iproute2, an independent witness of what the plugin did. `FERRULE_CNI` names the
//! binary to test; without it, this workspace's is built.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod add;
mod binary;
mod branch;
mod cards;
mod check;
mod compact;
mod crowd;
mod daemon;
mod del;
mod egress;
mod failure;
mod foreign;
mod gc;
mod ipv6;
mod node;
mod own_policy;
mod policy;
mod refusal;
mod sandboxes;
mod secrets;
mod status;
mod trace;
