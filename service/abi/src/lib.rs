//! Services in the maps of the eBPF programs.
//!
//! [`Target`] is the state that is wanted, [`Held`] the content of the maps. [`plan`] returns the writes from one to the
//! other in an order in which each packet finds one of both states. The layouts are those of `datapath/bpf/service.h`.

mod bytes;
mod held;
mod plan;
mod tables;
mod target;
mod write;

#[cfg(test)]
mod tests;

pub use bytes::{BackendRow, FrontendKey, FrontendRow, Word};
pub use held::{Held, Limits};
pub use plan::{Full, plan};
pub use tables::{TableSize, TableSlot};
pub use target::{Choice, Frontend, Place, Target};
pub use write::Write;
