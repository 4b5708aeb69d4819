//! The word that something changed.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Instant,
};
use tokio::sync::Notify;

/// Many pulls are one. Clones pull the same one.
#[derive(Clone, Debug, Default)]
pub struct Trigger {
    notify: Arc<Notify>,
    first: Arc<Mutex<Option<Instant>>>,
}

impl Trigger {
    /// Asks for a pass.
    pub fn pull(&self) {
        self.first().get_or_insert_with(Instant::now);
        self.notify.notify_one();
    }

    /// Waits for a pull.
    pub(crate) async fn pulled(&self) {
        self.notify.notified().await;
    }

    /// The time of the first pull since this was last asked; now, if there was none.
    pub(crate) fn taken(&self) -> Instant {
        self.first().take().unwrap_or_else(Instant::now)
    }

    fn first(&self) -> std::sync::MutexGuard<'_, Option<Instant>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
