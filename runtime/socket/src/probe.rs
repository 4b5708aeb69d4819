//! A client of gRPC's health protocol: what a container's probe does.

use crate::{DialError, dial, origin, server::HealthName, within};
use std::{
    path::{Path, PathBuf},
    time::Instant,
};
use tokio::time::timeout_at;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};

/// The health of a server is not known.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// There is no connection.
    #[error(transparent)]
    Dial(#[from] DialError),
    /// The server accepted and did not answer in time.
    #[error("cannot probe {}: no answer within the deadline", socket.display())]
    TimedOut { socket: PathBuf },
    /// The server answered with a failure, or the connection broke.
    #[error("cannot probe {}: {message} ({code:?})", socket.display())]
    Failed {
        socket: PathBuf,
        /// The status code; [`Code::NotFound`] where the server does not know the name yet.
        code: Code,
        /// The server's message.
        message: String,
    },
}

impl ProbeError {
    /// True if the server itself answered: it serves, and does not have this kind of health. A connection that broke is no
    /// answer.
    #[must_use]
    pub fn is_answer(&self) -> bool {
        match self {
            Self::Failed { code, .. } => !matches!(
                code,
                Code::Unavailable
                    | Code::Cancelled
                    | Code::Unknown
                    | Code::Internal
                    | Code::DeadlineExceeded
            ),
            Self::Dial(_) | Self::TimedOut { .. } => false,
        }
    }
}

/// Asks a server for one of its kinds of health.
///
/// # Errors
/// When there is no answer by `deadline`, or the server does not know the name yet.
pub async fn probe(
    socket: &Path,
    health: HealthName,
    deadline: Instant,
) -> Result<bool, ProbeError> {
    let connection = dial(socket, deadline).await?;
    let mut inner = HealthClient::with_origin(connection, origin());
    let asked = HealthCheckRequest { service: health.as_str().to_owned() };
    match timeout_at(deadline.into(), inner.check(within(deadline, asked))).await {
        Ok(Ok(reply)) => Ok(reply.into_inner().status() == ServingStatus::Serving),
        Ok(Err(status)) => Err(ProbeError::Failed {
            socket: socket.to_owned(),
            code: status.code(),
            message: status.message().to_owned(),
        }),
        Err(_) => Err(ProbeError::TimedOut { socket: socket.to_owned() }),
    }
}
