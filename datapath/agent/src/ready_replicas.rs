//! The ready replicas.

use datapath_node::Replicas;
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
};
use tokio::sync::Notify;

/// The ready replicas, shared by the tasks that dial them.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    replicas: Arc<Mutex<Replicas>>,
    pub(crate) changed: Arc<Notify>,
}

impl Ready {
    pub(crate) fn new(node: &str) -> Self {
        let replicas = Arc::new(Mutex::new(Replicas::new(node)));
        Self { replicas, changed: Arc::new(Notify::new()) }
    }

    /// Sets the ready replicas.
    pub(crate) fn set(&self, ready: &BTreeSet<SocketAddr>) {
        self.lock().ready(ready);
        self.changed.notify_one();
    }

    pub(crate) fn all(&self) -> Vec<SocketAddr> {
        self.lock().all().to_vec()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Replicas> {
        runtime_lock::lock(&self.replicas)
    }
}
