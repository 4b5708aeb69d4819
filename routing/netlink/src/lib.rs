//! Observes the kernel and applies routing plans.
//!
//! `routing-plan` decides what to do and what an error number means. Two clients share one translation
//! (`encode.rs`, `decode.rs`):
//!
//! - [`Socket`], blocking, for the plugin: it sends all messages of a pod at once. It reads lists for the daemon too;
//! - [`Kernel`] with its implementation [`LinuxKernel`], for the daemon (feature `daemon`). [`Monitor`] reports when to
//!   observe again.
//!
//! [`reply`] parses the kernel's replies; `tests/fuzz` feeds it arbitrary bytes.
//!
//! `tests/netns/tests/kernel.rs` runs the suite of the fake kernel against a real kernel.

mod decode;
mod encode;
mod filters;
#[cfg(feature = "daemon")]
mod kernel;
mod lists;
#[cfg(feature = "daemon")]
mod monitor;
mod netns;
pub mod reply;
mod socket;
mod tables;

pub use filters::{BpfFilter, Filters, OtherFilters, Side};
#[cfg(feature = "daemon")]
pub use kernel::{Kernel, KernelError, LinuxKernel};
pub use lists::With;
#[cfg(feature = "daemon")]
pub use monitor::Monitor;
pub use netns::{Netns, NetnsError, write_sysctls};
pub use socket::{Socket, SocketError};
pub use tables::{TableFamily, delete_nft_table, has_nft_table};
