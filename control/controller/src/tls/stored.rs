//! The Secret with authority and certificate. All replicas read it, and any of them renews it.

use super::{
    Showing,
    issued::take,
    plan::{Kept, Lives, Step, step},
};
use crate::{
    fault::{Fault, Sort, answer_within},
    options::Options,
};
use k8s_openapi::{
    ByteString,
    api::core::v1::{ConfigMap, Secret},
};
use kube::{Api, Client, api::PostParams, client::Body};
use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};
use tokio::time::sleep;

/// The Secret's entry.
const ENTRY: &str = "authority.json";
/// The ConfigMap's entry.
const BUNDLE: &str = "ca.crt";
/// Timeout of a request.
const ANSWER: Duration = Duration::from_secs(10);
/// Maximum difference to the API server's clock. Two replicas differ by twice as much, which certificates tolerate. An
/// answer may take [`ANSWER`].
const MOST_SKEW: Duration = Duration::from_secs(240);
/// Maximum number of steps of the plan in one round.
const STEPS: usize = 4;

/// Keeper of the Secret and of the published authority.
pub(super) struct Keeper {
    secrets: Api<Secret>,
    maps: Api<ConfigMap>,
    client: Client,
    namespace: String,
    secret: String,
    map: String,
    server_name: String,
    lives: Lives,
    look: Duration,
}

impl Keeper {
    pub(super) fn new(client: Client, options: &Options) -> Self {
        let shortest = options.certificate_life.min(options.authority_life);
        Self {
            secrets: Api::namespaced(client.clone(), &options.namespace),
            maps: Api::namespaced(client.clone(), &options.namespace),
            client,
            namespace: options.namespace.clone(),
            secret: options.tls_secret.clone(),
            map: options.ca_configmap.clone(),
            server_name: options.certified(),
            lives: Lives {
                certificate: options.certificate_life.as_secs(),
                authority: options.authority_life.as_secs(),
            },
            look: (shortest / 12).clamp(Duration::from_secs(1), Duration::from_secs(60)),
        }
    }

    /// Executes due steps, publishes the authority, and serves the certificate, forever.
    pub(super) async fn run(self, showing: &mut Showing) {
        let (mut backoff, mut last_cause) = (crate::api::backoff(), String::new());
        loop {
            match self.round(showing).await {
                Ok(()) => {
                    backoff.reset();
                    last_cause.clear();
                    sleep(self.look).await;
                }
                // Another replica has changed the Secret, so it is read again.
                Err(fault) if fault.sort == Sort::Conflict => sleep(backoff.pause()).await,
                Err(fault) => {
                    showing.record_lack(&fault.cause);
                    if last_cause != fault.cause {
                        let Fault { cause, next_step, .. } = fault;
                        tracing::warn!(cause, next_step, "cannot keep certificates");
                        last_cause = cause;
                    }
                    sleep(backoff.pause()).await;
                }
            }
        }
    }

    async fn round(&self, showing: &mut Showing) -> Result<(), Fault> {
        let secret =
            answer_within(ANSWER, "get", SECRETS, self.secrets.get_opt(&self.secret)).await?;
        let missing =
            || Fault::missing("get", &format!("Secret {}/{}", self.namespace, self.secret));
        let mut secret = secret.ok_or_else(missing)?;
        let mut kept = read(&secret);
        // A replica with a wrong clock serves what others have made, and makes nothing.
        let mut clock = Ok(());
        for _ in 0..STEPS {
            let now = now();
            let step = step(kept.as_ref(), &self.server_name, &self.lives, now);
            let made = take(step, kept.clone(), &self.server_name, &self.lives, now);
            let made =
                made.map_err(|error| Fault::odd("make", "certificates", &error.to_string()))?;
            let Some(made) = made else { break };
            clock = self.check_clock().await;
            if clock.is_err() {
                break;
            }
            secret = self.write(secret, &made, step).await?;
            kept = Some(made);
        }
        let Some(kept) = kept else { return clock };
        // Nodes get the authority before the certificate.
        self.publish(&kept.bundle()).await?;
        let shown = showing.show(kept.serving.certificate.as_bytes(), kept.serving.key.as_bytes());
        shown.map_err(|error| Fault::odd("show", "the certificate", &format!("{error:#}")))?;
        // With a wrong clock the end of the certificate is not known.
        clock?;
        showing.check_end();
        Ok(())
    }

