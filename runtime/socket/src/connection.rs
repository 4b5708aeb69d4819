//! A client's connections over a unix socket, with retries until a deadline.
//!
//! Within a tokio runtime a call is asynchronous. Outside of one it blocks the thread ([`block_on`]). The plugin, a
//! process per call, therefore needs no runtime, no poller and no wake-ups.

use crate::{
    DialError,
    http2::{Answer, Http2Error, Protocol},
    stream::Stream,
};
use http::{Request, Response, Uri, request::Parts};
use http_body_util::{BodyExt as _, Full};
use std::{
    fmt,
    future::{Future, poll_fn, ready},
    io::{self, ErrorKind},
    path::Path,
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard},
    task::{Context, Poll, Waker},
    thread,
    time::{Duration, Instant},
};
use tokio::{runtime::Handle, time::timeout_at};
use tonic::body::Body;

/// The first pause between two attempts; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest pause between two attempts: the delay until a server that has just started is found.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
/// Bytes of one read: more than an answer about one pod.
const CHUNK: usize = 4096;
/// Delay of an acknowledgment, so that it is sent with other data. An answer mostly arrives first; a separate write
/// would wake the server while it works on the answer.
const DEFERRED: Duration = Duration::from_millis(50);

/// Sends requests, each over a connection of its own while it is under way. A connection that is free again serves
/// the next request.
#[derive(Clone, Debug)]
pub struct Connection {
    socket: Arc<Path>,
    free: Arc<Mutex<Free>>,
}

/// The connection that no call uses.
#[derive(Debug)]
enum Free {
    Open(Box<Wire>),
    /// A call uses it, or the server has ended it in order: the next call opens another.
    None,
    /// The connection broke: every later call fails, and the caller decides whether to dial again.
    Broken,
}

/// An open connection.
struct Wire {
    stream: Stream,
    protocol: Protocol,
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wire").finish_non_exhaustive()
    }
}

/// When the caller gives up: an extension of its request.
#[derive(Clone, Copy, Debug)]
struct Deadline(Instant);

/// HTTP requires a host. A unix socket has none, so this one is never resolved.
pub fn origin() -> Uri {
    Uri::from_static("http://ferrule")
}

/// A request with the time left as its timeout, so that the server stops working for a caller that has gone.
pub fn within<T>(deadline: Instant, message: T) -> tonic::Request<T> {
    let mut request = until(deadline, message);
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    request
}

/// Returns a request that the client abandons at the deadline. The server does not receive the deadline.
pub fn until<T>(deadline: Instant, message: T) -> tonic::Request<T> {
    let mut request = tonic::Request::new(message);
    request.extensions_mut().insert(Deadline(deadline));
    request
}

/// Runs calls outside of a tokio runtime: they block the thread instead of waiting.
pub fn block_on<T>(call: impl Future<Output = T>) -> T {
    block_on_while(call, || ()).0
}

/// Like [`block_on`], and does some work of the caller between the request and the wait for the answer. A call that
/// fails before does the work as well.
pub fn block_on_while<T, W>(call: impl Future<Output = T>, work: impl FnOnce() -> W) -> (T, W) {
    let mut call = pin!(call);
    let mut context = Context::from_waker(Waker::noop());
    let mut progress = call.as_mut().poll(&mut context);
    let done = work();
    loop {
        match progress {
            Poll::Ready(outcome) => return (outcome, done),
            // A blocking call has nothing to wait for.
            Poll::Pending => progress = call.as_mut().poll(&mut context),
        }
    }
}

/// The outcome of a call; `None` if the deadline passed first.
pub async fn before<T, E>(
    deadline: Instant,
    call: impl Future<Output = Result<T, E>>,
) -> Option<Result<T, E>> {
    if is_blocking() {
        let outcome = call.await;
        // The socket itself gives up at the deadline.
        return (outcome.is_ok() || Instant::now() < deadline).then_some(outcome);
    }
    timeout_at(deadline.into(), call).await.ok()
}

/// Waits.
pub async fn pause(duration: Duration) {
    if is_blocking() {
        thread::sleep(duration);
    } else {
        tokio::time::sleep(duration).await;
    }
}

