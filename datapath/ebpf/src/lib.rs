//! The backend that enforces policy by eBPF programs.
//!
//! [`EbpfBackend`] compiles the desired state, observes the maps and filters of the node, and applies the difference.
//! [`Programs`] loads the programs, which are compiled from `datapath/bpf`, and owns their maps.

mod backend;
mod classes;
mod closing;
mod compare;
mod draining;
mod error;
mod events;
mod existing;
mod fast;
mod grace;
mod grow;
mod kernel;
mod links;
mod logged;
mod lookup;
mod mapped;
mod maps;
mod memory;
mod names;
mod pins;
mod pods;
mod port_users;
mod programs;
mod reasons;
mod retire;
mod services;
mod serving;
mod settings;
mod sockets;
mod starting;
mod sums;
mod tcx;
mod upgrade;
mod wires;
mod written;

pub use backend::EbpfBackend;
pub use error::LoadError;
pub use events::Events;
pub use fast::FastPods;
pub use memory::memory_of_maps;
pub use programs::{Effects, Hook, Programs, SentAs};
pub use retire::{Attachments, tcx_programs};
pub use tcx::Method;
pub use wires::{Wire, Wires};
