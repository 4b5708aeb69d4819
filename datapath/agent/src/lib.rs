//! `ferrule-agent`: policy on the node.
//!
//! One task owns the pure [`datapath_node::Node`] and carries out its effects ([`run`]). Other tasks follow a replica
//! of the controller, drive the [`Backend`](datapath_backend::Backend), write to the disk, and answer on the socket.

mod clock;
pub mod command;
mod credentials;
mod event;
mod exhaustion;
mod flows;
mod follow;
mod health_checks;
mod http;
mod links;
mod metrics;
mod own_services;
mod ready_replicas;
mod replica_clients;
mod replica_file;
mod reserved_ports;
mod retire;
mod run;
pub mod services;
mod socket;
mod store;

pub use retire::retire;
pub use run::{Options, run};
