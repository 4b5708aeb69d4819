//! What passes between a node's network and aws-network-policy-agent, which knows amazon-vpc-cni alone:
//! the plugin tells the agent of pods, and the daemon tells it how the node is set ([`serve`]).

pub mod wire;

use crate::{RpcError, agent::AgentAt, client::connection};
use config_model::PodName;
use std::{
    future::Future,
    path::PathBuf,
    time::{Duration, Instant},
};
use tokio::time::timeout_at;
use tonic::{Request, Response, Status};
use wire::np_backend_client::NpBackendClient;

#[cfg(feature = "server")]
mod served;

#[cfg(feature = "server")]
pub use served::{Terms, ask, serve};

/// The agent of this node, as the daemon tells the plugin of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyAgent {
    /// Where it takes calls.
    pub socket: PathBuf,
    /// What holds for a pod that no policy names: `standard` or `strict`.
    pub mode: String,
}

/// Who enforces policy on this node, as the daemon tells the plugin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enforcer {
    /// aws-network-policy-agent.
    Amazon(PolicyAgent),
    /// ferrule-agent.
    Own(AgentAt),
}

/// The agent has not done what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// Nobody takes calls at its socket.
    #[error("no policy agent takes calls at {}: {why}", socket.display())]
    Absent {
        /// Where it should.
        socket: PathBuf,
        /// What stood in the way.
        why: String,
    },
    /// It has not answered in time.
    #[error("the policy agent at {} does not answer", socket.display())]
    TimedOut {
        /// Where it is.
        socket: PathBuf,
    },
    /// It has refused.
    #[error("the policy agent at {} has refused: {said}", socket.display())]
    Refused {
        /// Where it is.
        socket: PathBuf,
        /// In its words.
        said: String,
    },
}

impl PolicyAgent {
    /// Has the policies hold for a pod whose interfaces are up.
    ///
    /// # Errors
    /// The agent has not said by `deadline` that they do.
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
            network_policy_mode: self.mode.clone(),
            interface_count: i32::try_from(interfaces).unwrap_or(i32::MAX),
        };
        let reply = self.answer(deadline, agent.enforce_np_to_pod(Request::new(asked))).await?;
        self.agreed(reply.success)
    }

    /// Tells that a pod is gone.
    ///
    /// # Errors
    /// The agent has not taken note of it by `deadline`.
    pub async fn forget(&self, pod: &PodName, deadline: Instant) -> Result<(), PolicyError> {
        let mut agent = self.dial().await?;
        let asked = wire::DeleteNpRequest {
            k8s_pod_name: pod.name.clone(),
            k8s_pod_namespace: pod.namespace.clone(),
        };
        let reply = self.answer(deadline, agent.delete_pod_np(Request::new(asked))).await?;
        self.agreed(reply.success)
    }

    async fn dial(&self) -> Result<NpBackendClient<connection::Connection>, PolicyError> {
        match connection::open(&self.socket, Instant::now() + DIAL).await {
            Ok(connection) => Ok(NpBackendClient::with_origin(connection, connection::origin())),
            Err(error) => {
                Err(PolicyError::Absent { socket: self.socket.clone(), why: why(&error) })
            }
        }
    }

    async fn answer<T>(
        &self,
        deadline: Instant,
        call: impl Future<Output = Result<Response<T>, Status>>,
    ) -> Result<T, PolicyError> {
        let socket = self.socket.clone();
        match timeout_at(deadline.into(), call).await {
            Ok(Ok(reply)) => Ok(reply.into_inner()),
            Ok(Err(status)) => {
                let said = format!("{} ({:?})", status.message(), status.code());
                Err(PolicyError::Refused { socket, said })
            }
            Err(_) => Err(PolicyError::TimedOut { socket }),
        }
    }

    fn agreed(&self, success: bool) -> Result<(), PolicyError> {
        let socket = self.socket.clone();
        let refused = || PolicyError::Refused { socket, said: "success = false".to_owned() };
        success.then_some(()).ok_or_else(refused)
    }
}

/// Why a socket that is not the daemon's cannot be reached.
pub(crate) fn why(error: &RpcError) -> String {
    match error {
        RpcError::Missing { .. } => "there is no such socket".to_owned(),
        RpcError::Refused { cause, .. } => cause.to_string(),
        RpcError::PermissionDenied { said, .. } => said.clone(),
        RpcError::TimedOut { .. } => "nobody accepts".to_owned(),
        RpcError::VersionMismatch { .. }
        | RpcError::Lost { .. }
        | RpcError::Busy { .. }
        | RpcError::Malformed { .. }
        | RpcError::Failed { .. }
        | RpcError::Other { .. } => error.to_string(),
    }
}

/// As long as aws-cni tries.
const DIAL: Duration = Duration::from_secs(2);
