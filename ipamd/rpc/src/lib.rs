//! The daemon's API over its unix socket: `ferrule-cni` asks, `ferrule-ipamd` answers.
//!
//! Messages are checked and turned into the words of `config-model` at both ends, so neither side
//! handles text that might not be an address. This crate decides nothing about addresses, opens no
//! connection but the unix socket it is given, and knows no TLS.
//!
//! Start with [`Client`], which is all the plugin links; the feature `server` adds
//! [`server::listen`] and [`server::serve`]. Tests run both over a real socket: `tests/`.

pub mod agent;
mod client;
mod error;
mod message;
pub mod policy;
mod trace;
mod version;
pub mod wire;

#[cfg(feature = "server")]
pub mod server;

pub use client::Client;
#[cfg(feature = "server")]
pub use client::probe;
pub use error::RpcError;
pub use message::{
    Branch, Collect, Collected, Confirm, Enforcing, Held, Malformed, Pod, PodAddress, PoolStatus,
    Reason, Refusal, Release, ReleaseCause, Released, Reservation, Reserve, ReserveOutcome,
};
pub use trace::TraceParent;
pub use version::{NoCommonVersion, SPOKEN, Versions, negotiate};

/// A longer message is refused unread. The longest are the lists of all attachments of a node, with
/// their addresses: some 150 bytes each.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;