fn is_blocking() -> bool {
    Handle::try_current().is_err()
}

/// Connects; tries again while the socket is missing or refuses, until `deadline`.
///
/// At least one attempt is made, however little time is left.
///
/// # Errors
/// The last attempt's error at the deadline; immediately if waiting does not help.
pub async fn dial(socket: &Path, deadline: Instant) -> Result<Connection, DialError> {
    let mut rest = FIRST_PAUSE;
    loop {
        let attempt = attempt(socket);
        // A blocking connect does not wait, so its error is known even after the deadline.
        let outcome = match is_blocking() {
            true => Some(attempt.await),
            false => timeout_at(deadline.into(), attempt).await.ok(),
        };
        let error = match outcome {
            Some(Ok(connection)) => return Ok(connection),
            Some(Err(error)) => error,
            None => return Err(DialError::TimedOut { socket: socket.to_owned() }),
        };
        let may_pass = matches!(error, DialError::Missing { .. } | DialError::Refused { .. });
        let left = deadline.saturating_duration_since(Instant::now());
        if !may_pass || left.is_zero() {
            return Err(error);
        }
        pause(rest.min(left)).await;
        rest = (rest * 2).min(LONGEST_PAUSE);
    }
}

async fn attempt(socket: &Path) -> Result<Connection, DialError> {
    let wire = Wire::open(socket).await.map_err(|cause| judge(socket, cause))?;
    Ok(Connection { socket: socket.into(), free: Arc::new(Mutex::new(Free::Open(Box::new(wire)))) })
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

impl Connection {
    fn free(&self) -> MutexGuard<'_, Free> {
        runtime_lock::lock(&self.free)
    }

    async fn exchange(self, request: Request<Body>) -> Result<Response<Body>, Http2Error> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let free = std::mem::replace(&mut *self.free(), Free::None);
        let mut wire = match free {
            Free::Open(wire) => wire,
            Free::None => Box::new(Wire::open(&self.socket).await?),
            Free::Broken => {
                *self.free() = Free::Broken;
                return Err(Http2Error::Closed);
            }
        };
        let answer = wire.exchange(&head, body.into()).await;
        let (response, data, trailers) = answer.inspect_err(|_| *self.free() = Free::Broken)?;
        if wire.protocol.is_reusable() {
            *self.free() = Free::Open(wire);
        }
        let body = Full::new(data.into()).with_trailers(ready(Some(Ok(trailers))));
        Ok(response.map(|()| Body::new(body)))
    }
}

impl Wire {
    async fn open(socket: &Path) -> io::Result<Self> {
        Ok(Self { stream: Stream::connect(socket).await?, protocol: Protocol::new() })
    }

    async fn exchange(&mut self, head: &Parts, body: Vec<u8>) -> Result<Answer, Http2Error> {
        let deadline = head.extensions.get().map(|Deadline(deadline)| *deadline);
        self.protocol.start(head, body);
        // On the heap: the futures around this one are moved, and an array would be moved with them.
        let mut chunk = vec![0; CHUNK];
        let mut is_first = true;
        loop {
            let output = self.protocol.take_output();
            self.stream.write_all(&output, deadline).await?;
            if std::mem::take(&mut is_first) && is_blocking() {
                once_pending().await;
            }
            let patience = self.protocol.has_deferred().then_some(DEFERRED);
            let Some(length) = self.stream.read(&mut chunk, deadline, patience).await? else {
                let deferred = self.protocol.take_deferred();
                self.stream.write_all(&deferred, deadline).await?;
                continue;
            };
            if length == 0 {
                return Err(Http2Error::Closed);
            }
            if let Some(answer) = self.protocol.receive(&chunk[..length])? {
                return Ok(answer);
            }
        }
    }
}

/// Returns to [`block_on_while`] once: the request is with the server, and the caller can work meanwhile.
async fn once_pending() {
    let mut is_pending = true;
    poll_fn(|context| match std::mem::take(&mut is_pending) {
        true => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        false => Poll::Ready(()),
    })
    .await;
}

impl tower_service::Service<Request<Body>> for Connection {
    type Response = Response<Body>;
    type Error = Http2Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().exchange(request))
    }
}
