//! Token reviews by the API server.

use super::{
    claims::Claims,
    judge::{Bound, Refusal, read},
};
use crate::{agents::Account, fault::Fault, metrics::Metrics};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use std::{
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::time::timeout;

/// Timeout of a review.
const ANSWER: Duration = Duration::from_secs(8);

/// A token that the API server accepted.
#[derive(Clone, Debug)]
pub(crate) struct Reviewed {
    pub(crate) bound: Bound,
    /// Expiry of the token.
    pub(crate) until: Option<Instant>,
}

/// The owner of a token, or the refusal.
pub(crate) type Answer = Result<Reviewed, Refusal>;

/// A reviewer of tokens: the API server, or a fake in tests.
pub(crate) trait Ask: Send + Sync + 'static {
    /// Returns the owner of a token.
    fn ask(&self, token: &str) -> impl Future<Output = Answer> + Send;
}

pub(crate) struct ApiServer {
    pub(crate) client: Client,
    pub(crate) audience: String,
    pub(crate) agents: Account,
    pub(crate) metrics: Arc<Metrics>,
}

impl Ask for ApiServer {
    async fn ask(&self, token: &str) -> Answer {
        let audiences = Some(vec![self.audience.clone()]);
        let spec = TokenReviewSpec { token: token.to_owned(), audiences };
        let review = TokenReview { spec, ..TokenReview::default() };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let params = PostParams::default();
        let answer = timeout(ANSWER, api.create(&params, &review)).await;
        let answer = answer.map_err(|_| Fault::late("create", REVIEWS));
        let answer =
            answer.and_then(|answer| answer.map_err(|error| Fault::of(&error, "create", REVIEWS)));
        let review = answer.map_err(|fault| {
            self.metrics.reviewed("error");
            let Fault { cause, next_step, .. } = fault;
            Refusal::Unreviewed(if next_step.is_empty() {
                cause
            } else {
                format!("{cause}; {next_step}")
            })
        })?;
        let bound = read(&review.status.unwrap_or_default(), &self.audience, &self.agents);
        self.metrics.reviewed(if bound.is_ok() { "taken" } else { "refused" });
        let until = Claims::of(token).and_then(|claims| claims.ends());
        Ok(Reviewed { bound: bound?, until })
    }
}

const REVIEWS: &str = "tokenreviews.authentication.k8s.io";
