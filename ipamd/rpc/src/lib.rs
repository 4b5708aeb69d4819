//! The daemon's API over its unix socket: `ferrule-cni` asks, `ferrule-ipamd` answers.
//!
//! Messages are checked and turned into the words of `config-model` at both ends, so neither side
//! handles text that might not be an address. This crate decides nothing about addresses, opens no
//! connection but the unix socket it is given, and knows no TLS.
//!
//! Start with [`Client`], which is all the plugin links; the feature `server` adds
//! [`server::listen`] and [`server::serve`]. Tests run both over a real socket: `tests/`.

mod client;
mod error;
mod message;
mod version;
pub mod wire;

#[cfg(feature = "server")]
pub mod server;

pub use client::Client;
#[cfg(feature = "server")]
pub use client::probe;
pub use error::RpcError;
pub use message::{
    Branch, Confirm, Enforcing, Held, Malformed, Pod, PodAddress, Reason, Refusal, Release,
    ReleaseCause, Released, Reservation, Reserve, ReserveOutcome,
};
pub use version::{NoCommonVersion, SPOKEN, Versions, negotiate};

/// No message of this protocol comes near this many bytes; a longer one is refused unread.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024;