    /// Fails if this replica's clock differs from the API server's. Its certificates would be wrong for all replicas.
    async fn check_clock(&self) -> Result<(), Fault> {
        let request = http::Request::get("/version").body(Body::empty());
        let request = request.map_err(|error| Fault::odd("read", "version", &error.to_string()))?;
        let answer = answer_within(ANSWER, "get", "version", self.client.send(request)).await?;
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        match date.and_then(|date| skew(date, SystemTime::now())) {
            Some(skew) => {
                let why = format!("the clock of this node is {skew} the API server's");
                let next_step = "set the node's time".to_owned();
                Err(Fault { next_step, ..Fault::odd("issue", "certificates", &why) })
            }
            None => Ok(()),
        }
    }

    async fn write(&self, mut secret: Secret, kept: &Kept, step: Step) -> Result<Secret, Fault> {
        let text = serde_json::to_vec(kept)
            .map_err(|error| Fault::odd("write", "certificates", &error.to_string()))?;
        secret.data = Some(BTreeMap::from([(ENTRY.to_owned(), ByteString(text))]));
        let params = PostParams::default();
        let written = self.secrets.replace(&self.secret, &params, &secret);
        let written = answer_within(ANSWER, "update", SECRETS, written).await?;
        tracing::info!(secret = self.secret, ?step, "certificates issued");
        Ok(written)
    }

    async fn publish(&self, bundle: &str) -> Result<(), Fault> {
        let map = answer_within(ANSWER, "get", MAPS, self.maps.get_opt(&self.map)).await?;
        let missing =
            || Fault::missing("get", &format!("ConfigMap {}/{}", self.namespace, self.map));
        let mut map = map.ok_or_else(missing)?;
        let data = map.data.get_or_insert_default();
        if data.get(BUNDLE).is_some_and(|published| published == bundle) {
            return Ok(());
        }
        data.insert(BUNDLE.to_owned(), bundle.to_owned());
        let params = PostParams::default();
        answer_within(ANSWER, "update", MAPS, self.maps.replace(&self.map, &params, &map))
            .await
            .map(drop)
    }
}

/// Returns `None` for a Secret that no replica has filled yet.
fn read(secret: &Secret) -> Option<Kept> {
    let entry = secret.data.as_ref()?.get(ENTRY)?;
    let read = serde_json::from_slice(&entry.0);
    read.inspect_err(|error| {
        tracing::warn!(%error, "cannot read {ENTRY} of the Secret; issuing new certificates");
    })
    .ok()
}

/// The difference of this clock to the date of an answer in words. `None` if it is small, or if the date cannot be read.
fn skew(date: &str, now: SystemTime) -> Option<String> {
    let date = httpdate::parse_http_date(date).ok()?;
    match now.duration_since(date) {
        Ok(ahead) if ahead > MOST_SKEW => Some(format!("{} ahead of", in_words(ahead))),
        Err(behind) if behind.duration() > MOST_SKEW => {
            Some(format!("{} behind", in_words(behind.duration())))
        }
        Ok(_) | Err(_) => None,
    }
}

/// Rounds to the nearest unit, so that the same difference has the same words at the next look.
fn in_words(skew: Duration) -> String {
    let (unit, seconds) = match skew.as_secs() {
        0..7_200 => ("minutes", 60),
        7_200..172_800 => ("hours", 3_600),
        _ => ("days", 86_400),
    };
    format!("{} {unit}", (skew.as_secs() + seconds / 2) / seconds)
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

const SECRETS: &str = "secrets";
const MAPS: &str = "configmaps";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_minutes_off_is_reported() {
        let date = "Fri, 27 Nov 2026 08:00:00 GMT";
        let at = |seconds: u64| UNIX_EPOCH + Duration::from_secs(seconds);
        let same = 1_795_766_400;
        for near in [same - 240, same, same + 240] {
            assert_eq!(skew(date, at(near)), None);
        }
        assert_eq!(skew(date, at(same + 34_560_000)).as_deref(), Some("400 days ahead of"));
        assert_eq!(skew(date, at(same - 3_600)).as_deref(), Some("60 minutes behind"));
        assert_eq!(skew("yesterday", at(same)), None);
    }
}
