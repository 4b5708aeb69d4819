//! One replica takes reports and writes status: the holder of a Lease, which says where it is.

mod candidate;

use crate::{
    fault::{Fault, Sort},
    metrics::Metrics,
    status::ReportCollector,
};
use candidate::{Candidate, Next, Seen};
use control_rpc::SharedHub;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use std::{future::Future, sync::Arc, time::Duration};
use tokio::{
    sync::watch,
    time::{Instant, sleep, timeout},
};

/// Where the holder takes reports; on the Lease.
pub(crate) const REPORTS_TO: &str = "ferrule.io/reports-to";
/// How long a request may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How often the clock is looked at while something is waited for.
const TICK: Duration = Duration::from_millis(500);
const LEASES: &str = "leases.coordination.k8s.io";

/// A replica that would lead.
pub(crate) struct Elector {
    pub(crate) api: Api<Lease>,
    pub(crate) name: String,
    pub(crate) identity: String,
    pub(crate) lasts: Duration,
    /// Where this replica takes reports; empty if nodes would not find it.
    pub(crate) reports_to: String,
    pub(crate) office: Arc<SharedHub>,
    pub(crate) desk: Arc<ReportCollector>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) leads: watch::Sender<bool>,
}

/// It was told to stop.
struct Stopped;

impl Elector {
    pub(crate) fn api(client: Client, namespace: &str) -> Api<Lease> {
        Api::namespaced(client, namespace)
    }

    /// Stands for election until told to stop, and then gives the Lease back.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) {
        let mut candidate = Candidate::new(self.identity.clone(), self.lasts);
        let mut said = String::new();
        loop {
            let turn = self.turn(&mut candidate);
            let Ok(outcome) = self.meanwhile(turn, &mut stop).await else { break };
            self.tell(&candidate);
            match outcome {
                Err(fault) if fault.sort != Sort::Conflict && fault.cause != said => {
                    let Fault { cause, next_step, .. } = fault;
                    tracing::warn!(lease = self.name, cause, next_step, "the Lease is not kept");
                    said = cause;
                }
                Err(_) => {}
                Ok(()) => said.clear(),
            }
            let pause = self.lasts / 5 + runtime_apiserver::up_to(self.lasts / 10);
            if self.waits(pause, &candidate, &mut stop).await.is_err() {
                break;
            }
        }
        let led = candidate.leads(now());
        self.leads.send_replace(false);
        self.desk.keeps(false);
        self.metrics.leads(false);
        // Who it is next those know that stay.
        self.office.with(|hub| hub.set_reports_to(""));
        if led {
            self.give_back().await;
        }
    }

    /// Tells nodes where reports go, and the others of this process who leads.
    fn tell(&self, candidate: &Candidate) {
        let (leads, at) = (candidate.leads(now()), candidate.reports_to(now()));
        let is_news = *self.leads.borrow() != leads;
        if is_news {
            // Before a node hears where to go, reports are taken there.
            self.desk.keeps(leads);
            self.metrics.leads(leads);
            self.leads.send_replace(leads);
            tracing::info!(lease = self.name, leads, "who takes reports has changed");
        }
        self.office.with(|hub| hub.set_reports_to(at));
    }

    /// Looks at the Lease, and takes or renews it if that is our turn.
    async fn turn(&self, candidate: &mut Candidate) -> Result<(), Fault> {
        let lease = ask("get", self.api.get_opt(&self.name)).await?;
        let sent = now();
        let params = PostParams::default();
        let written = match candidate.look(lease.as_ref().map(seen), sent) {
            // One that has not read everything takes no reports, and must not keep others from taking them.
            _ if !self.office.with(|hub| hub.is_loaded()) => return Ok(()),
            Next::Leave => return Ok(()),
            Next::Create => ask("create", self.api.create(&params, &self.lease(None))).await?,
            Next::Take | Next::Renew => {
                let lease = self.lease(lease);
                ask("update", self.api.replace(&self.name, &params, &lease)).await?
            }
        };
        candidate.holds(seen(&written), sent);
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

    /// Pauses, but not without looking at the clock: one that is late leads no more.
    async fn waits(
        &self,
        pause: Duration,
        candidate: &Candidate,
        stop: &mut watch::Receiver<bool>,
    ) -> Result<(), Stopped> {
        let until = Instant::now() + pause;
        while Instant::now() < until {
            let left = until.duration_since(Instant::now());
            self.meanwhile(sleep(TICK.min(left)), stop).await?;
            self.tell(candidate);
        }
        Ok(())
    }

    fn lease(&self, before: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let mut lease = before.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(self.name.clone()), ..ObjectMeta::default() },
            spec: None,
        });
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

    /// Lets the next one take over at once.
    async fn give_back(&self) {
        let outcome = async {
            let Some(mut lease) = ask("get", self.api.get_opt(&self.name)).await? else {
                return Ok(());
            };
            let Some(spec) = &mut lease.spec else { return Ok(()) };
            if spec.holder_identity.as_ref() != Some(&self.identity) {
                return Ok(());
            }
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
            lease.annotations_mut().remove(REPORTS_TO);
            ask("update", self.api.replace(&self.name, &PostParams::default(), &lease))
                .await
                .map(drop)
        };
        match outcome.await {
            Ok(()) => tracing::info!(lease = self.name, "the Lease is given back"),
            Err(Fault { cause, .. }) => {
                tracing::warn!(
                    lease = self.name,
                    cause,
                    "the Lease is not given back: it runs out"
                );
            }
        }
    }
}

async fn ask<T>(verb: &str, asked: impl Future<Output = kube::Result<T>>) -> Result<T, Fault> {
    match timeout(ANSWER, asked).await {
        Ok(answer) => answer.map_err(|error| Fault::of(&error, verb, LEASES)),
        Err(_) => Err(Fault::late(verb, LEASES)),
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
