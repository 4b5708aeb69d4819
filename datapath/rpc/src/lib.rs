//! ferrule-agent's API over its unix socket: the plugin asks whether a pod may start, the daemon and people ask for
//! the agent's state.
//!
//! Start with [`AgentAt`], the client, which the plugin links. The feature `server` adds [`serve`] and the trait
//! [`Agent`]. The feature `streams` adds calls whose answer is a stream. This crate decides nothing. Tests run both over a
//! real socket: `tests/`.

mod links;
pub mod wire;

use config_model::{EnforcingMode, HostLink, PodName};
use runtime_socket::{
    Connection, DialError, MAX_MESSAGE_BYTES, Versions, before, dial, origin, pause, within,
};
use std::{
    future::Future,
    net::IpAddr,
    path::PathBuf,
    time::{Duration, Instant},
};
use tonic::{Code, Response, Status};
use wire::agent_client::AgentClient;

#[cfg(feature = "server")]
mod served;
mod services;
#[cfg(feature = "streams")]
mod streams;

#[cfg(feature = "server")]
pub use served::{Admission, Agent, Flows, serve};
pub use services::SERVICES_SOCKET;
#[cfg(feature = "streams")]
pub use services::{ServicesError, read_services};
#[cfg(feature = "server")]
pub use services::{ServicesSource, ServicesStream, serve_services};

/// The versions of the protocol that this build speaks: its own and the one before.
pub const SPOKEN: Versions = Versions { oldest: 1, newest: 1 };

/// The largest number of entries in each list of a [`wire::StatusReply`], so that the message stays within its limit.
pub const LISTED: usize = 100;

/// The agent of this node: its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentAt {
    /// The socket that the agent serves.
    pub socket: PathBuf,
    /// The rule for a pod whose policies are not in force in time.
    pub mode: EnforcingMode,
}

/// A pod as the agent knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentPod {
    /// Identifies the pod. Empty where the caller does not know it.
    pub uid: String,
    /// The pod's name.
    pub name: PodName,
    /// The container ID of the sandbox: a call about an earlier sandbox leaves a later one as it is. Empty where it
    /// is not known.
    pub container: String,
}

/// The agent's answer for a pod that starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admitted {
    /// Its policies are in force.
    Enforced,
    /// The pod may start without its policies; the text is the reason why they are not in force.
    Open(String),
    /// The pod may not start; the text is the reason.
    Refused(String),
}

/// The agent has not answered.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// There is no connection.
    #[error("cannot connect to ferrule-agent at {}: {why}", socket.display())]
    Absent {
        /// The agent's socket.
        socket: PathBuf,
        /// The cause.
        why: String,
    },
    /// There was no answer in time.
    #[error("ferrule-agent at {} does not answer", socket.display())]
    TimedOut {
        /// The agent's socket.
        socket: PathBuf,
    },
    /// The agent exited, or the connection broke, before the answer.
    #[error("ferrule-agent at {} closed the connection before its answer: {cause}", socket.display())]
    Lost {
        /// The agent's socket.
        socket: PathBuf,
        /// The connection's error.
        cause: String,
    },
    /// The agent answered with a failure.
    #[error("ferrule-agent at {}: {message}", socket.display())]
    Failed {
        /// The agent's socket.
        socket: PathBuf,
        /// The agent's message.
        message: String,
    },
}

impl AgentAt {
    /// Waits until the policies of a pod whose interfaces are up are in force, or the agent answers that they are not.
    ///
    /// # Errors
    /// The agent has not answered by `deadline`.
    pub async fn admit(
        &self,
        pod: &AgentPod,
        addresses: &[IpAddr],
        links: &[HostLink],
        deadline: Instant,
    ) -> Result<Admitted, AgentError> {
        let mode = match self.mode {
            EnforcingMode::Standard => wire::Mode::Standard,
            EnforcingMode::Strict => wire::Mode::Strict,
        };
        let asked = wire::AdmitRequest {
            versions: versions(),
            pod: Some(pod.clone().into()),
            addresses: addresses.iter().map(IpAddr::to_string).collect(),
            mode: mode.into(),
            interfaces: links.iter().map(links::to_wire).collect(),
        };
        let reply = loop {
            let mut agent = self.dial(deadline).await?;
            match self.answer(deadline, agent.admit(within(deadline, asked.clone()))).await {
                // The agent was restarted during the call: the new process is asked the same.
                Err(AgentError::Lost { .. }) if Instant::now() + REST < deadline => {
                    pause(REST).await;
                }
                answer => break answer?,
            }
        };
        match reply.answer() {
            wire::Answer::Enforced => Ok(Admitted::Enforced),
            wire::Answer::Open => Ok(Admitted::Open(reply.why)),
            wire::Answer::Refused => Ok(Admitted::Refused(reply.why)),
            // An unknown answer starts no pod.
            wire::Answer::Unspecified => {
                let message = "this plugin does not know its answer".to_owned();
                Err(AgentError::Failed { socket: self.socket.clone(), message })
            }
        }
    }

