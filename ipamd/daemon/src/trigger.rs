//! The request for a repair pass.

use std::{
    sync::{Arc, Mutex},
    time::Instant,
};
use tokio::sync::Notify;

/// Several pulls before a pass count as one. Clones share the state.
#[derive(Clone, Debug, Default)]
pub struct Trigger {
    notify: Arc<Notify>,
    first: Arc<Mutex<Option<Instant>>>,
}

impl Trigger {
    /// Requests a pass.
    pub fn pull(&self) {
        self.first().get_or_insert_with(Instant::now);
        self.notify.notify_one();
    }

    /// Waits for a pull.
    pub(crate) async fn pulled(&self) {
        self.notify.notified().await;
    }

    /// The time of the first pull since the last call, or now.
    pub(crate) fn taken(&self) -> Instant {
        self.first().take().unwrap_or_else(Instant::now)
    }

    fn first(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        runtime_lock::lock(&self.first)
    }
}
