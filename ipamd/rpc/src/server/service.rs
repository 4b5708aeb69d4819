//! The gRPC service: it converts requests, limits their number and answers in the negotiated version.

use crate::{
    Assignment, Collect, Collected, Confirm, Enforcer, Malformed, PoolStatus, Reason, Refusal,
    Release, Released, Reserve, ReserveOutcome,
    message::conversion::{self, reply},
    negotiate, trace,
    wire::{self, ipam_server},
};
use config_model::{EnforcingMode, HostEndMode, PodKey, PodName};
use runtime_socket::server::MAX_REQUESTS;
use std::{future::Future, sync::Arc};
use tokio::sync::{Semaphore, SemaphorePermit};
use tonic::{Request, Response, Status};
use tracing::Instrument as _;

/// The daemon's implementation of the calls. The plugin may repeat each call and must get the same result.
///
/// The future of a call is dropped if the caller disconnects or its deadline passes. A partly executed call must leave
/// a consistent state: a reservation lapses unless it is confirmed.
pub trait Ipam: Send + Sync + 'static {
    /// Reserves addresses for the key, and waits for them for at most `request.wait`.
    fn reserve(
        &self,
        request: Reserve,
    ) -> impl Future<Output = Result<ReserveOutcome, CallFailed>> + Send;

    /// Confirms that the interface is built. Returns false if the key has no reservation.
    fn confirm(&self, request: Confirm) -> impl Future<Output = Result<bool, CallFailed>> + Send;

    /// Releases the addresses.
    fn release(
        &self,
        request: Release,
    ) -> impl Future<Output = Result<Released, CallFailed>> + Send;

    /// Returns the assignment of the key.
    fn inspect(
        &self,
        key: PodKey,
    ) -> impl Future<Output = Result<Option<Assignment>, CallFailed>> + Send;

    /// Returns the state of the pool and of running pods.
    fn status(&self) -> impl Future<Output = Result<PoolStatus, CallFailed>> + Send;

    /// Releases all interfaces of a network, except those in the list and those of ADDs under way. It continues after a
    /// failure.
    fn collect(
        &self,
        request: Collect,
    ) -> impl Future<Output = Result<Collected, CallFailed>> + Send;

    /// Returns whether a pod of this name has an assignment.
    fn holds(&self, pod: &PodName) -> impl Future<Output = Result<bool, CallFailed>> + Send;

    /// The mode of pods' host ends. A plugin that cannot build it gets a refusal.
    fn host_end(&self) -> HostEndMode {
        HostEndMode::Routed
    }

    /// The component that enforces policy on pods; `None` where there is none.
    fn enforcer(&self) -> Option<Enforcer> {
        None
    }
}

/// The daemon could not carry out a call. The plugin gets the message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct CallFailed {
    /// The failed action, its object and the cause.
    pub message: String,
}

impl From<CallFailed> for Status {
    fn from(unable: CallFailed) -> Self {
        Self::internal(unable.message)
    }
}

impl From<Malformed> for Status {
    fn from(malformed: Malformed) -> Self {
        Self::invalid_argument(malformed.to_string())
    }
}

/// The refusal of a plugin whose release does not know ferrule-agent: it would start the pod without asking it.
fn refuse_old_plugin(pod: &str, mode: EnforcingMode) -> Option<Refusal> {
    let why =
        "the plugin ferrule-cni on this node is older than ferrule-agent and does not wait for it";
    match mode {
        EnforcingMode::Standard => {
            tracing::warn!(
                pod,
                why,
                "the pod starts open; install the plugin of the daemon's release"
            );
            None
        }
        EnforcingMode::Strict => {
            tracing::warn!(pod, why, "the pod does not start");
            Some(Refusal {
                reason: Reason::TryAgain,
                message: format!("policy would not hold for pod {pod}: {why}"),
                next_step:
                    "let ferrule-ipamd install put the plugin of the daemon's release in place"
                        .to_owned(),
            })
        }
    }
}

/// The refusal of a plugin that cannot build the node's mode of host ends: it would build a pod that cannot be reached.
fn refuse_mode(pod: &str, mode: &HostEndMode) -> Refusal {
    tracing::warn!(pod, ?mode, "refused: the plugin cannot build this mode of host ends");
    Refusal {
        reason: Reason::TryAgain,
        message: format!(
            "cannot build pod {pod}: the plugin ferrule-cni on this node is older than the daemon and builds no \
             bridged host ends"
        ),
        next_step: "let ferrule-ipamd install put the plugin of the daemon's release in place"
            .to_owned(),
    }
}

pub(super) struct Endpoint<I> {
    ipam: Arc<I>,
    /// The limit of reservations, which may wait for an address. It is separate from `brief`, because only a release
    /// ends the wait.
    waiting: Semaphore,
    brief: Semaphore,
}

impl<I> Endpoint<I> {
    pub(super) fn new(ipam: Arc<I>) -> Self {
        let room = || Semaphore::new(MAX_REQUESTS);
        Self { ipam, waiting: room(), brief: room() }
    }