    /// Reports that a pod's sandbox has ended.
    ///
    /// # Errors
    /// The agent has not acknowledged by `deadline`.
    pub async fn forget(&self, pod: &AgentPod, deadline: Instant) -> Result<(), AgentError> {
        let mut agent = self.dial(deadline).await?;
        let asked = wire::ForgetRequest { versions: versions(), pod: Some(pod.clone().into()) };
        self.answer(deadline, agent.forget(within(deadline, asked))).await.map(drop)
    }

    /// The agent's state: its snapshot, the backend, and what is not in force.
    ///
    /// # Errors
    /// The agent has not answered by `deadline`.
    pub async fn status(&self, deadline: Instant) -> Result<wire::StatusReply, AgentError> {
        let mut agent = self.dial(deadline).await?;
        let asked = wire::StatusRequest { versions: versions() };
        self.answer(deadline, agent.status(within(deadline, asked))).await
    }

    /// The use of each rule on the node.
    ///
    /// # Errors
    /// The agent has not answered by `deadline`.
    pub async fn uses(&self, deadline: Instant) -> Result<wire::UsesReply, AgentError> {
        let mut agent = self.dial(deadline).await?;
        let asked = wire::UsesRequest { versions: versions() };
        self.answer(deadline, agent.uses(within(deadline, asked))).await
    }

    /// The open connections of the pod with this UID by path.
    ///
    /// # Errors
    /// The agent has not answered by `deadline`, or its node does not have the pod.
    pub async fn paths(
        &self,
        uid: String,
        deadline: Instant,
    ) -> Result<wire::PathsReply, AgentError> {
        let mut agent = self.dial(deadline).await?;
        let asked = wire::PathsRequest { versions: versions(), uid };
        self.answer(deadline, agent.paths(within(deadline, asked))).await
    }

    /// The verdict about a packet in the state in force. The request needs no versions.
    ///
    /// # Errors
    /// The agent has not answered by `deadline`.
    pub async fn look_up(
        &self,
        packet: wire::LookUpRequest,
        deadline: Instant,
    ) -> Result<wire::LookUpReply, AgentError> {
        let mut agent = self.dial(deadline).await?;
        let asked = wire::LookUpRequest { versions: versions(), ..packet };
        self.answer(deadline, agent.look_up(within(deadline, asked))).await
    }

    /// Waits up to [`DIAL`] for an agent that is being restarted.
    async fn dial(&self, deadline: Instant) -> Result<AgentClient<Connection>, AgentError> {
        let socket = || self.socket.clone();
        match dial(&self.socket, deadline.min(Instant::now() + DIAL)).await {
            Ok(connection) => {
                let client = AgentClient::with_origin(connection, origin());
                Ok(client.max_decoding_message_size(MAX_MESSAGE_BYTES))
            }
            Err(DialError::TimedOut { .. }) => Err(AgentError::TimedOut { socket: socket() }),
            Err(error) => Err(AgentError::Absent { socket: socket(), why: error.reason() }),
        }
    }

    async fn answer<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, AgentError> {
        let socket = self.socket.clone();
        match before(deadline, call).await {
            Some(Ok(reply)) => Ok(reply.into_inner()),
            Some(Err(status)) => {
                let message = format!("{} ({:?})", status.message(), status.code());
                let is_lost =
                    matches!(status.code(), Code::Unavailable | Code::Cancelled | Code::Unknown);
                Err(match is_lost {
                    true => AgentError::Lost { socket, cause: message },
                    false => AgentError::Failed { socket, message },
                })
            }
            None => Err(AgentError::TimedOut { socket }),
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

fn versions() -> Option<wire::Versions> {
    Some(wire::Versions { oldest: SPOKEN.oldest, newest: SPOKEN.newest })
}

/// The longest wait for the socket.
const DIAL: Duration = Duration::from_secs(2);
/// The pause after a connection that broke.
const REST: Duration = Duration::from_millis(50);
