//! A value that one task makes on demand for all readers. Many readers cost as much as one.

use std::{future::Future, sync::Arc, time::Duration};
use tokio::{
    sync::{Notify, watch},
    time::{Instant, sleep, timeout},
};

/// A reader of a published value.
#[derive(Debug)]
pub struct Published<T> {
    wanted: Arc<Notify>,
    latest: watch::Receiver<Latest<T>>,
}

#[derive(Debug)]
struct Latest<T> {
    begun: Option<Instant>,
    value: Option<Arc<T>>,
}

impl<T> Clone for Published<T> {
    fn clone(&self) -> Self {
        Self { wanted: self.wanted.clone(), latest: self.latest.clone() }
    }
}

impl<T> Published<T> {
    /// Returns a value that was made after this call. `None` if there is none within the time.
    pub async fn fresh(&self, within: Duration) -> Option<Arc<T>> {
        let (asked, mut latest) = (Instant::now(), self.latest.clone());
        self.wanted.notify_one();
        let made = latest.wait_for(|latest| latest.begun.is_some_and(|begun| begun >= asked));
        let made = timeout(within, made).await.ok()?.ok()?;
        made.value.clone()
    }
}

/// Returns a reader, and the task that makes values with `make`: on demand, with a pause of at least `pause` between two.
pub fn publish<T, F>(
    pause: Duration,
    mut make: impl FnMut() -> F,
) -> (Published<T>, impl Future<Output = ()>)
where
    F: Future<Output = Option<T>>,
{
    let wanted = Arc::<Notify>::default();
    let (sender, latest) = watch::channel(Latest { begun: None, value: None });
    let readers = Published { wanted: wanted.clone(), latest };
    let task = async move {
        loop {
            wanted.notified().await;
            let begun = Some(Instant::now());
            let value = make().await.map(Arc::new);
            sender.send_replace(Latest { begun, value });
            sleep(pause).await;
        }
    };
    (readers, task)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tokio::task::JoinSet;

    const PAUSE: Duration = Duration::from_millis(100);
    const PATIENCE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn many_readers_cost_as_much_as_one() {
        let count = Arc::<AtomicU64>::default();
        let counted = count.clone();
        let (page, task) = publish(PAUSE, move || {
            let number = counted.fetch_add(1, Ordering::SeqCst);
            async move {
                sleep(Duration::from_millis(5)).await;
                Some(number)
            }
        });
        tokio::spawn(task);
        let mut readers = JoinSet::new();
        for _ in 0..1_000 {
            let page = page.clone();
            readers.spawn(async move { page.fresh(PATIENCE).await });
        }
        assert!(readers.join_all().await.iter().all(Option::is_some));
        assert!(count.load(Ordering::SeqCst) <= 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_is_never_older_than_its_request() {
        let state = Arc::<AtomicU64>::default();
        let seen = state.clone();
        let (page, task) = publish(PAUSE, move || {
            let now = seen.load(Ordering::SeqCst);
            async move {
                sleep(Duration::from_millis(20)).await;
                Some(now)
            }
        });
        tokio::spawn(task);
        for change in 1..20 {
            let early = page.clone();
            let early = tokio::spawn(async move { early.fresh(PATIENCE).await });
            sleep(Duration::from_millis(change)).await;
            state.store(change, Ordering::SeqCst);
            assert_eq!(page.fresh(PATIENCE).await.as_deref(), Some(&change));
            early.await.unwrap().unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_is_not_made_in_time_is_none() {
        let (page, task) = publish(PAUSE, std::future::pending::<Option<()>>);
        tokio::spawn(task);
        assert_eq!(page.fresh(Duration::from_secs(1)).await, None);
    }
}
