//! The daemon's API on its unix socket: `ferrule-cni` calls, `ferrule-ipamd` answers.
//!
//! Both ends check messages and convert them to the types of `config-model`, so neither side handles text that may be
//! no address. This crate makes no decision about addresses. It opens the given unix socket only, without TLS.
//!
//! Start with [`Client`], the only part that the plugin links. The feature `server` adds [`server::serve`]. The tests
//! in `tests/` run both over a real socket.

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
    Assignment, Branch, Collect, Collected, Confirm, Enforcing, Malformed, Pod, PodAddress,
    PoolStatus, Reason, Refusal, Release, ReleaseCause, Released, Reservation, Reserve,
    ReserveOutcome,
};
pub use runtime_socket::{MAX_MESSAGE_BYTES, NoCommonVersion, Versions};
pub use trace::TraceParent;
pub use version::{SUPPORTED, negotiate};
