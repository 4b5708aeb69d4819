//! The agent that enforces policy on the node, over its own socket: the plugin asks it whether a pod may start.

pub mod wire;

use crate::{MAX_MESSAGE_BYTES, RpcError, client::connection, policy::why};
use config_model::PodName;
use std::{
    future::Future,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::time::{sleep, timeout_at};
use tonic::{Code, Request, Response, Status};
use wire::agent_client::AgentClient;

#[cfg(feature = "server")]
mod served;

#[cfg(feature = "server")]
pub use served::{Agent, serve};

/// The agent of this node, as the daemon tells the plugin of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAt {
    /// Where it takes calls.
    pub socket: PathBuf,
    /// What becomes of a pod for which policy does not hold in time.
    pub mode: Mode,
}

/// What becomes of a pod for which policy does not hold in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It starts nevertheless, open.
    Standard,
    /// It does not start.
    Strict,
}

/// A pod as the agent knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPod {
    /// Its UID: what it is known by. Empty where the caller does not know it.
    pub uid: String,
    /// Its name.
    pub name: PodName,
    /// Its sandbox's container ID: what is said of an earlier one leaves a later one alone. Empty where it is not known.
    pub container: String,
}

/// What the agent says of a pod that starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// What policy says of it is in force.
    Enforced,
    /// It may start, and is open; why.
    Open(String),
    /// It may not start; why.
    Refused(String),
}

/// The agent has not answered.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Nobody takes calls at its socket.
    #[error("ferrule-agent takes no calls at {}: {why}", socket.display())]
    Absent {
        /// Where it should.
        socket: PathBuf,
        /// What stood in the way.
        why: String,
    },
    /// It has not answered in time.
    #[error("ferrule-agent at {} does not answer", socket.display())]
    TimedOut {
        /// Where it is.
        socket: PathBuf,
    },
    /// It ended, or the connection broke, before it answered.
    #[error("ferrule-agent at {} has not answered: {said}", socket.display())]
    Lost {
        /// Where it was.
        socket: PathBuf,
        /// What the connection says.
        said: String,
    },
    /// It has not done what it was asked.
    #[error("ferrule-agent at {}: {said}", socket.display())]
    Failed {
        /// Where it is.
        socket: PathBuf,
        /// In its words.
        said: String,
    },
}

impl AgentAt {
    /// Waits until policy holds for a pod whose interfaces are up, or the agent says that it does not.
    ///
    /// # Errors
    /// The agent has not answered by `deadline`.
    pub async fn admit(
        &self,
        pod: &AgentPod,
        addresses: &[IpAddr],
        deadline: Instant,
    ) -> Result<Admitted, AgentError> {
        let mode = match self.mode {
            Mode::Standard => wire::Mode::Standard,
            Mode::Strict => wire::Mode::Strict,
        };
        let asked = wire::AdmitRequest {
            versions: versions(),
            pod: Some(pod.clone().into()),
            addresses: addresses.iter().map(IpAddr::to_string).collect(),
            mode: mode.into(),
        };
        let reply = loop {
            let mut agent = self.dial(deadline).await?;
            match self.answer(deadline, agent.admit(within(deadline, asked.clone()))).await {
                // It was restarted in the middle: the next one is asked the same.
                Err(AgentError::Lost { .. }) if Instant::now() + REST < deadline => {
                    sleep(REST).await;
                }
                answer => break answer?,
            }
        };
        match reply.answer() {
            wire::Answer::Enforced => Ok(Admitted::Enforced),
            wire::Answer::Open => Ok(Admitted::Open(reply.why)),
            wire::Answer::Refused => Ok(Admitted::Refused(reply.why)),
            // An answer that is not known lets nobody through.
            wire::Answer::Unspecified => {
                let said = "its answer is none that this plugin knows".to_owned();
                Err(AgentError::Failed { socket: self.socket.clone(), said })
            }
        }
    }

    /// Tells that a pod is gone.
    ///
    /// # Errors
    /// The agent has not taken note of it by `deadline`.
    pub async fn forget(&self, pod: &AgentPod, deadline: Instant) -> Result<(), AgentError> {
        let mut agent = self.dial(deadline).await?;
        let asked = wire::ForgetRequest { versions: versions(), pod: Some(pod.clone().into()) };
        self.answer(deadline, agent.forget(within(deadline, asked))).await.map(drop)
    }

    /// What the node holds of policy.
    ///
    /// # Errors
    /// The agent has not answered by `deadline`.
    pub async fn status(&self, deadline: Instant) -> Result<wire::StatusReply, AgentError> {
        let mut agent = self.dial(deadline).await?;
        let asked = wire::StatusRequest { versions: versions() };
        self.answer(deadline, agent.status(within(deadline, asked))).await
    }

    /// One that has just been restarted is waited for, a while.
    async fn dial(
        &self,
        deadline: Instant,
    ) -> Result<AgentClient<connection::Connection>, AgentError> {
        let patience = deadline.min(Instant::now() + DIAL);
        match connection::open(&self.socket, patience).await {
            Ok(connection) => {
                let client = AgentClient::with_origin(connection, connection::origin());
                Ok(client.max_decoding_message_size(MAX_MESSAGE_BYTES))
            }
            Err(RpcError::TimedOut { .. }) => {
                Err(AgentError::TimedOut { socket: self.socket.clone() })
            }
            Err(error) => Err(AgentError::Absent { socket: self.socket.clone(), why: why(&error) }),
        }
    }

    async fn answer<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AgentError> {
        let socket = self.socket.clone();
        match timeout_at(deadline.into(), call).await {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => {
                let said = format!("{} ({:?})", status.message(), status.code());
                let is_lost =
                    matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown);
                Err(match is_lost {
                    true => AgentError::Lost { socket, said },
                    false => AgentError::Failed { socket, said },
                })
            }
            Err(_) => Err(AgentError::TimedOut { socket }),
        }
    }
}

impl From<AgentPod> for wire::Pod {
    fn from(pod: AgentPod) -> Self {
        Self {
            uid: pod.uid,
            namespace: pod.name.namespace,
            name: pod.name.name,
            container: pod.container,
        }
    }
}

/// What of the protocol this build speaks: as many versions as of the daemon's.
fn versions() -> Option<wire::Versions> {
    Some(wire::Versions { oldest: crate::SPOKEN.oldest, newest: crate::SPOKEN.newest })
}

/// The version to answer in.
#[cfg(feature = "server")]
fn version(sent: Option<wire::Versions>) -> Result<u32, Status> {
    let wire::Versions { oldest, newest } = sent.unwrap_or_default();
    crate::negotiate(crate::Versions { oldest, newest }).map_err(|no| {
        Status::failed_precondition(format!(
            "the agent speaks protocol version {}, was asked in {}",
            no.ours, no.theirs
        ))
    })
}

fn within<T>(deadline: Instant, message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(deadline.saturating_duration_since(Instant::now()));
    request
}

/// As long as a socket is waited for.
const DIAL: Duration = Duration::from_secs(2);
/// After a connection that broke.
const REST: Duration = Duration::from_millis(50);
