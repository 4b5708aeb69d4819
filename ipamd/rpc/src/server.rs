//! The daemon's side of the socket.
//!
//! [`listen`] takes the socket over, [`serve`] answers on it. Only uid 0 and the daemon's own uid
//! are answered; the socket's mode keeps others out as well.

mod health;
mod listen;
mod service;

pub use health::{Health, HealthName};
pub use listen::{Incoming, ListenError, listen};
pub use service::{Ipam, Unable};

use crate::{MAX_MESSAGE_BYTES, wire::ipam_server::IpamServer};
use listen::Peer;
use nix::unistd::Uid;
use service::Endpoint;
use std::{convert::Infallible, future::Future, sync::Arc};
use tonic::{
    Request, Status, body::Body, server::NamedService, service::InterceptorLayer, transport::Server,
};
use tower_service::Service;

/// How many reservations, and beside them how many other requests, the daemon works on at once; one
/// more is told to come again. A node has 110 pods, at the utmost 737.
pub const MAX_REQUESTS: usize = 1024;

/// How many connections are open at once; one more waits in the socket's queue.
pub const MAX_CONNECTIONS: usize = 1024;

/// How many requests one connection may have under way; the plugin has one.
const MAX_STREAMS: u32 = 64;

/// The server has stopped for another reason than being asked to.
#[derive(Debug, thiserror::Error)]
#[error("serve the daemon's socket")]
pub struct ServeError(#[source] tonic::transport::Error);

/// Answers on the socket until `stop` completes and every connection has closed.
///
/// # Errors
/// When HTTP/2 itself cannot go on; a broken connection ends only itself.
pub async fn serve<I: Ipam>(
    incoming: Incoming,
    ipam: Arc<I>,
    health: &Health,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let ipam = IpamServer::new(Endpoint::new(ipam))
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    serve_only(incoming, ipam, health, stop).await
}

/// Answers for one service, and tells of the daemon's health.
pub(crate) async fn serve_only<S>(
    incoming: Incoming,
    service: S,
    health: &Health,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>, Error = Infallible>
        + NamedService
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send + 'static,
{
    let own = Uid::effective().as_raw();
    Server::builder()
        .max_concurrent_streams(MAX_STREAMS)
        .layer(InterceptorLayer::new(move |request| only_own(request, own)))
        .add_service(service)
        .add_service(health.service())
        .serve_with_incoming_shutdown(incoming, stop)
        .await
        .map_err(ServeError)
}

/// Lets a request pass if the process behind the connection is root's or the daemon's user's.
fn only_own(request: Request<()>, own: u32) -> Result<Request<()>, Status> {
    match request.extensions().get::<Peer>().and_then(|peer| peer.uid) {
        Some(uid) if uid == 0 || uid == own => Ok(request),
        Some(uid) => Err(Status::permission_denied(format!("uid {uid} is not answered"))),
        None => Err(Status::permission_denied("the kernel did not say who asks")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked_by(uid: Option<u32>) -> bool {
        let mut request = Request::new(());
        request.extensions_mut().insert(Peer { uid });
        only_own(request, 1000).is_ok()
    }

    #[test]
    fn root_and_the_own_user_are_answered_and_nobody_else() {
        assert!(asked_by(Some(0)) && asked_by(Some(1000)));
        assert!(!asked_by(Some(1001)) && !asked_by(Some(u32::MAX)) && !asked_by(None));
    }
}
