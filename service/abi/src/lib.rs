//! Services in the maps of the eBPF programs.
//!
//! A [`Mirror`] has the content of the maps, and plans the writes to the next state. Between two writes each packet finds the
//! earlier or the later choice of its frontend, whole. The layouts are those of `datapath/bpf/service.h`.

mod backends;
mod bytes;
mod free;
mod held;
mod mirror;
mod plan;
mod tables;

#[cfg(test)]
mod tests;

pub use backends::Backends;
pub use bytes::{BackendRow, FrontendKey, FrontendRow, SocketKey, SourceKey, SourceRange, Word};
pub use held::{Held, Limits, Row};
pub use mirror::{MapUse, Mirror};
pub use plan::{Plan, Refused, Write};
pub use tables::{TableSize, TableSlot};
