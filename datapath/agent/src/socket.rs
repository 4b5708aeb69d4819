//! The calls on the agent's socket, passed to the task that owns the core.

use crate::{
    clock::Clock,
    event::Event,
    flows::{FlowLog, Query, probe},
    metrics::Metrics,
};
use datapath_node::{Answer, LocalPod, Overview, Paths, PodId};
use datapath_rpc::{Admission, Admitted, Agent, AgentPod, Flows, LISTED, wire};
use std::{sync::Arc, time::Instant};
use tokio::sync::{mpsc, oneshot};
use tonic::Status;

/// Answers on the socket.
pub(crate) struct Socket {
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) backend: &'static str,
    pub(crate) clock: Clock,
    pub(crate) flows: Arc<FlowLog>,
    pub(crate) queries: mpsc::Sender<Query>,
}

impl Socket {
    async fn ask<T>(&self, event: impl FnOnce(oneshot::Sender<T>) -> Event) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        let ended = || Status::unavailable("the agent exits");
        self.events.send(event(reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())
    }

    /// Asks the backend.
    async fn query<T>(
        &self,
        query: impl FnOnce(oneshot::Sender<Result<T, String>>) -> Query,
    ) -> Result<T, Status> {
        let (reply, answer) = oneshot::channel();
        let ended = || Status::unavailable("the agent exits");
        self.queries.send(query(reply)).await.map_err(|_| ended())?;
        answer.await.map_err(|_| ended())?.map_err(Status::failed_precondition)
    }
}

fn id(pod: AgentPod) -> (PodId, String) {
    let AgentPod { uid, name, container } = pod;
    (PodId { uid, namespace: name.namespace, name: name.name }, container)
}

impl Agent for Socket {
    async fn admit(&self, admission: Admission) -> Result<Admitted, Status> {
        let Admission { pod, addresses, links, mode } = admission;
        let (begun, since) = (Instant::now(), self.clock.now());
        let (pod, container) = id(pod);
        let name = pod.to_string();
        let pod = LocalPod { pod, container, addresses };
        let answer = self.ask(|reply| Event::Admit { pod, links, mode, since, reply }).await?;
        self.metrics.admitted(&answer, begun.elapsed());
        Ok(match answer {
            Answer::Enforced => Admitted::Enforced,
            Answer::Open(why) => {
                tracing::warn!(pod = name, why, "the pod starts open");
                Admitted::Open(why)
            }
            Answer::Refused(why) => {
                tracing::warn!(pod = name, why, "the pod does not start");
                Admitted::Refused(why)
            }
        })
    }

    async fn forget(&self, pod: AgentPod) -> Result<(), Status> {
        let (pod, container) = id(pod);
        self.ask(|reply| Event::Forget { pod, container, reply }).await
    }

    async fn status(&self) -> Result<wire::StatusReply, Status> {
        let (overview, disk) = self.ask(|reply| Event::Overview { reply }).await?;
        Ok(status(overview, disk, self.backend))
    }

    fn flows(&self, request: wire::FlowsRequest) -> Result<Flows, Status> {
        self.flows.subscribe(&request)
    }

    async fn uses(&self) -> Result<wire::UsesReply, Status> {
        let uses = self.query(Query::Uses).await?;
        self.ask(|reply| Event::NameUses { uses, reply }).await
    }

    async fn paths(&self, uid: String) -> Result<wire::PathsReply, Status> {
        let paths = self.query(|reply| Query::Paths(uid, reply)).await?;
        let paths = paths.ok_or_else(|| Status::not_found("the node has no such pod"))?;
        let Paths { stack, pods, nodes } = paths;
        Ok(wire::PathsReply { version: 0, stack, pods, nodes })
    }

    async fn look_up(&self, request: wire::LookUpRequest) -> Result<wire::LookUpReply, Status> {
        let probe = probe(&request)?;
        let looked = self.query(|reply| Query::LookUp(probe, reply)).await?;
        self.ask(|reply| Event::NameLookups { looked, reply }).await
    }
}

fn status(overview: Overview, disk: Option<String>, backend: &str) -> wire::StatusReply {
    let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
    let [policies, address_groups, applied_groups, pods] = overview.counts.map(count);
    let failing = overview.failing.into_iter().take(LISTED);
    let pod = |PodId { uid, namespace, name }| {
        Some(wire::Pod { uid, namespace, name, container: String::new() })
    };
    let waiting = overview.waiting.into_iter().take(LISTED);
    let waiting = waiting.map(|(id, why)| wire::Waiting { pod: pod(id), why });
    let endpoints = overview.failing_endpoints.into_iter().take(LISTED);
    let endpoints = endpoints.map(|(id, why)| wire::FailingEndpoint { pod: pod(id), why });
    let services = overview.failing_services.into_iter().take(LISTED);
    let services = services.map(|(of, why)| wire::FailingService {
        namespace: of.namespace,
        name: of.name,
        why,
    });
    wire::StatusReply {
        version: 0,
        epoch: overview.epoch,
        generation: overview.generation,
        replica: overview.replica.map(|at| at.to_string()).unwrap_or_default(),
        disconnected: overview.disconnected.unwrap_or_default(),
        behind: overview.behind,
        backend: backend.to_owned(),
        revision: overview.revision,
        applied: overview.applied,
        fault: overview.fault.unwrap_or_default(),
        failing: failing.map(|(uid, name, why)| wire::Failing { uid, name, why }).collect(),
        waiting: waiting.collect(),
        policies,
        address_groups,
        applied_groups,
        pods,
        disk: disk.unwrap_or_default(),
        failing_endpoints: endpoints.collect(),
        drift: overview.drift.unwrap_or_default(),
        services: count(overview.services),
        endpoint_slices: count(overview.slices),
        failing_services: services.collect(),
    }
}
