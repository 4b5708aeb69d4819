//! Who may follow, announce and report: agents' pods, each for its own node.

mod judge;
mod reviews;

use crate::{
    agents::{Account, Agents},
    metrics::Metrics,
    rarely::Rarely,
};
use judge::Refusal;
use kube::Client;
use policy_rpc::{Admit, Caller};
use policy_wire::proto::{AnnounceRequest, ReportRequest};
use reviews::Reviews;
use std::sync::Arc;
use tonic::Status;

/// Lets agents in.
pub(crate) struct Gate {
    reviews: Reviews,
    agents: Arc<Agents>,
    metrics: Arc<Metrics>,
    refused: Rarely,
}

impl Gate {
    pub(crate) fn new(
        client: Client,
        audience: String,
        agents: Arc<Agents>,
        metrics: Arc<Metrics>,
    ) -> Self {
        let account: Account = agents.account.clone();
        let reviews = Reviews::new(client, audience, account, metrics.clone());
        Self { reviews, agents, metrics, refused: Rarely::default() }
    }

    async fn caller(&self, token: &str) -> Result<Caller, Refusal> {
        let reviewed = self.reviews.of(token).await?;
        // Each time anew: a pod may have gone since its token was shown.
        let node = judge::node(&reviewed.bound, &self.agents)?;
        Ok(Caller { node, until: reviewed.until })
    }

    fn refuse(&self, reason: &'static str, why: &str) {
        self.metrics.refused(reason);
        if let Some(unsaid) = self.refused.now() {
            tracing::warn!(reason, why, unsaid, "a caller is refused");
        }
    }
}

#[tonic::async_trait]
impl Admit for Gate {
    async fn admit(&self, token: &str) -> Result<Caller, Status> {
        self.caller(token).await.map_err(|refusal| {
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
        })
    }

    async fn announce(&self, _: &Caller, _: AnnounceRequest) -> Result<(), Status> {
        self.refuse("announce", "announcements are not taken yet");
        Err(Status::unimplemented("announcements are not taken yet"))
    }

    async fn report(&self, _: &Caller, _: ReportRequest) -> Result<(), Status> {
        Ok(())
    }

    fn held(&self, node: &str, generation: u64) {
        self.metrics.propagation.held(node, generation);
    }

    fn ended(&self, node: &str) {
        self.metrics.propagation.ended(node);
    }
}
