//! The daemon's API over its unix socket: `ferrule-cni` calls, `ferrule-ipamd` answers.
//!
//! Messages are checked and converted to the types of `config-model` at both ends, so neither side
//! handles text that might not be an address. This crate decides nothing about addresses, opens no
//! connection but the unix socket it is given, and knows no TLS.
//!
//! Start with [`Client`], which is all the plugin links; the feature `server` adds
//! [`server::serve`]. Tests run both over a real socket: `tests/`.

mod client;
mod enforcer;
mod error;
mod message;
mod trace;
mod version;
pub mod wire;

#[cfg(feature = "server")]
pub mod server;

pub use client::Client;
pub use enforcer::Enforcer;
pub use error::RpcError;
pub use message::{
    Branch, Collect, Collected, Confirm, Enforcing, Held, Malformed, Pod, PodAddress, PoolStatus,
    Reason, Refusal, Release, ReleaseCause, Released, Reservation, Reserve, ReserveOutcome,
};
pub use runtime_socket::{MAX_MESSAGE_BYTES, NoCommonVersion, Versions};
pub use trace::TraceParent;
pub use version::{SPOKEN, negotiate};
