//! Whose tokens are, as the API server says, and its answers for a while.

use super::{
    ask::{Ask, Reviewed},
    claims::Claims,
    judge::Refusal,
    token_queue::{Place, TokenQueue},
};
use crate::agents::{Account, Agents};
use rustls::crypto::ring::default_provider;
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};
use tokio::sync::{Semaphore, watch};

/// How long an answer holds.
const HOLDS: Duration = Duration::from_secs(60);
/// How long a refusal holds: what was too early may be right soon.
const REFUSAL_HOLDS: Duration = Duration::from_secs(5);
/// How many answers are kept.
const KEPT: usize = 16_384;
/// How many tokens are shown at once.
const AT_ONCE: usize = 32;
/// How long a token may be: no API server makes one as large.
const LONGEST: usize = 16 << 10;

/// What a token is known by.
pub(crate) type Key = [u8; 32];
/// What it comes to.
pub(crate) type Answer = Result<Reviewed, Refusal>;

/// The answers, and the reviews under way.
pub(crate) struct ReviewCache<A>(Arc<Shared<A>>);

struct Shared<A> {
    api: A,
    agents: Account,
    known: Mutex<Known>,
    turns: TokenQueue,
    room: Semaphore,
}

/// By the hashes of tokens.
#[derive(Default)]
struct Known {
    kept: BTreeMap<Key, Kept>,
    /// One of each token. `TokenQueue` bounds how many there are for each agent's pod.
    under_way: BTreeMap<Key, watch::Receiver<Option<Answer>>>,
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

    /// Whose the token is. The API server is asked of those alone that say they are an agent's pod's, and of each
    /// pod's one after another: others, in whatever number, keep nobody waiting.
    ///
    /// A review goes on when whoever asked has given up: it keeps its place, and the answer is there for who
    /// comes again.
    pub(crate) async fn of(&self, token: &str, agents: &Agents) -> Answer {
        if token.len() > LONGEST {
            return Err(Refusal::Token("it is too long".to_owned()));
        }
        let key = hash(token)?;
        if let Some(answer) = self.0.known().kept(&key) {
            return answer;
        }
        let no_token = || Refusal::Token("it is no service account's".to_owned());
        let claims = Claims::of(token).ok_or_else(no_token)?;
        let uid = claims.agent(&self.0.agents, agents)?;
        let mut review = self.review(key, token, &uid)?;
        let answer = review.wait_for(Option::is_some).await.ok().and_then(|answer| answer.clone());
        answer.unwrap_or_else(|| Err(Refusal::Unasked("its review broke off".to_owned())))
    }

    /// The review of a token: the one that is under way or over, or a new one.
    fn review(
        &self,
        key: Key,
        token: &str,
        uid: &str,
    ) -> Result<watch::Receiver<Option<Answer>>, Refusal> {
        let mut known = self.0.known();
        if let Some(answer) = known.kept(&key) {
            return Ok(watch::channel(Some(answer)).1);
        }
        // One whose end nobody tells has broken off.
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
            return Err(Refusal::Unasked("this replica ends".to_owned()));
        };
        let answer = self.api.ask(token).await;
        if !matches!(answer, Ok(_) | Err(Refusal::Unasked(_))) {
            turn.refused();
        }
        answer
    }
}

impl<A> Shared<A> {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn kept(&mut self, key: &Key) -> Option<Answer> {
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

    /// The review of a token is over.
    fn over(&mut self, key: Key, answer: &Answer) {
        self.under_way.remove(&key);
        if matches!(answer, Err(Refusal::Unasked(_))) {
            return;
        }
        let now = Instant::now();
        if self.kept.len() >= KEPT {
            self.kept.retain(|_, kept| kept.until > now);
        }
        // Full of what holds: the API server is asked again.
        if self.kept.len() < KEPT {
            let holds = if answer.is_ok() { HOLDS } else { REFUSAL_HOLDS };
            self.kept.insert(key, Kept { until: now + holds, answer: answer.clone() });
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        admit::{judge::Bound, token_queue::WAIT},
        agents::Agent,
    };
    use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
    use futures::{FutureExt as _, future::join_all};
    use serde_json::{Value, json};
    use std::future::pending;
    use tokio::time::sleep;

    const FORGED: &str = "forged";

    /// It answers as often as it is let, and what is forged never.
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
            // As it says, which nobody proves here.
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

    /// A token of the agent's pod of this number, which is known.
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
    async fn who_gives_up_and_comes_again_finds_the_answer() {
        let (reviews, agents) = reviews(0);
        let tokens: Vec<_> = (0..AT_ONCE * 3).map(|number| token(&agents, number, "s")).collect();
        // Nobody waits any longer than until the first of all has begun to be looked at.
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
        assert_eq!(slow.asked(), [1; AT_ONCE * 3], "each is shown once");
        assert!(reviews.0.known().under_way.is_empty());
    }

    #[tokio::test]
    async fn as_many_are_shown_at_once_at_most() {
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
    async fn a_token_is_shown_once_for_all_who_call_with_it() {
        let (reviews, agents) = reviews(1);
        let token = token(&agents, 1, "s");
        let calls = (0..AT_ONCE * 2).map(|_| reviews.of(&token, &agents));
        assert!(join_all(calls).await.iter().all(Result::is_ok));
        assert_eq!(reviews.0.api.asked(), [1]);
    }

    #[tokio::test]
    async fn forged_tokens_do_not_keep_the_one_waiting_that_was_taken_last() {
        let (reviews, agents) = reviews(3);
        let good = token(&agents, 1, "s");
        reviews.of(&good, &agents).await.expect("it is taken");
        let mut turned_away = 0;
        for number in 0..AT_ONCE {
            let forged = token(&agents, 1, &format!("{FORGED}{number}"));
            let answer = reviews.of(&forged, &agents).now_or_never();
            turned_away += usize::from(matches!(answer, Some(Err(Refusal::Unasked(_)))));
        }
        assert_eq!(turned_away, AT_ONCE - WAIT, "so many of one pod wait");
        // The answer is not remembered any longer: it has to be looked at again.
        reviews.0.known().kept.clear();
        reviews.of(&good, &agents).await.expect("it is taken again");
        let next = token(&agents, 1, "next");
        let refused = reviews.of(&next, &agents).await;
        assert!(matches!(refused, Err(Refusal::Unasked(_))), "{refused:?}");
        let other = token(&agents, 2, "s");
        reviews.of(&other, &agents).await.expect("another pod's is taken");
        let asked = reviews.0.api.asked.lock().expect("no panic").clone();
        assert_eq!(
            asked.values().sum::<usize>(),
            4,
            "of those forged the first is shown: {asked:?}"
        );
        assert_eq!(asked.get(&good), Some(&2));
    }

    #[test]
    fn tokens_that_differ_have_different_hashes() {
        assert_ne!(hash("a"), hash("b"));
        assert_eq!(hash("a"), hash("a"));
    }
}
