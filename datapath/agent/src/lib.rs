//! `ferrule-agent`: policy on the node.
//!
//! One task owns the pure [`datapath_node::Node`] and carries out what it wants ([`run`]); beside it one follows a replica
//! of the controller, one hands states to the [`Backend`], one writes to the disk, and one answers on the socket.

mod backend;
mod clock;
pub mod command;
mod contact;
mod desks;
mod endpoints;
mod event;
mod follow;
mod http;
mod metrics;
mod run;
mod socket;
mod store;

pub use backend::{Backend, NoBackend};
pub use endpoints::Kubernetes;
pub use run::{Options, run};
