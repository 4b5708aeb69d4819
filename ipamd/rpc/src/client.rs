//! The plugin's side of the socket.

use crate::{
    Assignment, Collect, Collected, Confirm, Enforcer, MAX_MESSAGE_BYTES, Malformed, PoolStatus,
    Release, Released, Reserve, ReserveOutcome, RpcError, SUPPORTED, TraceParent, Versions,
    message::conversion, trace, wire::ipam_client::IpamClient,
};
use config_model::PodKey;
use runtime_socket::{Connection, before, dial, origin};
use std::{
    future::Future,
    path::{Path, PathBuf},
    time::Instant,
};
use tonic::{Code, Request, Response, Status};

/// A connection to the daemon.
///
/// It works on any tokio runtime with I/O and time, also on a current-thread one. The connection makes progress only
/// while a call is awaited. Every call may be repeated, also after an error.
#[derive(Clone, Debug)]
pub struct Client {
    inner: IpamClient<Connection>,
    peer: Peer,
    trace: Option<TraceParent>,
}

/// The daemon's socket and the supported versions.
#[derive(Clone, Debug)]
struct Peer {
    socket: PathBuf,
    versions: Versions,
}

impl Client {
    /// Connects, with retries until `deadline` while the socket is missing or refuses.
    ///
    /// It makes at least one attempt.
    ///
    /// # Errors The last cause at the deadline. A cause that a retry cannot cure returns at once.
    pub async fn connect(socket: &Path, deadline: Instant) -> Result<Self, RpcError> {
        let connection = dial(socket, deadline).await?;
        let inner = IpamClient::with_origin(connection, origin())
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self { inner, peer: Peer::at(socket), trace: None })
    }

    /// Returns the connection with other protocol versions than this build's.
    #[must_use]
    pub fn speaking(self, versions: Versions) -> Self {
        Self { peer: Peer { versions, ..self.peer }, ..self }
    }

    /// Returns the connection with calls that are part of this trace.
    #[must_use]
    pub fn traced(self, trace: Option<TraceParent>) -> Self {
        Self { trace, ..self }
    }

    /// Reserves addresses, and waits for them for at most `request.wait`.
    ///
    /// # Errors
    /// No valid answer arrived by `deadline`. A refusal is an answer.
    pub async fn reserve(
        &self,
        request: Reserve,
        deadline: Instant,
    ) -> Result<ReserveOutcome, RpcError> {
        self.reserve_with_policy(request, deadline).await.map(|(outcome, _)| outcome)
    }

    /// Reserves as [`Self::reserve`] does, and also returns the component that enforces policy on the pod.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub async fn reserve_with_policy(
        &self,
        request: Reserve,
        deadline: Instant,
    ) -> Result<(ReserveOutcome, Option<Enforcer>), RpcError> {
        let mut inner = self.inner.clone();
        let request = self.within(deadline, request.into_wire(self.peer.versions));
        let mut reply = self.peer.answer("reserve", deadline, inner.reserve(request)).await?;
        self.peer.check_version("reserve", reply.version)?;
        let agent = conversion::enforcer(reply.policy_agent.take(), reply.agent.take());
        Ok((valid("reserve", reply.try_into())?, valid("reserve", agent)?))
    }

    /// Confirms that the interface is built. Returns false if the reservation is gone; the caller then removes what it
    /// built.
    ///
    /// # Errors
    /// No valid answer arrived by `deadline`.
    pub async fn confirm(&self, request: Confirm, deadline: Instant) -> Result<bool, RpcError> {
        let mut inner = self.inner.clone();
        let request = self.within(deadline, request.into_wire(self.peer.versions));
        let reply = self.peer.answer("confirm", deadline, inner.confirm(request)).await?;
        self.peer.check_version("confirm", reply.version)?;
        Ok(reply.confirmed)
    }

    /// Releases the addresses and returns them.
    ///
    /// # Errors
    /// No valid answer arrived by `deadline`.
    pub async fn release(&self, request: Release, deadline: Instant) -> Result<Released, RpcError> {
        self.release_with_policy(request, deadline).await.map(|(released, _)| released)
    }

    /// Releases as [`Self::release`] does, and also returns the component that enforced policy on the pod.
    ///
    /// # Errors
    /// As [`Self::release`].
    pub async fn release_with_policy(
        &self,
        request: Release,
        deadline: Instant,
    ) -> Result<(Released, Option<Enforcer>), RpcError> {
        let mut inner = self.inner.clone();
        let request = self.within(deadline, request.into_wire(self.peer.versions));
        let mut reply = self.peer.answer("release", deadline, inner.release(request)).await?;
        self.peer.check_version("release", reply.version)?;
        let agent = conversion::enforcer(reply.policy_agent.take(), reply.agent.take());
        Ok((valid("release", reply.try_into())?, valid("release", agent)?))
    }

    /// Returns the key's assignment; `None` if the daemon has none.
    ///
    /// # Errors
    /// No valid answer arrived by `deadline`.
    pub async fn inspect(
        &self,
        key: PodKey,
        deadline: Instant,
    ) -> Result<Option<Assignment>, RpcError> {
        let mut inner = self.inner.clone();
        let request = self.within(deadline, conversion::inspect_request(key, self.peer.versions));
        let reply = self.peer.answer("inspect", deadline, inner.inspect(request)).await?;
        self.peer.check_version("inspect", reply.version)?;
        valid("inspect", conversion::held(reply))
    }

    /// Returns the state of the pool and of running pods.
    ///
    /// # Errors
    /// No valid answer arrived by `deadline`.
    pub async fn status(&self, deadline: Instant) -> Result<PoolStatus, RpcError> {
        let mut inner = self.inner.clone();
        let request = self.within(deadline, conversion::status_request(self.peer.versions));
        let reply = self.peer.answer("status", deadline, inner.status(request)).await?;
        self.peer.check_version("status", reply.version)?;
        Ok(reply.into())
    }

    /// Releases all interfaces of a network, except those in the list and those of ADDs under way.
    ///
    /// # Errors No valid answer arrived by `deadline`. Some interfaces may have been released.
    pub async fn collect(
        &self,
        request: Collect,
        deadline: Instant,
    ) -> Result<Collected, RpcError> {
        let (mut inner, network) = (self.inner.clone(), request.network.clone());
        let request = self.within(deadline, request.into_wire(self.peer.versions));
        let reply = self.peer.answer("collect", deadline, inner.collect(request)).await?;
        self.peer.check_version("collect", reply.version)?;
        valid("collect", conversion::collected(&network, reply))
    }

    fn within<T>(&self, deadline: Instant, message: T) -> Request<T> {
        let mut request = runtime_socket::within(deadline, message);
        if let Some(trace) = &self.trace {
            trace::put(trace, request.metadata_mut());
        }
        request
    }
}

