//! Errors of a connection attempt, by the next step of the caller.

use std::{io, path::PathBuf};

/// A connection that was not made.
#[derive(Debug, thiserror::Error)]
pub enum DialError {
    /// There was no socket until the deadline: the server has not started yet.
    #[error("cannot connect to {}: there is no such socket", socket.display())]
    Missing {
        /// The path where the server listens once it runs.
        socket: PathBuf,
    },
    /// No process accepted until the deadline: the server is down or overloaded.
    #[error("cannot connect to {}", socket.display())]
    Refused {
        socket: PathBuf,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The connection was not accepted in time: the server hangs.
    #[error("cannot connect to {}: the deadline has passed", socket.display())]
    TimedOut { socket: PathBuf },
    /// The socket's mode keeps this process out.
    #[error("cannot connect to {}: permission denied", socket.display())]
    PermissionDenied {
        socket: PathBuf,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
    /// The socket cannot be used.
    #[error("cannot connect to {}", socket.display())]
    Other {
        socket: PathBuf,
        /// The kernel's error.
        #[source]
        cause: io::Error,
    },
}

impl DialError {
    /// The cause without the socket, for an error that names the socket itself.
    pub fn reason(&self) -> String {
        match self {
            Self::Missing { .. } => "there is no such socket".to_owned(),
            Self::TimedOut { .. } => "the deadline has passed".to_owned(),
            Self::Refused { cause, .. }
            | Self::PermissionDenied { cause, .. }
            | Self::Other { cause, .. } => cause.to_string(),
        }
    }
}
