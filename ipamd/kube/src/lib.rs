//! The connection to Kubernetes: facts for the pool, and events, conditions and annotations from it.
//!
//! [`start`] returns at once and never fails. The API server may be down, the token may lack permissions, and a
//! CRD may be missing. Each failure is retried, does not stop the other tasks, and appears as a [`Report`] and in
//! [`Handle::concern_states`]. Only objects of this node are watched, and only the needed fields are kept: a few
//! hundred bytes per pod.
//!
//! The adapter makes no decision about addresses. [`ClusterFact`] carries facts to the pool, and the methods of
//! [`Handle`] carry requests to Kubernetes. Start with [`Options`] and [`Handle`]; `wire` has the trimmed
//! objects, and each watch and each write has a module. Tests run against a real API server.

mod ask;
mod branch;
mod clock;
mod cni_node;
mod condition;
mod election;
mod eni_config;
mod event_queue;
mod events;
mod fault;
mod handle;
mod node;
mod options;
mod pod_ips;
mod pods;
mod replicas;
mod report;
mod request;
mod services;
mod start;
mod status_reporter;
mod taint;
mod watch;
mod wire;

pub use ask::{EventKind, Needs, PodEvent, PoolHealth};
pub use handle::Handle;
pub use ipamd_core::{BranchEni, ClusterFact, EniConfig};
pub use options::{Election, EniConfigKeys, LeasePace, Options, Replicas};
pub use report::{Concern, ConcernState, ConcernStates, Report, ReportLevel};
pub use services::{ServicesKind, ServicesRead};
pub use start::start;
