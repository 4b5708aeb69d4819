//! The agent's side of its socket.

use crate::{Admitted, AgentPod, SPOKEN, links, wire};
use config_model::{EnforcingMode, HostLink, PodName};
use futures::{Stream, StreamExt as _};
use runtime_socket::{
    MAX_MESSAGE_BYTES, Versions,
    server::{self, Health, Incoming, MAX_REQUESTS, ServeError},
};
use std::{
    collections::BTreeSet,
    future::{Future, ready},
    net::IpAddr,
    pin::Pin,
    sync::Arc,
};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};
use wire::agent_server::{self, AgentServer};

/// A pod that starts, as the plugin describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// The pod, with its UID.
    pub pod: AgentPod,
    /// All addresses of the pod.
    pub addresses: BTreeSet<IpAddr>,
    /// The host ends of its interfaces; empty from a plugin that does not send them.
    pub links: Vec<HostLink>,
    /// The rule for a pod whose policies are not in force in time.
    pub mode: EnforcingMode,
}

/// The calls that the agent answers. Each may be repeated. The future of a call is dropped when the caller goes away.
pub trait Agent: Send + Sync + 'static {
    /// A pod whose interfaces are up starts.
    fn admit(&self, admission: Admission) -> impl Future<Output = Result<Admitted, Status>> + Send;

    /// A pod's sandbox has ended.
    fn forget(&self, pod: AgentPod) -> impl Future<Output = Result<(), Status>> + Send;

    /// The agent's state; [`serve`] fills in the version.
    fn status(&self) -> impl Future<Output = Result<wire::StatusReply, Status>> + Send;

    /// Packets and connections; [`serve`] fills in the version.
    fn flows(&self, _request: wire::FlowsRequest) -> Result<Flows, Status> {
        Err(Status::unimplemented("this agent reports no flows"))
    }

    /// The use of rules; [`serve`] fills in the version.
    fn uses(&self) -> impl Future<Output = Result<wire::UsesReply, Status>> + Send {
        ready(Err(Status::unimplemented("this agent counts no use of rules")))
    }

    /// The open connections of the pod with this UID by path; [`serve`] fills in the version.
    fn paths(&self, _uid: String) -> impl Future<Output = Result<wire::PathsReply, Status>> + Send {
        ready(Err(Status::unimplemented("this agent counts no connections")))
    }

    /// The verdict about a packet; [`serve`] fills in the version.
    fn look_up(
        &self,
        _request: wire::LookUpRequest,
    ) -> impl Future<Output = Result<wire::LookUpReply, Status>> + Send {
        ready(Err(Status::unimplemented("this agent looks up no verdicts")))
    }
}

/// A stream of flows.
pub type Flows = Pin<Box<dyn Stream<Item = wire::Flow> + Send>>;

/// Answers on the socket until `stop` completes and every connection is closed.
///
/// # Errors
/// When HTTP/2 itself cannot continue; a broken connection ends only itself.
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
    server::serve(incoming, service, health, stop).await
}

struct Endpoint<A> {
    agent: Arc<A>,
    /// Limits the admissions that wait. Other calls are short, and each connection has few of them.
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
            wire::Mode::Standard => EnforcingMode::Standard,
            // An unknown mode is strict: it starts no pod that another mode would not start.
            wire::Mode::Strict | wire::Mode::Unspecified => EnforcingMode::Strict,
        };
        let pod = pod(request.pod)?;
        if pod.uid.is_empty() {
            let name = &pod.name;
            return Err(Status::invalid_argument(format!("pod {name} has no UID")));
        }
        let addresses = request.addresses.iter().map(|text| {
            text.parse()
                .map_err(|_| Status::invalid_argument(format!("{text:?} is not an address")))
        });
        let addresses = addresses.collect::<Result<BTreeSet<IpAddr>, Status>>()?;
        let links = request.interfaces.into_iter().map(links::from_wire);
        let links = links.collect::<Result<_, _>>().map_err(Status::invalid_argument)?;
        let admission = Admission { pod, addresses, links, mode };
        let (answer, why) = match self.agent.admit(admission).await? {
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

    type FlowsStream = Pin<Box<dyn Stream<Item = Result<wire::Flow, Status>> + Send>>;

    async fn flows(
        &self,
        request: Request<wire::FlowsRequest>,
    ) -> Result<Response<Self::FlowsStream>, Status> {
        let request = request.into_inner();
        let version = version(request.versions)?;
        let flows = self.agent.flows(request)?;
        Ok(Response::new(Box::pin(flows.map(move |flow| Ok(wire::Flow { version, ..flow })))))
    }

    async fn uses(
        &self,
        request: Request<wire::UsesRequest>,
    ) -> Result<Response<wire::UsesReply>, Status> {
        let version = version(request.into_inner().versions)?;
        let reply = self.agent.uses().await?;
        Ok(Response::new(wire::UsesReply { version, ..reply }))
    }

    async fn paths(
        &self,
        request: Request<wire::PathsRequest>,
    ) -> Result<Response<wire::PathsReply>, Status> {
        let request = request.into_inner();
        let version = version(request.versions)?;
        let reply = self.agent.paths(request.uid).await?;
        Ok(Response::new(wire::PathsReply { version, ..reply }))
    }

    async fn look_up(
        &self,
        request: Request<wire::LookUpRequest>,
    ) -> Result<Response<wire::LookUpReply>, Status> {
        let request = request.into_inner();
        let version = version(request.versions)?;
        let reply = self.agent.look_up(request).await?;
        Ok(Response::new(wire::LookUpReply { version, ..reply }))
    }
}

fn pod(sent: Option<wire::Pod>) -> Result<AgentPod, Status> {
    let wire::Pod { uid, namespace, name, container } = sent.unwrap_or_default();
    if namespace.is_empty() || name.is_empty() {
        return Err(Status::invalid_argument("the pod has no name"));
    }
    Ok(AgentPod { uid, name: PodName { namespace, name }, container })
}

/// The version to answer in.
pub(crate) fn version(sent: Option<wire::Versions>) -> Result<u32, Status> {
    let wire::Versions { oldest, newest } = sent.unwrap_or_default();
    SPOKEN.negotiate(Versions { oldest, newest }).map_err(|no| {
        Status::failed_precondition(format!(
            "the agent speaks protocol version {}, was asked in {}",
            no.ours, no.theirs
        ))
    })
}
