//! Token reviews and a cache of their answers.

use super::{
    ask::{Answer, Ask},
    claims::Claims,
    judge::Refusal,
    token_hash::{TokenHash, hash},
    token_queue::{Place, TokenQueue},
};
use crate::agents::{Account, Agents};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, watch};

/// Lifetime of a cached acceptance.
const HOLDS: Duration = Duration::from_secs(60);
/// Lifetime of a cached refusal. It is short, as a token can arrive before its pod.
const REFUSAL_HOLDS: Duration = Duration::from_secs(5);
/// Maximum number of cached answers.
const KEPT: usize = 16_384;
/// Maximum number of concurrent reviews.
const AT_ONCE: usize = 32;
/// Maximum length of a token in bytes. No API server issues a larger one.
const LONGEST: usize = 16 << 10;

/// The cached answers, and the pending reviews.
pub(crate) struct ReviewCache<A>(Arc<Shared<A>>);

struct Shared<A> {
    api: A,
    agents: Account,
    known: Mutex<Known>,
    turns: TokenQueue,
    room: Semaphore,
}

/// Answers and reviews by the hashes of tokens.
#[derive(Default)]
struct Known {
    kept: BTreeMap<TokenHash, Kept>,
    /// Pending reviews, one for each token. `TokenQueue` bounds their number for each agent's pod.
    under_way: BTreeMap<TokenHash, watch::Receiver<Option<Answer>>>,
}

struct Kept {
    until: Instant,
    answer: Answer,
}

impl<A: Ask> ReviewCache<A> {
    pub(crate) fn new(api: A, agents: Account) -> Self {
        let (known, turns) = (Mutex::default(), TokenQueue::default());
        Self(Arc::new(Shared { api, agents, known, turns, room: Semaphore::new(AT_ONCE) }))
    }

    /// Returns the owner of a token. The API server reviews only tokens that name an agent's pod, and those of one pod
    /// one after another. Other tokens delay no client.
    ///
    /// A review continues if its client gives up: it keeps its place, and the client finds the answer when it returns.
    pub(crate) async fn of(&self, token: &str, agents: &Agents) -> Answer {
        if token.len() > LONGEST {
            return Err(Refusal::Token("the token is too long".to_owned()));
        }
        let key = hash(token)?;
        if let Some(answer) = self.0.known().kept(&key) {
            return answer;
        }
        let no_token = || Refusal::Token("it is no token of a service account".to_owned());
        let claims = Claims::of(token).ok_or_else(no_token)?;
        let uid = claims.agent(&self.0.agents, agents)?;
        let mut review = self.review(key, token, &uid)?;
        let answer = review.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        answer.unwrap_or_else(|| Err(Refusal::Unreviewed("the review was aborted".to_owned())))
    }

    /// Returns the pending or finished review of a token, or starts one.
    fn review(
        &self,
        key: TokenHash,
        token: &str,
        uid: &str,
    ) -> Result<watch::Receiver<Option<Answer>>, Refusal> {
        let mut known = self.0.known();
        if let Some(answer) = known.kept(&key) {
            return Ok(watch::channel(Some(answer)).1);
        }
        // A review without a sender was aborted.
        let goes_on = |review: &&watch::Receiver<_>| review.has_changed().is_ok();
        if let Some(review) = known.under_way.get(&key).filter(goes_on) {
            return Ok(review.clone());
        }
        let place = self.0.turns.place(uid, &key)?;
        let (tell, review) = watch::channel(None);
        known.under_way.insert(key, review.clone());
        let (shared, token, uid) = (self.0.clone(), token.to_owned(), uid.to_owned());
        tokio::spawn(async move {
            let answer = shared.look(&token, place).await;
            shared.turns.over(&uid, &key, &answer);
            shared.known().over(key, &answer);
            tell.send_replace(Some(answer));
        });
        Ok(review)
    }
}

