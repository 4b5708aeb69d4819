//! The server's side of a socket.
//!
//! [`listen`] takes the socket over, [`serve`] answers on it. Only uid 0 and the server's own uid are answered;
//! the socket's mode keeps others out as well.

mod health;
mod listen;

pub use health::{Health, HealthName};
pub use listen::{Incoming, ListenError, listen};

use listen::Peer;
use nix::unistd::Uid;
use std::{convert::Infallible, future::Future};
use tonic::{
    Request, Status, body::Body, server::NamedService, service::InterceptorLayer, transport::Server,
};
use tower_service::Service;

/// The number of requests that may wait at once; one more is refused. A node has 110 pods, at most 737.
pub const MAX_REQUESTS: usize = 1024;

/// The number of open connections; one more waits in the socket's queue.
pub const MAX_CONNECTIONS: usize = 1024;

/// The number of requests under way on one connection; the plugin has one.
const MAX_STREAMS: u32 = 64;

/// The server has stopped although it was not asked to.
#[derive(Debug, thiserror::Error)]
#[error("cannot serve the socket")]
pub struct ServeError(#[source] tonic::transport::Error);

/// Answers for one service, and for the health protocol, until `stop` completes and every connection is closed.
///
/// # Errors
/// When HTTP/2 itself cannot continue; a broken connection ends only itself.
pub async fn serve<S>(
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

/// Lets a request pass if the process behind the connection runs as root or as the server's user.
fn only_own(request: Request<()>, own: u32) -> Result<Request<()>, Status> {
    match request.extensions().get::<Peer>().and_then(|peer| peer.uid) {
        Some(uid) if uid == 0 || uid == own => Ok(request),
        Some(uid) => Err(Status::permission_denied(format!("uid {uid} is not answered"))),
        None => Err(Status::permission_denied("the caller's uid is not known")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(uid: Option<u32>) -> bool {
        let mut request = Request::new(());
        request.extensions_mut().insert(Peer { uid });
        only_own(request, 1000).is_ok()
    }

    #[test]
    fn root_and_the_own_user_are_answered_and_others_are_not() {
        assert!(answered(Some(0)) && answered(Some(1000)));
        assert!(!answered(Some(1001)) && !answered(Some(u32::MAX)) && !answered(None));
    }
}
