//! Leader election. The holder of a Lease collects reports and writes status; the Lease has its address.

mod candidate;

use crate::{
    fault::{Fault, Sort, answer_within},
    metrics::Metrics,
    status::ReportCollector,
};
use candidate::{Candidate, Next, Seen};
use control_rpc::SharedHub;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep},
};

/// Annotation of the Lease with the holder's address for reports.
pub(crate) const REPORTS_TO: &str = "ferrule.io/reports-to";
/// Timeout of a request.
const ANSWER: Duration = Duration::from_secs(5);
/// Interval of checks of the clock during a pause.
const TICK: Duration = Duration::from_millis(500);
const LEASES: &str = "leases.coordination.k8s.io";

pub(crate) struct Elector {
    pub(crate) api: Api<Lease>,
    pub(crate) name: String,
    pub(crate) identity: String,
    pub(crate) lasts: Duration,
    /// This replica's address for reports; empty if nodes cannot reach it.
    pub(crate) reports_to: String,
    pub(crate) hub: Arc<SharedHub>,
    pub(crate) reports: Arc<ReportCollector>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) leads: watch::Sender<bool>,
}

/// The replica stops.
struct Stopped;

impl Elector {
    pub(crate) fn api(client: Client, namespace: &str) -> Api<Lease> {
        Api::namespaced(client, namespace)
    }

    /// Takes part in the election until the replica stops, and then releases the Lease.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut candidate = Candidate::new(self.identity.clone(), self.lasts);
        let mut last_cause = String::new();
        loop {
            let round = self.round(&mut candidate);
            let Ok(outcome) = self.meanwhile(round, &mut stop).await else { break };
            self.publish(&candidate);
            match outcome {
                Err(fault) if fault.sort != Sort::Conflict && fault.cause != last_cause => {
                    let Fault { cause, next_step, .. } = fault;
                    tracing::warn!(lease = self.name, cause, next_step, "cannot keep the Lease");
                    last_cause = cause;
                }
                Err(_) => {}
                Ok(()) => last_cause.clear(),
            }
            let pause = self.lasts / 5 + runtime_apiserver::up_to(self.lasts / 10);
            if self.pause(pause, &candidate, &mut stop).await.is_err() {
                break;
            }
        }
        let led = candidate.leads(now());
        self.leads.send_replace(false);
        self.reports.keeps(false);
        self.metrics.leads(false);
        // The next holder sends its address itself.
        self.hub.with(|hub| hub.set_reports_to(""));
        if led {
            self.release().await;
        }
    }

    /// Publishes the holder's address to nodes, and leadership to the other parts of this process.
    fn publish(&self, candidate: &Candidate) {
        let (leads, at) = (candidate.leads(now()), candidate.reports_to(now()));
        let has_changed = *self.leads.borrow() != leads;
        if has_changed {
            // Reports are accepted before the first node learns the address.
            self.reports.keeps(leads);
            self.metrics.leads(leads);
            self.leads.send_replace(leads);
            tracing::info!(lease = self.name, leads, "leadership changed");
        }
        self.hub.with(|hub| hub.set_reports_to(at));
    }

    /// Reads the Lease, and takes or renews it if possible.
    async fn round(&self, candidate: &mut Candidate) -> Result<(), Fault> {
        let lease = answer_within(ANSWER, "get", LEASES, self.api.get_opt(&self.name)).await?;
        let sent = now();
        let Some(lease) = lease else {
            candidate.missed();
            return Err(Fault::missing("get", &format!("Lease {}", self.name)));
        };
        let next = candidate.observe(seen(&lease), sent);
        // A replica that has not read every kind cannot collect reports, so it leaves the Lease to others.
        if next == Next::Leave || !self.hub.with(|hub| hub.is_loaded()) {
            return Ok(());
        }
        let (params, lease) = (PostParams::default(), self.lease(lease));
        let written =
            answer_within(ANSWER, "update", LEASES, self.api.replace(&self.name, &params, &lease))
                .await?;
        candidate.written(seen(&written), sent);
        Ok(())
    }

    async fn meanwhile<T>(
        &self,
        what: impl Future<Output = T>,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<T, Stopped> {
        tokio::select! {
            done = what => Ok(done),
            _ = stop.wait_for(|stop| *stop) => Err(Stopped),
        }
    }

    /// Pauses, and checks the clock meanwhile: a late holder no longer leads.
    async fn pause(
        &self,
        pause: Duration,
        candidate: &Candidate,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), Stopped> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            let left = until.duration_since(Instant::now());
            self.meanwhile(sleep(TICK.min(left)), stop).await?;
            self.publish(candidate);
        }
        Ok(())
    }

    fn lease(&self, mut lease: Lease) -> Lease {
        let now = MicroTime(Timestamp::now());
        lease.annotations_mut().insert(REPORTS_TO.to_owned(), self.reports_to.clone());
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_ref() != Some(&self.identity) {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(-1) + 1);
            spec.acquire_time = Some(now.clone());
            spec.holder_identity = Some(self.identity.clone());
        }
        spec.lease_duration_seconds = i32::try_from(self.lasts.as_secs()).ok();
        spec.renew_time = Some(now);
        lease
    }

    /// Releases the Lease, so that another replica takes it at once.
    async fn release(&self) {
        let outcome = async {
            let Some(mut lease) =
                answer_within(ANSWER, "get", LEASES, self.api.get_opt(&self.name)).await?
            else {
                return Ok(());
            };
            let Some(spec) = &mut lease.spec else { return Ok(()) };
            if spec.holder_identity.as_ref() != Some(&self.identity) {
                return Ok(());
            }
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            lease.annotations_mut().remove(REPORTS_TO);
            answer_within(
                ANSWER,
                "update",
                LEASES,
                self.api.replace(&self.name, &PostParams::default(), &lease),
            )
            .await
            .map(drop)
        };
        match outcome.await {
            Ok(()) => tracing::info!(lease = self.name, "Lease released"),
            Err(Fault { cause, .. }) => {
                tracing::warn!(lease = self.name, cause, "cannot release the Lease; it expires");
            }
        }
    }
}

fn seen(lease: &Lease) -> Seen {
    let spec = lease.spec.clone().unwrap_or_default();
    let lasts = spec.lease_duration_seconds.and_then(|lasts| u64::try_from(lasts).ok());
    Seen {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        lasts: Duration::from_secs(lasts.unwrap_or(0)),
        version: lease.resource_version().unwrap_or_default(),
        reports_to: lease.annotations().get(REPORTS_TO).cloned().unwrap_or_default(),
    }
}

fn now() -> std::time::Instant {
    std::time::Instant::now()
}
