//! One HTTP/2 connection over the unix socket, and the patience to get it.

use crate::RpcError;
use http::{Request, Response, Uri};
use hyper::{body::Incoming, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use std::{
    future::Future,
    io::{self, ErrorKind},
    path::Path,
    pin::Pin,
    task::{Context, Poll},
    time::{Duration, Instant},
};
use tokio::{
    net::UnixStream,
    time::{sleep, timeout_at},
};
use tonic::body::Body;

/// The first pause between two attempts; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause: how late a daemon that has just started may be noticed.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Sends requests over one connection, which a task of its own drives until the last handle is
/// dropped.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    sender: http2::SendRequest<Body>,
}

/// HTTP wants a host; a unix socket has none, so this one is never resolved.
pub(crate) fn origin() -> Uri {
    Uri::from_static("http://ferrule-ipamd")
}

/// Connects, trying again while nobody is there, until the deadline.
pub(crate) async fn open(socket: &Path, deadline: Instant) -> Result<Connection, RpcError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match timeout_at(deadline.into(), attempt(socket)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => {
                let socket = socket.to_owned();
                return Err(RpcError::TimedOut { attempt: "connect", socket });
            }
        };
        let may_pass = matches!(error, RpcError::Missing { .. } | RpcError::Refused { .. });
        let left = deadline.saturating_duration_since(Instant::now());
        if !may_pass || left.is_zero() {
            return Err(error);
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn attempt(socket: &Path) -> Result<Connection, RpcError> {
    let stream = UnixStream::connect(socket).await.map_err(|e| judge(socket, e))?;
    let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        // It accepted and ended before it spoke.
        .map_err(|e| RpcError::Refused { socket: socket.to_owned(), cause: io::Error::other(e) })?;
    tokio::spawn(async move {
        // A connection that breaks ends the calls on it, and they say so.
        let _ = driver.await;
    });
    Ok(Connection { sender })
}

fn judge(socket: &Path, cause: io::Error) -> RpcError {
    let (socket, kind) = (socket.to_owned(), cause.kind());
    if kind == ErrorKind::NotFound {
        RpcError::Missing { socket }
    } else if matches!(
        kind,
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::WouldBlock
    ) {
        // ConnectionReset: it ended while we waited in its queue. WouldBlock: the queue is full.
        RpcError::Refused { socket, cause }
    } else if kind == ErrorKind::PermissionDenied {
        RpcError::PermissionDenied { attempt: "connect", socket, said: cause.to_string() }
    } else {
        RpcError::Other { socket, cause: cause.into() }
    }
}

impl tower_service::Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // A connection that has ended meanwhile: the call itself says so, with its cause.
        self.sender.poll_ready(cx).map(|_| Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}
