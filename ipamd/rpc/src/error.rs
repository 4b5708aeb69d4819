//! What can go wrong between plugin and daemon, sorted by what the caller does next.

use crate::{Malformed, Versions};
use runtime_socket::DialError;
use std::{io, path::PathBuf};
use tonic::Status;

/// A connection or a call that did not succeed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RpcError {
    /// There was no socket until the deadline: the daemon has not started yet.
    #[error("the daemon's socket {} does not exist", socket.display())]
    Missing {
        /// Where it should be.
        socket: PathBuf,
    },
    /// Nobody accepted until the deadline: the daemon is down or has too much to do.
    #[error("nobody answers at the daemon's socket {}", socket.display())]
    Refused {
        /// Where nobody listens.
        socket: PathBuf,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// The daemon accepted and did not answer in time: it hangs.
    #[error("{attempt}: no answer from the daemon at {} within the deadline", socket.display())]
    TimedOut {
        /// What was asked.
        attempt: &'static str,
        /// Who was asked.
        socket: PathBuf,
    },
    /// The socket's mode or the daemon itself turned this process away.
    #[error("{attempt}: not permitted at the daemon's socket {}: {said}", socket.display())]
    PermissionDenied {
        /// What was asked.
        attempt: &'static str,
        /// Who refused.
        socket: PathBuf,
        /// In whose words.
        said: String,
    },
    /// The daemon speaks no version of the protocol that this side speaks.
    #[error("{attempt}: this side speaks protocol version {ours}, the daemon does not: {said}")]
    VersionMismatch {
        /// What was asked.
        attempt: &'static str,
        /// What this side speaks.
        ours: Versions,
        /// The daemon's words.
        said: String,
    },
    /// The connection ended before the answer: the call may have been carried out. All calls may be
    /// repeated.
    #[error("{attempt}: the connection to the daemon was lost before it answered")]
    Lost {
        /// What was asked.
        attempt: &'static str,
        /// How it was lost.
        #[source]
        cause: Box<Status>,
    },
    /// The daemon has as many requests as it takes.
    #[error("{attempt}: the daemon has too many requests at once")]
    Busy {
        /// What was asked.
        attempt: &'static str,
    },
    /// The answer holds something that it may not.
    #[error("{attempt}: the daemon's answer is not valid")]
    Malformed {
        /// What was asked.
        attempt: &'static str,
        /// What is wrong with it.
        #[source]
        cause: Malformed,
    },
    /// The daemon answered with a failure of its own.
    #[error("{attempt}: the daemon failed: {said}")]
    Failed {
        /// What was asked.
        attempt: &'static str,
        /// The daemon's words.
        said: String,
        /// The status it came with.
        #[source]
        cause: Box<Status>,
    },
    /// The socket cannot be used.
    #[error("connect to the daemon's socket {}", socket.display())]
    Other {
        /// Which socket.
        socket: PathBuf,
        /// Why.
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
    /// Whether the daemon is absent, hung, or of another version: what a DEL answers with a
    /// tombstone and an ADD with "try again later".
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
