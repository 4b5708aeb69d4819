//! Tokens shown to the API server, and its answers for a while.

use super::judge::{Bound, Refusal, read};
use crate::{agents::Account, fault::Fault, metrics::Metrics};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use kube::{Api, Client, api::PostParams};
use rustls::crypto::ring::default_provider;
use serde::Deserialize;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use tokio::{sync::Semaphore, time::timeout};

/// How long an answer holds.
const HOLDS: Duration = Duration::from_secs(60);
/// How long a refusal holds: what was too early may be right soon.
const REFUSAL_HOLDS: Duration = Duration::from_secs(5);
/// How many answers are kept.
const KEPT: usize = 16_384;
/// How many tokens are shown at once.
const AT_ONCE: usize = 32;
/// How long the API server may take.
const ANSWER: Duration = Duration::from_secs(8);
/// How long a token may be: no API server makes one as large.
const LONGEST: usize = 16 << 10;

/// A token that the API server took.
#[derive(Clone, Debug)]
pub(crate) struct Reviewed {
    pub(crate) bound: Bound,
    /// When it ends.
    pub(crate) until: Option<Instant>,
}

/// The API server's answers.
pub(crate) struct Reviews {
    client: Client,
    audience: String,
    agents: Account,
    metrics: Arc<Metrics>,
    kept: Mutex<BTreeMap<[u8; 32], Kept>>,
    room: Semaphore,
}

struct Kept {
    until: Instant,
    answer: Result<Reviewed, Refusal>,
}

#[derive(Deserialize)]
struct Claims {
    exp: Option<u64>,
}

impl Reviews {
    pub(crate) fn new(
        client: Client,
        audience: String,
        agents: Account,
        metrics: Arc<Metrics>,
    ) -> Self {
        let (kept, room) = (Mutex::default(), Semaphore::new(AT_ONCE));
        Self { client, audience, agents, metrics, kept, room }
    }

    /// Whose the token is.
    pub(crate) async fn of(&self, token: &str) -> Result<Reviewed, Refusal> {
        if token.len() > LONGEST {
            return Err(Refusal::Token("it is too long".to_owned()));
        }
        let key = hash(token)?;
        if let Some(answer) = self.kept(&key) {
            return answer;
        }
        let Ok(_room) = self.room.acquire().await else {
            return Err(Refusal::Unasked("this replica ends".to_owned()));
        };
        // Somebody may have asked the same meanwhile.
        if let Some(answer) = self.kept(&key) {
            return answer;
        }
        let answer = self.ask(token).await;
        if !matches!(answer, Err(Refusal::Unasked(_))) {
            self.keep(key, &answer);
        }
        answer
    }

    async fn ask(&self, token: &str) -> Result<Reviewed, Refusal> {
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
            Refusal::Unasked(if next_step.is_empty() {
                cause
            } else {
                format!("{cause}; {next_step}")
            })
        })?;
        let bound = read(&review.status.unwrap_or_default(), &self.audience, &self.agents);
        self.metrics.reviewed(if bound.is_ok() { "taken" } else { "refused" });
        Ok(Reviewed { bound: bound?, until: ends(token) })
    }

    fn kept(&self, key: &[u8; 32]) -> Option<Result<Reviewed, Refusal>> {
        let mut all = self.all();
        let kept = all.get(key)?;
        let now = Instant::now();
        let has_ended = |of: &Result<Reviewed, Refusal>| {
            of.as_ref().is_ok_and(|of| of.until.is_some_and(|until| until <= now))
        };
        if kept.until <= now || has_ended(&kept.answer) {
            all.remove(key);
            return None;
        }
        Some(kept.answer.clone())
    }

    fn keep(&self, key: [u8; 32], answer: &Result<Reviewed, Refusal>) {
        let mut all = self.all();
        let now = Instant::now();
        if all.len() >= KEPT {
            all.retain(|_, kept| kept.until > now);
        }
        // Full of what holds: the API server is asked again.
        if all.len() < KEPT {
            let holds = if answer.is_ok() { HOLDS } else { REFUSAL_HOLDS };
            all.insert(key, Kept { until: now + holds, answer: answer.clone() });
        }
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<[u8; 32], Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// SHA-256, of the provider that TLS has anyway: tokens are not kept in memory.
fn hash(token: &str) -> Result<[u8; 32], Refusal> {
    let provider = default_provider();
    let suites = provider.cipher_suites.iter();
    let hashes = suites.filter_map(|suite| suite.tls13().map(|suite| suite.common.hash_provider));
    let mut found = hashes.filter(|hash| hash.output_len() == 32);
    let hash = found.next().map(|hash| hash.hash(token.as_bytes()));
    let bytes = hash.and_then(|hash| <[u8; 32]>::try_from(hash.as_ref()).ok());
    bytes.ok_or_else(|| Refusal::Unasked("no SHA-256 is there".to_owned()))
}

/// When a token ends that the API server took, as it says itself.
fn ends(token: &str) -> Option<Instant> {
    let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1)?).ok()?;
    let claims: Claims = serde_json::from_slice(&claims).ok()?;
    let ends = UNIX_EPOCH + Duration::from_secs(claims.exp?);
    let left = ends.duration_since(SystemTime::now()).unwrap_or_default();
    Some(Instant::now() + left)
}

const REVIEWS: &str = "tokenreviews.authentication.k8s.io";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_says_when_it_ends() {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let token = |claims: String| format!("e30.{}.c2ln", BASE64_URL_SAFE_NO_PAD.encode(claims));
        let until = ends(&token(format!("{{\"exp\":{}}}", now + 1_000))).expect("an end");
        let left = until.duration_since(Instant::now());
        assert!(left > Duration::from_secs(900) && left <= Duration::from_secs(1_000), "{left:?}");
        assert!(ends(&token("{\"exp\":1}".to_owned())).expect("an end") <= Instant::now());
        assert!(ends(&token("{}".to_owned())).is_none());
        assert!(ends("no token").is_none());
    }

    #[test]
    fn tokens_that_differ_have_different_hashes() {
        assert_ne!(hash("a"), hash("b"));
        assert_eq!(hash("a"), hash("a"));
    }
}