impl Peer {
    fn at(socket: &Path) -> Self {
        Self { socket: socket.to_owned(), versions: SUPPORTED }
    }

    async fn answer<T>(
        &self,
        attempt: &'static str,
        deadline: Instant,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, RpcError> {
        match before(deadline, call).await {
            Some(Ok(response)) => Ok(response.into_inner()),
            Some(Err(status)) => Err(self.judge(attempt, status)),
            None => Err(RpcError::TimedOut { attempt, socket: self.socket.clone() }),
        }
    }

    /// Converts a gRPC status to an error. A status that tonic created on this side has a source: the connection was
    /// lost.
    fn judge(&self, attempt: &'static str, status: Status) -> RpcError {
        let (socket, said) = (self.socket.clone(), status.message().to_owned());
        match status.code() {
            _ if std::error::Error::source(&status).is_some() => {
                RpcError::Lost { attempt, cause: Box::new(status) }
            }
            Code::DeadlineExceeded | Code::Cancelled => RpcError::TimedOut { attempt, socket },
            Code::PermissionDenied | Code::Unauthenticated => {
                RpcError::PermissionDenied { attempt, socket, said }
            }
            // A missing method or service belongs to another version.
            Code::FailedPrecondition | Code::Unimplemented => {
                RpcError::VersionMismatch { attempt, ours: self.versions, said }
            }
            Code::ResourceExhausted => RpcError::Busy { attempt },
            Code::Unavailable
            | Code::Ok
            | Code::Unknown
            | Code::InvalidArgument
            | Code::NotFound
            | Code::AlreadyExists
            | Code::Aborted
            | Code::OutOfRange
            | Code::Internal
            | Code::DataLoss => RpcError::Failed { attempt, said, cause: Box::new(status) },
        }
    }

    fn check_version(&self, attempt: &'static str, used: u32) -> Result<(), RpcError> {
        if self.versions.contains(used) {
            return Ok(());
        }
        let said = format!("it answered in version {used}");
        Err(RpcError::VersionMismatch { attempt, ours: self.versions, said })
    }
}

fn valid<T>(attempt: &'static str, read: Result<T, Malformed>) -> Result<T, RpcError> {
    read.map_err(|cause| RpcError::Malformed { attempt, cause })
}
