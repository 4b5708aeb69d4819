//! The protocol between amazon-vpc-cni and aws-network-policy-agent, for a node of Ferrule. The plugin reports pods to
//! the agent ([`PolicyAgent`]), and the daemon serves the node's configuration to the agent ([`serve`]).
//!
//! The names of services and the numbers of fields are that project's. Tests run both sides over a real socket:
//! `tests/`.

pub mod wire;

use config_model::{EnforcingMode, PodName};
use runtime_socket::{Connection, before, dial, origin, until};
use std::{
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};
use tonic::{Response, Status};
use wire::np_backend_client::NpBackendClient;

#[cfg(feature = "server")]
mod served;

#[cfg(feature = "server")]
pub use served::{NodeConfig, ask, serve};

/// The agent of this node: its client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyAgent {
    /// The socket where it takes calls.
    pub socket: PathBuf,
    /// The default for a pod that no policy selects.
    pub mode: EnforcingMode,
}

/// The agent has not done what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// There is no connection.
    #[error("cannot connect to the policy agent at {}: {why}", socket.display())]
    Absent {
        /// The agent's socket.
        socket: PathBuf,
        /// The cause.
        why: String,
    },
    /// There was no answer in time.
    #[error("the policy agent at {} does not answer", socket.display())]
    TimedOut {
        /// The agent's socket.
        socket: PathBuf,
    },
    /// The agent answered with a refusal.
    #[error("the policy agent at {} has refused: {message}", socket.display())]
    Refused {
        /// The agent's socket.
        socket: PathBuf,
        /// The agent's message.
        message: String,
    },
}

impl PolicyAgent {
    /// Waits until the policies of a pod whose interfaces are up are in force.
    ///
    /// # Errors
    /// The agent has not confirmed by `deadline`.
    pub async fn enforce(
        &self,
        pod: &PodName,
        interfaces: usize,
        deadline: Instant,
    ) -> Result<(), PolicyError> {
        let mut agent = self.dial().await?;
        let asked = wire::EnforceNpRequest {
            k8s_pod_name: pod.name.clone(),
            k8s_pod_namespace: pod.namespace.clone(),
            network_policy_mode: self.mode.to_string(),
            interface_count: i32::try_from(interfaces).unwrap_or(i32::MAX),
        };
        let reply = self.answer(deadline, agent.enforce_np_to_pod(until(deadline, asked))).await?;
        self.agreed(reply.success)
    }

    /// Reports that a pod is gone.
    ///
    /// # Errors
    /// The agent has not confirmed by `deadline`.
    pub async fn forget(&self, pod: &PodName, deadline: Instant) -> Result<(), PolicyError> {
        let mut agent = self.dial().await?;
        let asked = wire::DeleteNpRequest {
            k8s_pod_name: pod.name.clone(),
            k8s_pod_namespace: pod.namespace.clone(),
        };
        let reply = self.answer(deadline, agent.delete_pod_np(until(deadline, asked))).await?;
        self.agreed(reply.success)
    }

    async fn dial(&self) -> Result<NpBackendClient<Connection>, PolicyError> {
        match dial(&self.socket, Instant::now() + DIAL).await {
            Ok(connection) => Ok(NpBackendClient::with_origin(connection, origin())),
            Err(error) => {
                Err(PolicyError::Absent { socket: self.socket.clone(), why: error.reason() })
            }
        }
    }

    async fn answer<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, PolicyError> {
        let socket = self.socket.clone();
        match before(deadline, call).await {
            Some(Ok(reply)) => Ok(reply.into_inner()),
            Some(Err(status)) => {
                let message = format!("{} ({:?})", status.message(), status.code());
                Err(PolicyError::Refused { socket, message })
            }
            None => Err(PolicyError::TimedOut { socket }),
        }
    }

    fn agreed(&self, success: bool) -> Result<(), PolicyError> {
        let socket = self.socket.clone();
        let refused = || PolicyError::Refused { socket, message: "success = false".to_owned() };
        success.then_some(()).ok_or_else(refused)
    }
}

/// The longest wait for the socket, the same as in aws-cni.
const DIAL: Duration = Duration::from_secs(2);
