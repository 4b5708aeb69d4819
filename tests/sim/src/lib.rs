//! A simulation of years of a node's life against the real core, in minutes.
//!
//! One seeded clock and one queue drive the real `ipamd-core` and `routing-plan`, the lab's pure EC2 and a fake
//! kernel. There is no thread, no sleep and no wall clock: the same seed yields the same life. A [`Plan`] fixes all
//! incidents before the run, so that a life that breaks a [`Law`] can be replayed with parts left out ([`shrink`]).
//!
//! The pure decisions around the core come from `ipamd-node`, the table of EC2's error codes from `ipamd-core`. The
//! simulation repeats only the order of the daemon's effects and repair steps (`daemon`, `repair`). Start reading at
//! `run.rs`; the laws are in `judge.rs`.

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the simulation handles some variants and ignores the foreign_call"
)]

mod branches;
mod checkpoint;
mod corpus;
mod daemon;
mod ec2;
mod host;
mod iam;
mod incidents;
mod judge;
mod kubelet;
mod plan;
mod planted;
mod plugin;
mod random;
mod repair;
mod run;
mod shrink;
mod trace;
pub mod translate;
mod world;

pub use config_iam::Scope;
pub use corpus::{CORPUS, read_corpus};
pub use iam::{RecordedCalls, Refusal};
pub use judge::{Law, Violation};
pub use plan::{Death, Incident, Mode, Plan, Setup, Step, Weather};
pub use planted::Planted;
pub use run::{Outcome, RunOptions, run};
pub use shrink::shrink;

/// Prints a line of a live trace.
#[expect(clippy::print_stdout, reason = "a trace that is asked for goes to standard output")]
fn print_line(line: &str) {
    println!("{line}");
}
