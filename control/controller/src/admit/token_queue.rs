//! One after another of the tokens that say that they are the same pod's. The one that was taken last waits for none
//! of them: who makes tokens up delays nobody but a pod that comes with a new one.

use super::{
    judge::Refusal,
    review_cache::{Answer, Key},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant as StdInstant},
};
use tokio::{
    sync::{Mutex as Queue, OwnedMutexGuard},
    time::{Instant, sleep_until},
};

/// How long after a token was refused that said it is a pod's the next such token is looked at.
const PAUSE: Duration = Duration::from_secs(1);
/// As many tokens of one pod wait, besides the one that was taken last. An agent has one, and for a while the next.
pub(crate) const WAIT: usize = 8;
/// As many pods' tokens that were taken last are known.
const KNOWN: usize = 16_384;

/// The queues, by the pods' UIDs: as many as there are agents' pods.
#[derive(Debug, Default)]
pub(crate) struct TokenQueue(Mutex<Queues>);

#[derive(Debug, Default)]
struct Queues {
    /// When the next of each may begin.
    all: BTreeMap<String, Arc<Queue<Instant>>>,
    /// The token that was taken last of each, and when it ends.
    taken: BTreeMap<String, (Key, Option<StdInstant>)>,
    /// When those that nobody needs any more were forgotten last.
    tidied: Option<Instant>,
}

/// A place among those that wait, or of its own.
#[derive(Debug)]
pub(crate) struct Place(Option<Arc<Queue<Instant>>>);

/// It is this one's turn, until this is dropped.
#[derive(Debug)]
pub(crate) struct Turn(Option<OwnedMutexGuard<Instant>>);

impl TokenQueue {
    /// A place for a token that says it is this pod's.
    pub(crate) fn place(&self, uid: &str, key: &Key) -> Result<Place, Refusal> {
        let (mut queues, now) = (self.queues(), Instant::now());
        queues.tidy(now);
        if queues.taken.get(uid).is_some_and(|(taken, _)| taken == key) {
            return Ok(Place(None));
        }
        let queue = queues.all.entry(uid.to_owned());
        let queue = queue.or_insert_with(|| Arc::new(Queue::new(now)));
        if Arc::strong_count(queue) > WAIT {
            return Err(Refusal::Unasked("too many tokens are shown for its pod".to_owned()));
        }
        Ok(Place(Some(queue.clone())))
    }

    /// What a token came to that said that it is this pod's.
    pub(crate) fn over(&self, uid: &str, key: &Key, answer: &Answer) {
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
            // Nobody knows better than before.
            Ok(_) | Err(Refusal::Unasked(_)) => {}
            Err(_) => {
                if taken.get(uid).is_some_and(|(taken, _)| taken == key) {
                    taken.remove(uid);
                }
            }
        }
    }

    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Queues {
    /// Forgets those for which nobody waits, and that would make nobody wait.
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
    /// Waits for its turn.
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
    /// The token was no good: the next waits.
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
    async fn tokens_of_one_pod_wait_for_each_other_and_for_a_pause_and_others_do_not() {
        let turns = TokenQueue::default();
        let first = turn(&turns, "u1").await;
        assert!(turn(&turns, "u1").now_or_never().is_none(), "it waits");
        drop(turn(&turns, "u2").now_or_never().expect("another's turn"));
        let begun = Instant::now();
        first.refused();
        drop(turn(&turns, "u1").await);
        assert!(begun.elapsed() >= PAUSE);
        // What was good lets the next begin at once.
        drop(turn(&turns, "u1").now_or_never().expect("its turn"));
        turns.queues().tidied = None;
        drop(turn(&turns, "u3").now_or_never().expect("its turn"));
        assert_eq!(turns.queues().all.keys().collect::<Vec<_>>(), ["u3"], "others are forgotten");
    }

    #[tokio::test]
    async fn as_many_wait_at_most() {
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
    async fn the_token_that_was_taken_last_waits_for_no_other() {
        let (turns, old, new) = (TokenQueue::default(), [1; 32], [2; 32]);
        let bound = |uid: &str| Bound { pod: "p".into(), uid: uid.into(), node: "n".into() };
        let taken = |uid: &str| Ok(Reviewed { bound: bound(uid), until: None });
        let waits =
            |key: &Key| turns.place("u1", key).expect("a place").turn().now_or_never().is_none();
        let held = turn(&turns, "u1").await;
        assert!(waits(&old) && waits(&new));
        // What is another's, or not known, gives it no place of its own.
        turns.over("u1", &old, &taken("u2"));
        turns.over("u1", &old, &Err(Refusal::Unasked(String::new())));
        assert!(waits(&old));
        turns.over("u1", &old, &taken("u1"));
        assert!(!waits(&old) && waits(&new));
        turns.over("u1", &new, &taken("u1"));
        assert!(waits(&old) && !waits(&new));
        // That another is refused does not take it away; that this one is does.
        turns.over("u1", &old, &Err(Refusal::Unbound));
        turns.over("u1", &new, &Err(Refusal::Unasked(String::new())));
        assert!(!waits(&new));
        turns.over("u1", &new, &Err(Refusal::Unbound));
        assert!(waits(&new));
        drop(held);
    }
}
