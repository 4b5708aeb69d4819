//! The pool against amazon-vpc-cni's, on the same pod traces, in simulated time.
//!
//! Two daemons stand in the same arena: the same cloud with the same latencies and buckets, the
//! same kubelet, the same pods ([`Trace`]). Ours is the real `ipamd-core`; the rival is
//! amazon-vpc-cni's algorithm, itself held to its documented examples. A meter counts what came of
//! it from outside ([`Tally`]); [`Contest`] holds the two against each other, [`Search`] looks for the
//! cheapest settings. All of it is a function of one seed; only the times of in-memory allocation
//! are read from a clock.
//!
//! The translation between the core's calls and EC2's is the simulation's (`tests_sim::translate`), the table of EC2's
//! error codes is `ipamd_core::Ec2ErrorResponse`.

mod allocation;
mod arena;
mod contest;
mod desk;
mod meter;
mod ours;
mod report;
mod rival;
mod rng;
mod setting;
mod table;
mod trace;
mod tuning;

pub use allocation::Allocation;
pub use contest::{Contest, DaemonKind, run, story};
pub use meter::{Calls, Tally};
pub use report::{Plan, allocation, figures, stories};
pub use setting::PoolSetting;
pub use table::table;
pub use trace::{Scale, Trace};
pub use tuning::{Bound, Search, SearchEffort, Tuned, cheapest};
