//! ferrule-ipamd: the node's ENIs and addresses.
//!
//! One task owns the core (`event_loop.rs`). Requests, cloud calls, repair passes and readers send it messages
//! (`messages.rs`). Its decisions are durable before they leave the daemon (`checkpoint.rs`). The repair pass
//! compares the kernel with the desired state again and again (`repair.rs`).
//!
//! The daemon makes no decision about addresses and detaches no ENI when it exits. It keeps running if EC2, the
//! metadata service or a port is unavailable.
//!
//! Cloud and kernel are seams, so `tests/` run the whole daemon over a real socket without either. Start reading
//! at [`run`].

pub mod checkpoint;
pub mod clock;
mod cluster;
pub mod command;
mod conntrack;
mod egress;
mod event_loop;
mod health;
mod http;
mod inbox;
pub mod install;
pub mod logging;
mod messages;
mod metrics;
mod nat;
mod pass_report;
mod policy;
mod repair;
mod repeated_message;
mod run;
mod service;
mod services;
mod source_check;
mod sources;
mod start;
pub mod tombstones;
mod trigger;
mod troubles;
mod view;

pub use cluster::{Access, options as kubernetes};
pub use metrics::Metrics;
pub use repair::{ProcSys, watch_kernel};
pub use run::{Daemon, run};
pub use start::{Connect, Connecting};
pub use trigger::Trigger;
