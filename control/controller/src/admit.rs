//! Authentication of agents. An agent's pod may follow, announce and report for its own node only.

mod ask;
mod claims;
mod judge;
mod review_cache;
mod token_hash;
mod token_queue;

use crate::{
    agents::{Account, Agents},
    log_limiter::LogLimiter,
    metrics::Metrics,
    status::ReportCollector,
};
use ask::ApiServer;
use control_hub::Announce;
use control_rpc::{Caller, Gatekeeper, SharedHub};
use control_wire::proto::{AnnounceRequest, ReportRequest};
use judge::{Bound, Refusal};
use kube::Client;
use policy_objects::Named;
use review_cache::ReviewCache;
use std::{net::IpAddr, sync::Arc, time::Instant};
use tonic::Status;

pub(crate) struct Gate {
    hub: Arc<SharedHub>,
    reports: Arc<ReportCollector>,
    reviews: ReviewCache<ApiServer>,
    agents: Arc<Agents>,
    metrics: Arc<Metrics>,
    refused: LogLimiter,
}

impl Gate {
    pub(crate) fn new(
        hub: Arc<SharedHub>,
        reports: Arc<ReportCollector>,
        client: Client,
        audience: String,
        agents: Arc<Agents>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let account: Account = agents.account.clone();
        let api = ApiServer { client, audience, agents: account.clone(), metrics: metrics.clone() };
        let reviews = ReviewCache::new(api, account);
        Self { hub, reports, reviews, agents, metrics, refused: LogLimiter::default() }
    }

    async fn caller(&self, token: &str) -> Result<Caller, Refusal> {
        let reviewed = self.reviews.of(token, &self.agents).await?;
        // The review is cached, the pod is not: it may have been removed since its token was reviewed.
        let node = judge::node(&reviewed.bound, &self.agents)?;
        let Bound { pod, uid, .. } = reviewed.bound;
        Ok(Caller { node, pod, uid, until: reviewed.until })
    }

    /// Logs and counts a refusal. Returns the status for the client.
    fn refused(&self, refusal: &Refusal) -> Status {
        let why = refusal.to_string();
        self.refuse(refusal.reason(), &why);
        match refusal {
            Refusal::Token(_) | Refusal::Audience(_) => Status::unauthenticated(why),
            Refusal::Account(_) | Refusal::Unbound | Refusal::Node { .. } => {
                Status::permission_denied(why)
            }
            // The watch of pods may be a moment behind, so the client retries.
            Refusal::Pod(_) | Refusal::Unreviewed(_) => Status::unavailable(why),
        }
    }

    fn refuse(&self, reason: &'static str, why: &str) {
        self.metrics.refused(reason);
        if let Some(suppressed) = self.refused.now() {
            tracing::warn!(reason, why, suppressed, "client refused");
        }
    }
}

#[tonic::async_trait]
impl Gatekeeper for Gate {
    async fn admit(&self, token: &str) -> Result<Caller, Status> {
        self.caller(token).await.map_err(|refusal| self.refused(&refusal))
    }

    fn still(&self, caller: &Caller) -> Result<(), Status> {
        let Caller { node, pod, uid, .. } = caller;
        judge::still(pod, uid, node, &self.agents).map_err(|refusal| self.refused(&refusal))
    }

    fn stuck(&self, node: &str) {
        self.metrics.stuck();
        if let Some(suppressed) = self.refused.now() {
            let why = "no ack or no read in time; the node receives the missing changes when it reconnects";
            tracing::warn!(node, why, suppressed, "stream closed");
        }
    }

    fn limited(&self, caller: &Caller, method: &'static str) {
        self.metrics.refused("limit");
        if let Some(suppressed) = self.refused.now() {
            let node = &caller.node;
            tracing::warn!(node, method, suppressed, "call refused: the node has too many calls");
        }
    }

    async fn announce(&self, caller: &Caller, request: AnnounceRequest) -> Result<(), Status> {
        let announce = read(request).inspect_err(|status| self.refuse("odd", status.message()))?;
        let now_ms = self.hub.now_ms();
        let taken = self.hub.with(|hub| hub.announce(&caller.node, &announce, now_ms));
        taken.map_err(|refused| {
            let why = refused.to_string();
            self.metrics.refused_announcement(refused.reason());
            if let Some(suppressed) = self.refused.now() {
                let (reason, node) = (refused.reason(), &caller.node);
                tracing::warn!(reason, node, why, suppressed, "announcement refused");
            }
            if refused.is_retryable() {
                Status::unavailable(why)
            } else {
                Status::permission_denied(why)
            }
        })
    }

    async fn report(&self, caller: &Caller, request: ReportRequest) -> Result<(), Status> {
        if self.reports.report(&caller.node, request) {
            return Ok(());
        }
        // This replica has lost the Lease, or the node has an old bookmark.
        self.metrics.refused("report");
        Err(Status::failed_precondition(
            "this replica does not collect reports; use the address in the newest bookmark",
        ))
    }

    fn held(&self, node: &str, generation: u64, since: Instant) {
        self.metrics.propagation.held(node, generation, since);
    }

    fn ended(&self, node: &str) {
        self.metrics.propagation.ended(node);
    }
}

/// Decodes an announcement.
fn read(request: AnnounceRequest) -> Result<Announce, Status> {
    let AnnounceRequest { uid, namespace, name, addresses } = request;
    let address = |bytes: &Vec<u8>| match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes.as_slice()).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes.as_slice()).ok().map(IpAddr::from),
        _ => None,
    };
    let read: Option<Vec<IpAddr>> = addresses.iter().map(address).collect();
    let odd = || Status::invalid_argument("an address of the pod has neither 4 nor 16 bytes");
    Ok(Announce { pod: Named { namespace, name }, uid, addresses: read.ok_or_else(odd)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_have_4_or_16_bytes() {
        let request = |addresses: &[&[u8]]| AnnounceRequest {
            uid: "u".to_owned(),
            namespace: "x".to_owned(),
            name: "p".to_owned(),
            addresses: addresses.iter().map(|bytes| bytes.to_vec()).collect(),
        };
        let count = read(request(&[&[10, 0, 0, 1], &[0xfd; 16]])).map(|read| read.addresses.len());
        assert_eq!(count.ok(), Some(2));
        for odd in [&[][..], &[1, 2, 3], &[0; 17]] {
            assert!(read(request(&[&[10, 0, 0, 1], odd])).is_err(), "{odd:?}");
        }
    }
}
