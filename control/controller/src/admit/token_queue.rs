//! Queues of token reviews, one for each pod named in the tokens.
//!
//! Tokens with the same pod are reviewed one after another. The token that was accepted last skips the queue. So forged
//! tokens delay only a pod that comes with a new token.

use super::{ask::Answer, judge::Refusal, token_hash::TokenHash};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant as StdInstant},
};
use tokio::{
    sync::{Mutex as Queue, OwnedMutexGuard},
    time::{Instant, sleep_until},
};

/// Pause of a pod's queue after a refused token.
const PAUSE: Duration = Duration::from_secs(1);
/// Maximum length of a pod's queue. An agent has one token, and for a while the next one.
pub(crate) const WAIT: usize = 8;
/// Maximum number of remembered accepted tokens, one for each pod.
const KNOWN: usize = 16_384;

/// The queues by the UIDs of pods. Only UIDs of agents' pods get a queue.
#[derive(Debug, Default)]
pub(crate) struct TokenQueue(Mutex<Queues>);

#[derive(Debug, Default)]
struct Queues {
    /// By UID: the earliest start of the next review.
    all: BTreeMap<String, Arc<Queue<Instant>>>,
    /// By UID: the token that was accepted last, and its expiry.
    taken: BTreeMap<String, (TokenHash, Option<StdInstant>)>,
    /// Time of the last cleanup.
    tidied: Option<Instant>,
}

/// A place in a queue; `None` if the token skips the queue.
#[derive(Debug)]
pub(crate) struct Place(Option<Arc<Queue<Instant>>>);

/// The head of a queue until it is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Option<OwnedMutexGuard<Instant>>);

impl TokenQueue {
    /// Returns a place for a token that names this pod.
    pub(crate) fn place(&self, uid: &str, key: &TokenHash) -> Result<Place, Refusal> {
        let (mut queues, now) = (self.queues(), Instant::now());
        queues.tidy(now);
        if queues.taken.get(uid).is_some_and(|(taken, _)| taken == key) {
            return Ok(Place(None));
        }
        let queue = queues.all.entry(uid.to_owned());
        let queue = queue.or_insert_with(|| Arc::new(Queue::new(now)));
        if Arc::strong_count(queue) > WAIT {
            return Err(Refusal::Unreviewed(
                "too many tokens of its pod wait for a review".to_owned(),
            ));
        }
        Ok(Place(Some(queue.clone())))
    }

    /// Records the answer for a token that names this pod.
    pub(crate) fn over(&self, uid: &str, key: &TokenHash, answer: &Answer) {
        let taken = &mut self.queues().taken;
        match answer {
            Ok(of) if of.bound.uid == uid => {
                let now = StdInstant::now();
                if taken.len() >= KNOWN {
                    taken.retain(|_, (_, until)| until.is_none_or(|until| until > now));
                }
                if taken.len() < KNOWN || taken.contains_key(uid) {
                    taken.insert(uid.to_owned(), (*key, of.until));
                }
            }
            // The answer does not concern the remembered token.
            Ok(_) | Err(Refusal::Unreviewed(_)) => {}
            Err(_) => {
                if taken.get(uid).is_some_and(|(taken, _)| taken == key) {
                    taken.remove(uid);
                }
            }
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        runtime_lock::lock(&self.0)
    }
}

impl Queues {
    /// Drops queues that are empty and not paused.
    fn tidy(&mut self, now: Instant) {
        if self.tidied.is_some_and(|tidied| now < tidied + PAUSE) {
            return;
        }
        self.tidied = Some(now);
        self.all.retain(|_, queue| {
            Arc::strong_count(queue) > 1 || queue.try_lock().is_ok_and(|after| *after > now)
        });
    }
}

impl Place {
    /// Waits for the head of the queue and for the end of a pause.
    pub(crate) async fn turn(self) -> Turn {
        let Some(queue) = self.0 else { return Turn(None) };
        let turn = queue.lock_owned().await;
        if *turn > Instant::now() {
            sleep_until(*turn).await;
        }
        Turn(Some(turn))
    }
}

impl Turn {
    /// Starts a pause, as the token was refused.
    pub(crate) fn refused(self) {
        if let Some(mut after) = self.0 {
            *after = Instant::now() + PAUSE;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::admit::{ask::Reviewed, judge::Bound};
    use futures::FutureExt as _;

    async fn turn(turns: &TokenQueue, uid: &str) -> Turn {
        turns.place(uid, &[0; 32]).expect("a place").turn().await
    }

    #[tokio::test]
    async fn tokens_of_one_pod_wait_for_each_other_and_for_a_pause_and_other_tokens_do_not() {
        let turns = TokenQueue::default();
        let first = turn(&turns, "u1").await;
        assert!(turn(&turns, "u1").now_or_never().is_none(), "it waits");
        drop(turn(&turns, "u2").now_or_never().expect("another's turn"));
        let begun = Instant::now();
        first.refused();
        drop(turn(&turns, "u1").await);
        assert!(begun.elapsed() >= PAUSE);
        // After an accepted token the next review starts at once.
        drop(turn(&turns, "u1").now_or_never().expect("its turn"));
        turns.queues().tidied = None;
        drop(turn(&turns, "u3").now_or_never().expect("its turn"));
        assert_eq!(
            turns.queues().all.keys().collect::<Vec<_>>(),
            ["u3"],
            "the empty queue is dropped"
        );
    }

    #[tokio::test]
    async fn the_queue_of_a_pod_is_bounded() {
        let turns = TokenQueue::default();
        let held = turn(&turns, "u1").await;
        let waiting: Vec<_> =
            (1..WAIT).map(|_| turns.place("u1", &[0; 32]).expect("a place")).collect();
        assert!(turns.place("u1", &[0; 32]).is_err());
        turns.place("u2", &[0; 32]).expect("another's place");
        drop(waiting);
        turns.place("u1", &[0; 32]).expect("a place");
        drop(held);
    }

    #[tokio::test]
    async fn the_last_accepted_token_skips_the_queue() {
        let (turns, old, new) = (TokenQueue::default(), [1; 32], [2; 32]);
        let bound = |uid: &str| Bound { pod: "p".into(), uid: uid.into(), node: "n".into() };
        let taken = |uid: &str| Ok(Reviewed { bound: bound(uid), until: None });
        let waits = |key: &TokenHash| {
            turns.place("u1", key).expect("a place").turn().now_or_never().is_none()
        };
        let held = turn(&turns, "u1").await;
        assert!(waits(&old) && waits(&new));
        // An answer for another pod, or none, does not let the token skip the queue.
        turns.over("u1", &old, &taken("u2"));
        turns.over("u1", &old, &Err(Refusal::Unreviewed(String::new())));
        assert!(waits(&old));
        turns.over("u1", &old, &taken("u1"));
        assert!(!waits(&old) && waits(&new));
        turns.over("u1", &new, &taken("u1"));
        assert!(waits(&old) && !waits(&new));
        // A refusal of another token changes nothing. A refusal of this one removes the privilege.
        turns.over("u1", &old, &Err(Refusal::Unbound));
        turns.over("u1", &new, &Err(Refusal::Unreviewed(String::new())));
        assert!(!waits(&new));
        turns.over("u1", &new, &Err(Refusal::Unbound));
        assert!(waits(&new));
        drop(held);
    }
}