impl<A: Ask> Shared<A> {
    async fn look(&self, token: &str, place: Place) -> Answer {
        let turn = place.turn().await;
        let Ok(_room) = self.room.acquire().await else {
            return Err(Refusal::Unreviewed("this replica stops".to_owned()));
        };
        let answer = self.api.ask(token).await;
        if !matches!(answer, Ok(_) | Err(Refusal::Unreviewed(_))) {
            turn.refused();
        }
        answer
    }
}

impl<A> Shared<A> {
    fn known(&self) -> MutexGuard<'_, Known> {
        runtime_lock::lock(&self.known)
    }
}

impl Known {
    fn kept(&mut self, key: &TokenHash) -> Option<Answer> {
        let kept = self.kept.get(key)?;
        let now = Instant::now();
        let has_ended =
            |of: &Answer| of.as_ref().is_ok_and(|of| of.until.is_some_and(|until| until <= now));
        if kept.until <= now || has_ended(&kept.answer) {
            self.kept.remove(key);
            return None;
        }
        Some(kept.answer.clone())
    }

    /// Records the answer of a finished review.
    fn over(&mut self, key: TokenHash, answer: &Answer) {
        self.under_way.remove(&key);
        if matches!(answer, Err(Refusal::Unreviewed(_))) {
            return;
        }
        let now = Instant::now();
        if self.kept.len() >= KEPT {
            self.kept.retain(|_, kept| kept.until > now);
        }
        // A full cache stores nothing: the API server reviews the token again.
        if self.kept.len() < KEPT {
            let holds = if answer.is_ok() { HOLDS } else { REFUSAL_HOLDS };
            self.kept.insert(key, Kept { until: now + holds, answer: answer.clone() });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admit::{ask::Reviewed, judge::Bound, token_queue::WAIT},
        agents::Agent,
    };
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    use futures::{FutureExt as _, future::join_all};
    use serde_json::{Value, json};
    use std::future::pending;
    use tokio::time::sleep;

    const FORGED: &str = "forged";

    /// Answers as often as it has permits, and never for forged tokens.
    struct Slow {
        asked: Mutex<BTreeMap<String, usize>>,
        lets: Semaphore,
    }

    impl Slow {
        fn asked(&self) -> Vec<usize> {
            self.asked.lock().expect("no panic").values().copied().collect()
        }
    }

    impl Ask for Slow {
        async fn ask(&self, token: &str) -> Answer {
            *self.asked.lock().expect("no panic").entry(token.to_owned()).or_default() += 1;
            if token.contains(FORGED) {
                return pending().await;
            }
            self.lets.acquire().await.expect("not closed").forget();
            // The claims are accepted without a check.
            let claims = BASE64_URL_SAFE_NO_PAD.decode(token.split('.').nth(1).expect("claims"));
            let claims: Value = serde_json::from_slice(&claims.expect("base64")).expect("JSON");
            let uid = claims["kubernetes.io"]["pod"]["uid"].as_str().expect("a UID").to_owned();
            let bound = Bound { pod: String::new(), uid, node: String::new() };
            Ok(Reviewed { bound, until: None })
        }
    }

    fn reviews(lets: usize) -> (ReviewCache<Slow>, Agents) {
        let account = Account { namespace: "kube-system".into(), name: "ferrule-agent".into() };
        let slow = Slow { asked: Mutex::default(), lets: Semaphore::new(lets) };
        (ReviewCache::new(slow, account.clone()), Agents::new(account))
    }

    /// Returns a token of the agent's pod of this number, after the pod was recorded.
    fn token(agents: &Agents, number: usize, signature: &str) -> String {
        let (name, uid) = (format!("agent-{number}"), format!("u{number}"));
        let agent = || Agent { uid: uid.clone(), node: format!("n{number}") };
        agents.saw("kube-system", "ferrule-agent", &name, agent);
        let claims = json!({
            "sub": "system:serviceaccount:kube-system:ferrule-agent",
            "kubernetes.io": {"pod": {"name": name, "uid": uid}},
        });
        format!("e30.{}.{signature}", BASE64_URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    #[tokio::test]
    async fn a_client_that_gives_up_and_returns_finds_the_answer() {
        let (reviews, agents) = reviews(0);
        let tokens: Vec<_> = (0..AT_ONCE * 3).map(|number| token(&agents, number, "s")).collect();
        // Each call gives up at once.
        let call = |token: &String| reviews.of(token, &agents).now_or_never();
        let slow = &reviews.0.api;
        while slow.asked().len() < AT_ONCE {
            assert!(tokens.iter().all(|token| call(token).is_none()));
            sleep(Duration::from_millis(1)).await;
        }
        slow.lets.add_permits(tokens.len());
        let mut left = tokens;
        let last = Instant::now() + HOLDS / 2;
        while !left.is_empty() {
            assert!(Instant::now() < last, "{} have no answer", left.len());
            left.retain(|token| call(token).is_none_or(|answer| answer.is_err()));
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(slow.asked(), [1; AT_ONCE * 3], "each is reviewed once");
        assert!(reviews.0.known().under_way.is_empty());
    }

    #[tokio::test]
    async fn concurrent_reviews_are_bounded() {
        let (reviews, agents) = reviews(0);
        let tokens: Vec<_> = (0..AT_ONCE * 2).map(|number| token(&agents, number, "s")).collect();
        let all = join_all(tokens.iter().map(|token| reviews.of(token, &agents)));
        let slow = &reviews.0.api;
        let watched = async {
            for answered in 0..tokens.len() {
                while slow.asked().len() < (AT_ONCE + answered).min(tokens.len()) {
                    sleep(Duration::from_millis(1)).await;
                }
                assert!(slow.asked().len() <= AT_ONCE + answered);
                slow.lets.add_permits(1);
            }
        };
        let (answers, ()) = tokio::join!(all, watched);
        assert!(answers.iter().all(Result::is_ok));
    }

    #[tokio::test]
    async fn all_calls_with_a_token_share_one_review() {
        let (reviews, agents) = reviews(1);
        let token = token(&agents, 1, "s");
        let calls = (0..AT_ONCE * 2).map(|_| reviews.of(&token, &agents));
        assert!(join_all(calls).await.iter().all(Result::is_ok));
        assert_eq!(reviews.0.api.asked(), [1]);
    }

    #[tokio::test]
    async fn forged_tokens_do_not_delay_the_last_accepted_token() {
        let (reviews, agents) = reviews(3);
        let good = token(&agents, 1, "s");
        reviews.of(&good, &agents).await.expect("it is accepted");
        let mut turned_away = 0;
        for number in 0..AT_ONCE {
            let forged = token(&agents, 1, &format!("{FORGED}{number}"));
            let answer = reviews.of(&forged, &agents).now_or_never();
            turned_away += usize::from(matches!(answer, Some(Err(Refusal::Unreviewed(_)))));
        }
        assert_eq!(turned_away, AT_ONCE - WAIT, "the queue of a pod is bounded");
        // Without the cached answer the token is reviewed again.
        reviews.0.known().kept.clear();
        reviews.of(&good, &agents).await.expect("it is accepted again");
        let next = token(&agents, 1, "next");
        let refused = reviews.of(&next, &agents).await;
        assert!(matches!(refused, Err(Refusal::Unreviewed(_))), "{refused:?}");
        let other = token(&agents, 2, "s");
        reviews.of(&other, &agents).await.expect("another pod's token is accepted");
        let asked = reviews.0.api.asked.lock().expect("no panic").clone();
        assert_eq!(
            asked.values().sum::<usize>(),
            4,
            "only the first forged token is reviewed: {asked:?}"
        );
        assert_eq!(asked.get(&good), Some(&2));
    }
}
