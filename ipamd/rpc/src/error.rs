//! The errors of calls from the plugin to the daemon. Each variant needs another reaction of the caller.

use crate::{Malformed, Versions};
use runtime_socket::DialError;
use std::{io, path::PathBuf};
use tonic::Status;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// The socket did not exist until the deadline: the daemon has not started yet.
    #[error("the daemon's socket {} does not exist", socket.display())]
    Missing { socket: PathBuf },
    /// The kernel refused connections until the deadline: the daemon is down or overloaded.
    #[error("connection refused at the daemon's socket {}", socket.display())]
    Refused {
        socket: PathBuf,
        #[source]
        cause: io::Error,
    },
    /// The daemon accepted the connection and did not answer in time: it hangs.
    #[error("{attempt}: no answer from the daemon at {} within the deadline", socket.display())]
    TimedOut { attempt: &'static str, socket: PathBuf },
    /// The socket's mode or the daemon refused this process.
    #[error("{attempt}: not permitted at the daemon's socket {}: {said}", socket.display())]
    PermissionDenied { attempt: &'static str, socket: PathBuf, said: String },
    /// The daemon speaks no version of the protocol that this side speaks.
    #[error("{attempt}: this side speaks protocol version {ours}, the daemon does not: {said}")]
    VersionMismatch { attempt: &'static str, ours: Versions, said: String },
    /// The connection ended before the answer. The daemon may have carried out the call. All calls may be repeated.
    #[error("{attempt}: the connection to the daemon was lost before it answered")]
    Lost {
        attempt: &'static str,
        #[source]
        cause: Box<Status>,
    },
    /// The daemon is at its limit of concurrent requests.
    #[error("{attempt}: the daemon has too many requests at once")]
    Busy { attempt: &'static str },
    /// The answer breaks the protocol.
    #[error("{attempt}: the daemon's answer is not valid")]
    Malformed {
        attempt: &'static str,
        #[source]
        cause: Malformed,
    },
    /// The daemon could not carry out the call.
    #[error("{attempt}: the daemon failed: {said}")]
    Failed {
        attempt: &'static str,
        said: String,
        #[source]
        cause: Box<Status>,
    },
    /// The socket cannot be used.
    #[error("connect to the daemon's socket {}", socket.display())]
    Other {
        socket: PathBuf,
        #[source]
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
}

impl From<DialError> for RpcError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Missing { socket } => Self::Missing { socket },
            DialError::Refused { socket, cause } => Self::Refused { socket, cause },
            DialError::TimedOut { socket } => Self::TimedOut { attempt: "connect", socket },
            DialError::PermissionDenied { socket, cause } => {
                Self::PermissionDenied { attempt: "connect", socket, said: cause.to_string() }
            }
            DialError::Other { socket, cause } => Self::Other { socket, cause: cause.into() },
        }
    }
}

impl RpcError {
    /// Returns whether the daemon is absent, hung, overloaded or of another version. A DEL then leaves a tombstone, and
    /// an ADD returns "try again later".
    pub fn daemon_unavailable(&self) -> bool {
        match self {
            Self::Missing { .. }
            | Self::Refused { .. }
            | Self::TimedOut { .. }
            | Self::VersionMismatch { .. }
            | Self::Lost { .. }
            | Self::Busy { .. } => true,
            Self::PermissionDenied { .. }
            | Self::Malformed { .. }
            | Self::Failed { .. }
            | Self::Other { .. } => false,
        }
    }
}
