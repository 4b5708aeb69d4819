//! A small HTTP/1 server for the EC2 and IMDS endpoints.
//!
//! It has the caller's address, can set the TTL of its packets, and can act without answering. axum's handlers
//! cannot do that.

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{convert::Infallible, future::Future, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{net::TcpListener, net::TcpStream, task::JoinSet};

/// A request whose body has been read.
pub(crate) type FullRequest = Request<Bytes>;

/// Outcome of a request.
pub(crate) enum Reply {
    Answer(Response<Full<Bytes>>),
    /// The connection closes without one, as when an answer is lost on its way.
    Lost,
}

/// One face: who is calling decides what the connection may do, then each request is answered.
pub(crate) trait HttpService: Send + Sync + 'static {
    /// Called once for a new connection, before the first byte of it is read.
    fn accepted(&self, stream: &TcpStream, peer: SocketAddr);

    /// Answers one request.
    fn answer(&self, request: FullRequest, peer: SocketAddr) -> impl Future<Output = Reply> + Send;
}

/// Serves until the task is dropped; connections end with it.
pub(crate) async fn serve(listener: TcpListener, face: impl HttpService) -> Infallible {
    let face = Arc::new(face);
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    face.accepted(&stream, peer);
                    connections.spawn(connection(stream, peer, Arc::clone(&face)));
                }
                Err(err) => {
                    tracing::warn!(%err, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next(), if !connections.is_empty() => {}
        }
    }
}

async fn connection(stream: TcpStream, peer: SocketAddr, face: Arc<impl HttpService>) {
    let service = service_fn(|request| {
        let face = Arc::clone(&face);
        async move { answered(request, peer, &*face).await }
    });
    let mut server = http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(Duration::from_mins(2));
    if let Err(err) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%err, %peer, "a connection ended early");
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the answer was lost on purpose")]
struct InjectedLoss;

async fn answered(
    request: Request<Incoming>,
    peer: SocketAddr,
    face: &impl HttpService,
) -> Result<Response<Full<Bytes>>, InjectedLoss> {
    let (parts, body) = request.into_parts();
    let Ok(body) = Limited::new(body, BODY_MAX).collect().await else {
        return Ok(plain(413, "request entity too large"));
    };
    match face.answer(Request::from_parts(parts, body.to_bytes()), peer).await {
        Reply::Answer(response) => Ok(response),
        Reply::Lost => Err(InjectedLoss),
    }
}

/// A text answer.
pub(crate) fn plain(status: u16, text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    typed(status, "text/plain", text)
}

/// An answer of this media type.
pub(crate) fn typed(
    status: u16,
    media: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap_or_default();
    response
        .headers_mut()
        .insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(media));
    response
}

/// No request of ours is larger: 1,000 tags are about 400 kB.
const BODY_MAX: usize = 2 << 20;
