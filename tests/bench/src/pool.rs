//! The pool compared with amazon-vpc-cni's on the same pod traces, in simulated time.
//!
//! Two daemons run in the same arena: the same cloud with the same latencies and buckets, the same kubelet,
//! the same pods ([`Trace`]). Ours is the real `ipamd-core`. The rival is amazon-vpc-cni's algorithm, which
//! tests compare with its documented examples. A meter counts the results from outside ([`Tally`]).
//! [`Comparison`] runs both, and [`Search`] finds the cheapest settings. Everything is a function of one
//! seed; only the times of in-memory allocation are real time.
//!
//! The translation between the core's calls and EC2's is the simulation's (`tests_sim::translate`). The table
//! of EC2's error codes is `ipamd_core::Ec2ErrorResponse`.

mod allocation;
mod arena;
mod comparison;
mod meter;
mod ours;
mod report;
mod requests;
mod rival;
mod rng;
mod setting;
mod table;
mod trace;
mod tuning;

pub use allocation::Allocation;
pub use comparison::{Comparison, DaemonKind, call_log, run};
pub use meter::{Calls, Tally};
pub use report::{Plan, allocation, call_logs, figures};
pub use setting::PoolSetting;
pub use table::table;
pub use trace::{Scale, Trace};
pub use tuning::{Bound, Search, SearchEffort, Tuned, cheapest};
