//! ferrule-ipamd: the node's ENIs and addresses.
//!
//! One task owns the core (`event_loop.rs`); requests, cloud calls, repair passes and those who
//! only look send it messages. What it decides is durable before it is told (`checkpoint.rs`), and
//! what the kernel should look like is compared with what it does look like again and again
//! (`repair.rs`). The daemon decides nothing about addresses itself, never detaches anything when
//! it ends, and does not end because EC2, the metadata service or a port is out of reach.
//!
//! Cloud and kernel are seams, so `tests/` drive the whole daemon over a real socket with neither. Start reading at [`run`].

pub mod checkpoint;
pub mod clock;
mod cluster;
pub mod command;
mod egress;
mod event_loop;
mod health;
mod http;
mod inbox;
pub mod install;
pub mod logging;
mod metrics;
mod nat;
mod policy;
mod repair;
mod run;
mod service;
mod sources;
mod start;
pub mod tombstones;
mod troubles;
mod view;

pub use cluster::{Access, options as kubernetes};
pub use metrics::Metrics;
pub use repair::{ProcSys, Trigger, watch_kernel};
pub use run::{Daemon, run};
pub use start::{Connect, Connecting};
