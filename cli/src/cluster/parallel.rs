//! Calls side by side, a bounded number at a time.

use crate::progress::{Done, Progress};
use anyhow::{Context as _, Result};
use std::{collections::BTreeMap, sync::Arc};
use tokio::{sync::Semaphore, task::JoinSet};

/// Returns the results in the order of the calls.
///
/// # Errors
/// A call panicked.
pub(super) async fn all<T, F>(calls: Vec<F>, stage: &str, progress: &mut Progress) -> Result<Vec<T>>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let turns = Arc::new(Semaphore::new(SIDE_BY_SIDE));
    let count = calls.len();
    let mut running = JoinSet::new();
    for (index, call) in calls.into_iter().enumerate() {
        let turns = Arc::clone(&turns);
        running.spawn(async move {
            let _turn = turns.acquire_owned().await;
            (index, call.await)
        });
    }
    let mut results = BTreeMap::new();
    progress.show(stage, Done::Of(0, count));
    while let Some(ended) = running.join_next().await {
        let (index, result) = ended.context("cannot complete a call")?;
        results.insert(index, result);
        progress.show(stage, Done::Of(results.len(), count));
    }
    Ok(results.into_values().collect())
}

const SIDE_BY_SIDE: usize = 16;

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn calls_are_bounded_and_their_results_in_order() {
        static RUNNING: AtomicUsize = AtomicUsize::new(0);
        let call = |index: usize| async move {
            let beside = RUNNING.fetch_add(1, Ordering::SeqCst);
            // Calls end in another order than they start.
            for _ in 0..(100 - index) {
                tokio::task::yield_now().await;
            }
            RUNNING.fetch_sub(1, Ordering::SeqCst);
            (index, beside)
        };
        let calls = (0..100).map(call).collect();
        let results = all(calls, "calling", &mut Progress::hidden()).await.unwrap();
        assert!(results.iter().enumerate().all(|(at, (index, _))| at == *index), "{results:?}");
        assert!(results.iter().all(|(_, beside)| *beside < SIDE_BY_SIDE), "{results:?}");
    }
}
