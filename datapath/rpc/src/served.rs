//! The agent's side of its socket.

use super::{Admitted, AgentPod, Mode, version, wire};
use crate::{
    MAX_MESSAGE_BYTES,
    server::{Health, Incoming, MAX_REQUESTS, ServeError, serve_only},
};
use config_model::PodName;
use std::{collections::BTreeSet, future::Future, net::IpAddr, sync::Arc};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};
use wire::agent_server::{self, AgentServer};

/// What the agent answers. Each call may be repeated. The future of a call is dropped when the caller goes away.
pub trait Agent: Send + Sync + 'static {
    /// A pod whose interfaces are up starts.
    fn admit(
        &self,
        pod: AgentPod,
        addresses: BTreeSet<IpAddr>,
        mode: Mode,
    ) -> impl Future<Output = Result<Admitted, Status>> + Send;

    /// A pod is gone.
    fn forget(&self, pod: AgentPod) -> impl Future<Output = Result<(), Status>> + Send;

    /// What the node holds; the version is filled in by the caller.
    fn status(&self) -> impl Future<Output = Result<wire::StatusReply, Status>> + Send;
}

/// Answers on the socket until `stop` completes and every connection has closed.
///
/// # Errors
/// When HTTP/2 itself cannot go on; a broken connection ends only itself.
pub async fn serve<A: Agent>(
    incoming: Incoming,
    agent: Arc<A>,
    health: &Health,
    stop: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let endpoint = Endpoint { agent, room: Semaphore::new(MAX_REQUESTS) };
    let service = AgentServer::new(endpoint)
        .max_decoding_message_size(MAX_MESSAGE_BYTES)
        .max_encoding_message_size(MAX_MESSAGE_BYTES);
    serve_only(incoming, service, health, stop).await
}

struct Endpoint<A> {
    agent: Arc<A>,
    /// For those that wait; what is brief always has room, as each connection has few requests.
    room: Semaphore,
}

#[tonic::async_trait]
impl<A: Agent> agent_server::Agent for Endpoint<A> {
    async fn admit(
        &self,
        request: Request<wire::AdmitRequest>,
    ) -> Result<Response<wire::AdmitReply>, Status> {
        let request = request.into_inner();
        let version = version(request.versions)?;
        let _room = self.room.try_acquire().map_err(|_| {
            Status::resource_exhausted(format!("{MAX_REQUESTS} pods are waiting already"))
        })?;
        let mode = match request.mode() {
            wire::Mode::Standard => Mode::Standard,
            // A mode that is not known lets nobody through that another would not.
            wire::Mode::Strict | wire::Mode::Unspecified => Mode::Strict,
        };
        let pod = pod(request.pod)?;
        if pod.uid.is_empty() {
            let name = &pod.name;
            return Err(Status::invalid_argument(format!("pod {name} is named without its UID")));
        }
        let addresses = request.addresses.iter().map(|text| {
            text.parse().map_err(|_| Status::invalid_argument(format!("{text:?} is no address")))
        });
        let addresses = addresses.collect::<Result<BTreeSet<IpAddr>, Status>>()?;
        let (answer, why) = match self.agent.admit(pod, addresses, mode).await? {
            Admitted::Enforced => (wire::Answer::Enforced, String::new()),
            Admitted::Open(why) => (wire::Answer::Open, why),
            Admitted::Refused(why) => (wire::Answer::Refused, why),
        };
        Ok(Response::new(wire::AdmitReply { version, answer: answer.into(), why }))
    }

    async fn forget(
        &self,
        request: Request<wire::ForgetRequest>,
    ) -> Result<Response<wire::ForgetReply>, Status> {
        let request = request.into_inner();
        let version = version(request.versions)?;
        self.agent.forget(pod(request.pod)?).await?;
        Ok(Response::new(wire::ForgetReply { version }))
    }

    async fn status(
        &self,
        request: Request<wire::StatusRequest>,
    ) -> Result<Response<wire::StatusReply>, Status> {
        let version = version(request.into_inner().versions)?;
        let reply = self.agent.status().await?;
        Ok(Response::new(wire::StatusReply { version, ..reply }))
    }
}

fn pod(sent: Option<wire::Pod>) -> Result<AgentPod, Status> {
    let wire::Pod { uid, namespace, name, container } = sent.unwrap_or_default();
    if namespace.is_empty() || name.is_empty() {
        return Err(Status::invalid_argument("the pod is not named"));
    }
    Ok(AgentPod { uid, name: PodName { namespace, name }, container })
}
