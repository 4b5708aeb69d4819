//! Observes the kernel and carries out routing plans.
//!
//! Decides nothing: what to do comes from `routing-plan`, what an error number means stands there
//! too. Two ways in, over one translation (`encode.rs`, `decode.rs`):
//!
//! - [`Socket`], blocking, for the plugin: all of a pod's messages in one send;
//! - [`Kernel`] and its one real implementation [`LinuxKernel`], for the daemon (feature
//!   `daemon`), with [`Monitor`] that tells when to look again.
//!
//! What the kernel replies is read in [`reply`], which `tests/fuzz` feeds with anything.
//!
//! Tested against a real kernel in `tests/netns/tests/kernel.rs`, by the suite that the fake
//! kernel passes as well.

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

pub use filters::{BpfFilter, Side};
#[cfg(feature = "daemon")]
pub use kernel::{Kernel, KernelError, LinuxKernel};
pub use lists::With;
#[cfg(feature = "daemon")]
pub use monitor::Monitor;
pub use netns::{Netns, NetnsError, write_sysctls};
pub use socket::{Socket, SocketError};
pub use tables::{delete_nft_table, has_nft_table};
