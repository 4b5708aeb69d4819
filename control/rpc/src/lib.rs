//! The stream between the controller's replicas and the nodes.
//!
//! A node opens one [`Follow`] stream to one replica. It reports its content, receives the rest, and acknowledges
//! each generation. Messages are those of [`control_wire`]. The server (feature `server`)
//! drives the hub of `control-hub`; it sends parts in the encoding that all nodes share.

#[cfg(feature = "server")]
mod authentication;
#[cfg(feature = "server")]
mod caller_limits;
mod codec;
mod connection;
mod follow;
#[cfg(feature = "server")]
mod gatekeeper;
#[cfg(feature = "server")]
mod hello;
mod replica_client;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod session;
#[cfg(feature = "server")]
mod shared_hub;
mod tls;
#[cfg(feature = "server")]
mod tls_listener;

/// Made by the build script.
#[allow(
    missing_docs,
    clippy::all,
    clippy::pedantic,
    clippy::missing_docs_in_private_items,
    clippy::allow_attributes_without_reason,
    reason = "what is generated is not ours to lint"
)]
pub mod generated {
    include!(concat!(env!("OUT_DIR"), "/ferrule.node.v1.Distribution.rs"));
}

#[cfg(feature = "server")]
pub use authentication::Authenticated;
pub use codec::{MessageCodec, Reply};
pub use connection::FollowError;
pub use follow::{Follow, StreamEvent};
#[cfg(feature = "server")]
pub use gatekeeper::{Caller, Gatekeeper};
pub use replica_client::ReplicaClient;
#[cfg(feature = "server")]
pub use runtime_limiter::Bounds;
#[cfg(feature = "server")]
pub use shared_hub::SharedHub;
pub use tls::{Trust, TrustError};
#[cfg(feature = "server")]
pub use tls_listener::{Certificates, SecuredStream, listen, listen_within};
