//! One HTTP/2 connection over a unix socket, with retries until a deadline.

use crate::DialError;
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
/// The longest pause between two attempts: the delay until a server that has just started is found.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// Sends requests over one connection. A task drives it until the last handle is dropped.
#[derive(Clone, Debug)]
pub struct Connection {
    sender: http2::SendRequest<Body>,
}

/// HTTP requires a host. A unix socket has none, so this one is never resolved.
pub fn origin() -> Uri {
    Uri::from_static("http://ferrule")
}

/// A request with the time left as its timeout, so that the server stops working for a caller that has gone.
pub fn within<T>(deadline: Instant, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    request
}

/// Connects; tries again while the socket is missing or refuses, until `deadline`.
///
/// At least one attempt is made, however little time is left.
///
/// # Errors
/// The last attempt's error at the deadline; immediately if waiting does not help.
pub async fn dial(socket: &Path, deadline: Instant) -> Result<Connection, DialError> {
    let mut pause = FIRST_PAUSE;
    loop {
        let error = match timeout_at(deadline.into(), attempt(socket)).await {
            Ok(Ok(connection)) => return Ok(connection),
            Ok(Err(error)) => error,
            Err(_) => return Err(DialError::TimedOut { socket: socket.to_owned() }),
        };
        let may_pass = matches!(error, DialError::Missing { .. } | DialError::Refused { .. });
        let left = deadline.saturating_duration_since(Instant::now());
        if !may_pass || left.is_zero() {
            return Err(error);
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

async fn attempt(socket: &Path) -> Result<Connection, DialError> {
    let stream = UnixStream::connect(socket).await.map_err(|e| judge(socket, e))?;
    let (sender, driver) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        // The server accepted and exited before its first frame.
        .map_err(|e| DialError::Refused {
            socket: socket.to_owned(),
            cause: io::Error::other(e),
        })?;
    tokio::spawn(async move {
        // If the connection breaks, the calls on it return the error.
        let _ = driver.await;
    });
    Ok(Connection { sender })
}

fn judge(socket: &Path, cause: io::Error) -> DialError {
    let (socket, kind) = (socket.to_owned(), cause.kind());
    if kind == ErrorKind::NotFound {
        DialError::Missing { socket }
    } else if matches!(
        kind,
        ErrorKind::ConnectionRefused | ErrorKind::ConnectionReset | ErrorKind::WouldBlock
    ) {
        // ConnectionReset: the server exited while this connection was in its queue. WouldBlock: the queue is full.
        DialError::Refused { socket, cause }
    } else if kind == ErrorKind::PermissionDenied {
        DialError::PermissionDenied { socket, cause }
    } else {
        DialError::Other { socket, cause }
    }
}

impl tower_service::Service<Request<Body>> for Connection {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        // If the connection is closed by now, the call itself returns the error with its cause.
        self.sender.poll_ready(cx).map(|_| Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.sender.send_request(request))
    }
}
