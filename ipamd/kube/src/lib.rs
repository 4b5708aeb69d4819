//! Kubernetes in the pool's words: what it tells, and what it is told.
//!
//! [`start`] returns at once and never fails: the API server may be down, the token may have too few
//! rights, a CRD may be missing. Whatever does not work is tried again by itself, hinders nothing
//! else, and is told by a [`Report`] and in [`Handle::standings`]. Only what concerns this node is
//! watched, and of each object only what is needed is kept: a few hundred bytes a pod.
//!
//! The adapter decides nothing about addresses. What the pool should know comes out as
//! [`ClusterFact`]; what Kubernetes should know goes in through the [`Handle`], whose methods wait for
//! nothing. Start with [`Options`] and [`Handle`]; `wire` has the trimmed objects, one module
//! each the watches and the writes. Tests run against a real API server.

mod ask;
mod branch;
mod clock;
mod cni_node;
mod condition;
mod election;
mod eni_config;
mod events;
mod fault;
mod handle;
mod node;
mod options;
mod pod_ips;
mod pods;
mod report;
mod request;
mod start;
mod taint;
mod teller;
mod watch;
mod wire;

pub use ask::{EventKind, Needs, PodEvent, PoolHealth};
pub use handle::Handle;
pub use ipamd_core::{BranchEni, ClusterFact, EniConfig};
pub use options::{Election, EniConfigKeys, LeasePace, Options};
pub use report::{Concern, Loudness, Report, Standing, Standings};
pub use start::start;
