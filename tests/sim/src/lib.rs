//! Years of a node's life against the real core, in minutes.
//!
//! One seeded clock and one queue drive the real `ipamd-core` and `routing-plan`, the lab's pure
//! EC2 and a fake kernel. There is no thread, no sleep and no wall clock: the same seed is the same
//! life. A [`Plan`] says beforehand what befalls the node, so that a life that breaks a [`Law`] can
//! be lived again with parts of it left out ([`shrink`]).
//!
//! The pure decisions around the core come from `ipamd-node`, the table of EC2's error codes from `ipamd-core`. The
//! simulation repeats only the order of the daemon's effects and repair steps (`daemon`, `repair`).
//! Start reading at `run.rs`; the laws stand in `judge.rs`.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "a world looks at some of what passes through it, and lets the rest pass"
)]

mod branches;
mod checkpoint;
mod corpus;
mod daemon;
mod deeds;
mod dice;
mod ec2;
mod host;
mod iam;
mod judge;
mod kubelet;
mod plan;
mod planted;
mod plugin;
mod repair;
mod run;
mod shrink;
mod trace;
pub mod translate;
mod world;

pub use config_iam::Scope;
pub use corpus::{CORPUS, read_corpus};
pub use iam::{Asked, Refusal};
pub use judge::{Law, Violation};
pub use plan::{Death, Deed, Mode, Plan, Setup, Step, Weather};
pub use planted::Planted;
pub use run::{Outcome, Watching, run};
pub use shrink::shrink;

/// Prints a line of a trace that somebody watches live.
#[expect(clippy::print_stdout, reason = "a trace that is asked for goes to standard output")]
fn say(line: &str) {
    println!("{line}");
}