    /// Returns a permit for one more request, and the version of its answer.
    fn admit(
        room: &Semaphore,
        theirs: Option<wire::Versions>,
    ) -> Result<(u32, SemaphorePermit<'_>), Status> {
        let theirs = reply::versions(theirs);
        let version = negotiate(theirs).map_err(|e| {
            Status::failed_precondition(format!(
                "the daemon speaks protocol version {}, was asked in {}",
                e.ours, e.theirs
            ))
        })?;
        let room = room.try_acquire().map_err(|_| {
            Status::resource_exhausted(format!("{MAX_REQUESTS} requests are under way"))
        })?;
        Ok((version, room))
    }
}

impl<I: Ipam> Endpoint<I> {
    /// The enforcer that the plugin reports the end of a sandbox to. There is none while the pod has another sandbox:
    /// aws-network-policy-agent knows pods by name only, and would drop the policies of the other one.
    async fn agent_of_gone(&self, pod: Option<&PodName>) -> Option<Enforcer> {
        let agent = self.ipam.enforcer()?;
        let lives = match pod {
            Some(pod) => self.ipam.holds(pod).await.unwrap_or(true),
            None => false,
        };
        (!lives).then_some(agent)
    }
}

#[tonic::async_trait]
impl<I: Ipam> ipam_server::Ipam for Endpoint<I> {
    async fn reserve(
        &self,
        request: Request<wire::ReserveRequest>,
    ) -> Result<Response<wire::ReserveReply>, Status> {
        let trace = trace::span(request.metadata());
        let request = request.into_inner();
        let (version, _room) = Self::admit(&self.waiting, request.versions)?;
        let enforcer = self.ipam.enforcer();
        if let (Some(Enforcer::FerruleAgent { mode, .. }), false) =
            (&enforcer, request.awaits_agent)
        {
            let pod = request.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name));
            let pod = pod.unwrap_or_default();
            if let Some(refusal) = refuse_old_plugin(&pod, *mode) {
                let outcome = Some(ReserveOutcome::Refused(refusal).into());
                return Ok(Response::new(wire::ReserveReply {
                    version,
                    outcome,
                    ..wire::ReserveReply::default()
                }));
            }
        }
        let mode = self.ipam.host_end();
        if !conversion::host_end::is_supported(&mode, &request.host_end_modes) {
            let pod = request.pod.as_ref().map(|pod| format!("{}/{}", pod.namespace, pod.name));
            let refusal = refuse_mode(&pod.unwrap_or_default(), &mode);
            let outcome = Some(ReserveOutcome::Refused(refusal).into());
            return Ok(Response::new(wire::ReserveReply {
                version,
                outcome,
                ..wire::ReserveReply::default()
            }));
        }
        let outcome = self.ipam.reserve(request.try_into()?).instrument(trace).await?;
        let (policy_agent, agent) = conversion::enforcer_to_wire(enforcer);
        let outcome = Some(outcome.into());
        Ok(Response::new(wire::ReserveReply { version, outcome, policy_agent, agent }))
    }

    async fn confirm(
        &self,
        request: Request<wire::ConfirmRequest>,
    ) -> Result<Response<wire::ConfirmReply>, Status> {
        let trace = trace::span(request.metadata());
        let request = request.into_inner();
        let (version, _room) = Self::admit(&self.brief, request.versions)?;
        let confirmed = self.ipam.confirm(request.try_into()?).instrument(trace).await?;
        Ok(Response::new(wire::ConfirmReply { version, confirmed }))
    }

    async fn release(
        &self,
        request: Request<wire::ReleaseRequest>,
    ) -> Result<Response<wire::ReleaseReply>, Status> {
        let trace = trace::span(request.metadata());
        let request = request.into_inner();
        let (version, _room) = Self::admit(&self.brief, request.versions)?;
        let request: Release = request.try_into()?;
        let pod = request.pod.as_ref().map(|pod| pod.name.clone());
        let released = self.ipam.release(request).instrument(trace).await?;
        let agent = self.agent_of_gone(pod.as_ref()).await;
        Ok(Response::new(reply::released(released, agent, version)))
    }

    async fn inspect(
        &self,
        request: Request<wire::InspectRequest>,
    ) -> Result<Response<wire::InspectReply>, Status> {
        let trace = trace::span(request.metadata());
        let request = request.into_inner();
        let (version, _room) = Self::admit(&self.brief, request.versions)?;
        let held = self.ipam.inspect(reply::inspected_key(request)?).instrument(trace).await?;
        Ok(Response::new(reply::inspected(held, version)))
    }

    async fn status(
        &self,
        request: Request<wire::StatusRequest>,
    ) -> Result<Response<wire::StatusReply>, Status> {
        let trace = trace::span(request.metadata());
        let request = request.into_inner();
        let (version, _room) = Self::admit(&self.brief, request.versions)?;
        let status = self.ipam.status().instrument(trace).await?;
        Ok(Response::new(reply::status(status, version)))
    }

    async fn collect(
        &self,
        request: Request<wire::CollectRequest>,
    ) -> Result<Response<wire::CollectReply>, Status> {
        let trace = trace::span(request.metadata());
        let request = request.into_inner();
        let (version, _room) = Self::admit(&self.brief, request.versions)?;
        let collected = self.ipam.collect(request.try_into()?).instrument(trace).await?;
        Ok(Response::new(reply::collected(collected, version)))
    }
}

#[cfg(test)]
mod tests;
