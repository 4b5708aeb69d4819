//! The plugin's real binary against the real kernel, with new namespaces for each test and a scripted daemon behind the
//! real socket.
//!
//! Needs root and iproute2, which observes the plugin's work independently. `FERRULE_CNI` names the binary; by default
//! the tests build this workspace's.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod add;
mod binary;
mod branch;
mod bridged;
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
