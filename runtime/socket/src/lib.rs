//! gRPC over a unix socket, for every protocol between processes of a node.
//!
//! [`dial`] opens an HTTP/2 connection without tonic's channel; outside of a tokio runtime its calls block. The feature
//! `server` adds [`server::listen`] and [`server::serve`], which answer root and the process's own user only, and
//! [`probe`] for gRPC's health protocol. This crate contains no service and no TLS. The tests of the services cover it:
//! `ipamd/rpc/tests`.

mod connection;
mod error;
mod http2;
#[cfg(feature = "server")]
mod probe;
#[cfg(feature = "server")]
pub mod server;
mod stream;
mod version;

pub use connection::{
    Connection, before, block_on, block_on_while, dial, origin, pause, until, within,
};
pub use error::DialError;
pub use http2::Http2Error;
#[cfg(feature = "server")]
pub use probe::{ProbeError, probe};
pub use version::{NoCommonVersion, Versions};

/// A longer message is refused before it is decoded. The longest messages list all attachments of a node with
/// their addresses: some 150 bytes each.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;
