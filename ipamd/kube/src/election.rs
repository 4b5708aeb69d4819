//! The election of one daemon per node group with a Lease.

mod candidate;

use crate::{
    ClusterFact, Concern, Election, clock,
    fault::{Fault, Kind},
    request,
    status_reporter::StatusReporter,
};
use candidate::{Candidate, Next, Seen};
use config_model::Span;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
    jiff::Timestamp,
};
use kube::{Api, Client, ResourceExt as _};
use std::{future::Future, time::Duration};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};

/// Takes part in the election until it is stopped, and then releases the Lease.
pub(crate) struct Elector {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) election: Election,
    pub(crate) facts: mpsc::Sender<ClusterFact>,
    pub(crate) status: StatusReporter,
}

/// The election's state: this daemon's leadership, and the pool's last report of it.
struct ElectionState {
    candidate: Candidate,
    reported: bool,
    stop: watch::Receiver<bool>,
}

/// The daemon has stopped.
struct Stopped;

impl Elector {
    pub(crate) async fn run(self, stop: watch::Receiver<bool>) {
        let api = Api::<Lease>::namespaced(self.client.clone(), &self.namespace);
        let name = lease_name(&self.election.node_group);
        self.status.waiting(Concern::Election, "the first read of the Lease");
        let candidate = Candidate::new(&self.election);
        let mut state = ElectionState { candidate, reported: false, stop };
        loop {
            match self.turn(&api, &name, &mut state).await {
                Ok(Ok(())) => self.status.good(Concern::Election, &name),
                // Another daemon updated the Lease first.
                Ok(Err(fault)) if fault.kind == Kind::Conflict => {}
                Ok(Err(fault)) => self.status.failing(Concern::Election, &name, &fault),
                Err(Stopped) => break,
            }
            let pause = self.pause(state.candidate.leads(clock::now()));
            if self.meanwhile(sleep(pause), &mut state).await.is_err() {
                break;
            }
        }
        if state.reported {
            let _ = self.facts.try_send(ClusterFact::Collector(false));
            self.give_back(&api, &name).await;
        }
    }

    fn pause(&self, leads: bool) -> Duration {
        let pace = &self.election.pace;
        if leads { pace.renew } else { pace.look + runtime_apiserver::up_to(pace.look / 2) }
    }

    /// Reads the Lease, and takes or renews it if due.
    async fn turn(
        &self,
        api: &Api<Lease>,
        name: &str,
        state: &mut ElectionState,
    ) -> Result<Result<(), Fault>, Stopped> {
        let look = request::in_time("get", LEASES, api.get_opt(name));
        let lease = match self.meanwhile(look, state).await? {
            Ok(lease) => lease,
            Err(fault) => return Ok(Err(fault)),
        };
        let sent = clock::now();
        let written = match state.candidate.look(lease.as_ref().map(seen).as_ref(), sent) {
            Next::Leave => return Ok(Ok(())),
            Next::Create => {
                let lease = self.lease(name, None);
                self.meanwhile(request::create(api, LEASES, &lease), state).await?
            }
            Next::Take | Next::Renew => {
                let lease = self.lease(name, lease);
                self.meanwhile(request::replace(api, name, LEASES, &lease), state).await?
            }
        };
        Ok(written.map(|_| state.candidate.holds_since(sent)))
    }

    /// Waits for a future and still watches the clock. The pool is informed of a lost leadership in time, even if a
    /// request hangs or the machine was suspended.
    async fn meanwhile<T>(
        &self,
        what: impl Future<Output = T>,
        state: &mut ElectionState,
    ) -> Result<T, Stopped> {
        tokio::pin!(what);
        loop {
            let leads = state.candidate.leads(clock::now());
            if leads != state.reported {
                state.reported = leads;
                self.facts.send(ClusterFact::Collector(leads)).await.map_err(|_| Stopped)?;
            }
            tokio::select! {
                done = &mut what => return Ok(done),
                _ = state.stop.wait_for(|stop| *stop) => return Err(Stopped),
                () = sleep(TICK) => {}
            }
        }
    }

    fn lease(&self, name: &str, before: Option<Lease>) -> Lease {
        let now = MicroTime(Timestamp::now());
        let mut lease = before.unwrap_or_else(|| Lease {
            metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
            spec: None,
        });
        let spec = lease.spec.get_or_insert_with(LeaseSpec::default);
        if spec.holder_identity.as_ref() != Some(&self.election.identity) {
            spec.lease_transitions = Some(spec.lease_transitions.unwrap_or(-1) + 1);
            spec.acquire_time = Some(now.clone());
            spec.holder_identity = Some(self.election.identity.clone());
        }
        spec.lease_duration_seconds = i32::try_from(self.election.pace.lease.as_secs()).ok();
        spec.renew_time = Some(now);
        lease
    }

    /// Releases the Lease, so that the next daemon can take it at once.
    async fn give_back(&self, api: &Api<Lease>, name: &str) {
        let Ok(Some(mut lease)) = request::in_time("get", LEASES, api.get_opt(name)).await else {
            return;
        };
        let Some(spec) = &mut lease.spec else { return };
        if spec.holder_identity.as_ref() != Some(&self.election.identity) {
            return;
        }
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        if let Err(fault) = request::replace(api, name, LEASES, &lease).await {
            self.status.failing(Concern::Election, name, &fault);
        }
    }
}

pub(crate) fn lease_name(node_group: &str) -> String {
    format!("ferrule-leaked-eni-collector-{node_group}")
}

fn seen(lease: &Lease) -> Seen {
    let spec = lease.spec.clone().unwrap_or_default();
    Seen {
        holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
        lasts: Span::seconds(spec.lease_duration_seconds.unwrap_or(0).try_into().unwrap_or(0)),
        version: lease.resource_version().unwrap_or_default(),
    }
}

const LEASES: &str = "leases.coordination.k8s.io";
const TICK: Duration = Duration::from_millis(500);
