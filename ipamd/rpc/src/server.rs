//! The daemon's side of the socket: [`serve`] answers on a socket that [`runtime_socket::server::listen`] has taken
//! over.

mod service;

pub use service::{CallFailed, Ipam};

use crate::wire::ipam_server::IpamServer;
use runtime_socket::{
    MAX_MESSAGE_BYTES,
    server::{self, Health, Incoming, ServeError},
};
use service::Endpoint;
use std::{future::Future, sync::Arc};

/// Answers on the socket until `stop` completes and every connection is closed.
///
/// # Errors
/// When HTTP/2 itself cannot continue; a broken connection ends only itself.
pub async fn serve<I: Ipam>(
    incoming: Incoming,
    ipam: Arc<I>,
    health: &Health,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let ipam = IpamServer::new(Endpoint::new(ipam))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    server::serve(incoming, ipam, health, stop).await
}
