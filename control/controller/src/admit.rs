//! Who may follow, announce and report: agents' pods, each for its own node.

mod ask;
mod claims;
mod judge;
mod review_cache;
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

/// Lets agents in.
pub(crate) struct Gate {
    office: Arc<SharedHub>,
    desk: Arc<ReportCollector>,
    reviews: ReviewCache<ApiServer>,
    agents: Arc<Agents>,
    metrics: Arc<Metrics>,
    refused: LogLimiter,
}

impl Gate {
    pub(crate) fn new(
        office: Arc<SharedHub>,
        desk: Arc<ReportCollector>,
        client: Client,
        audience: String,
        agents: Arc<Agents>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let account: Account = agents.account.clone();
        let api = ApiServer { client, audience, agents: account.clone(), metrics: metrics.clone() };
        let reviews = ReviewCache::new(api, account);
        Self { office, desk, reviews, agents, metrics, refused: LogLimiter::default() }
    }

    async fn caller(&self, token: &str) -> Result<Caller, Refusal> {
        let reviewed = self.reviews.of(token, &self.agents).await?;
        // Each time anew: a pod may have gone since its token was shown.
        let node = judge::node(&reviewed.bound, &self.agents)?;
        let Bound { pod, uid, .. } = reviewed.bound;
        Ok(Caller { node, pod, uid, until: reviewed.until })
    }

    /// What somebody is told who is not let in, or not any longer.
    fn refused(&self, refusal: &Refusal) -> Status {
        let why = refusal.to_string();
        self.refuse(refusal.reason(), &why);
        match refusal {
            Refusal::Token(_) | Refusal::Audience(_) => Status::unauthenticated(why),
            Refusal::Account(_) | Refusal::Unbound | Refusal::Node { .. } => {
                Status::permission_denied(why)
            }
            // The watch may be a moment behind.
            Refusal::Pod(_) | Refusal::Unasked(_) => Status::unavailable(why),
        }
    }

    fn refuse(&self, reason: &'static str, why: &str) {
        self.metrics.refused(reason);
        if let Some(unsaid) = self.refused.now() {
            tracing::warn!(reason, why, unsaid, "a caller is refused");
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
        if let Some(unsaid) = self.refused.now() {
            let why = "it took nothing, or held nothing, for long: what it lacks it is told when it comes back";
            tracing::warn!(node, why, unsaid, "a node's stream is ended");
        }
    }

    async fn announce(&self, caller: &Caller, request: AnnounceRequest) -> Result<(), Status> {
        let announce = said(request).inspect_err(|status| self.refuse("odd", status.message()))?;
        let now_ms = self.office.now_ms();
        let taken = self.office.with(|hub| hub.announce(&caller.node, &announce, now_ms));
        taken.map_err(|refused| {
            let why = refused.to_string();
            self.metrics.refused_announcement(refused.reason());
            if let Some(unsaid) = self.refused.now() {
                let (reason, node) = (refused.reason(), &caller.node);
                tracing::warn!(reason, node, why, unsaid, "an announcement is refused");
            }
            if refused.is_retryable() {
                Status::unavailable(why)
            } else {
                Status::permission_denied(why)
            }
        })
    }

    async fn report(&self, caller: &Caller, request: ReportRequest) -> Result<(), Status> {
        if self.desk.report(&caller.node, request) {
            return Ok(());
        }
        // It held the Lease a moment ago, or the node has an old bookmark.
        self.metrics.refused("report");
        Err(Status::failed_precondition(
            "this replica takes no reports: the newest bookmark says who does",
        ))
    }

    fn held(&self, node: &str, generation: u64, since: Instant) {
        self.metrics.propagation.held(node, generation, since);
    }

    fn ended(&self, node: &str) {
        self.metrics.propagation.ended(node);
    }
}

/// What an agent says, read.
fn said(request: AnnounceRequest) -> Result<Announce, Status> {
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
        let read = said(request(&[&[10, 0, 0, 1], &[0xfd; 16]])).map(|said| said.addresses.len());
        assert_eq!(read.ok(), Some(2));
        for odd in [&[][..], &[1, 2, 3], &[0; 17]] {
            assert!(said(request(&[&[10, 0, 0, 1], odd])).is_err(), "{odd:?}");
        }
    }
}
