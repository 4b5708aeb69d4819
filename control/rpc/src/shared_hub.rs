//! The hub as its streams share it.

use control_hub::{ClientState, Handshake, Hub};
use runtime_lock::lock;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};
use tokio::sync::Notify;

/// The hub, and the streams that wait for it.
pub struct SharedHub {
    hub: Mutex<Hub>,
    wakers: Mutex<BTreeMap<String, Arc<StreamWaker>>>,
    start: Instant,
    closed: AtomicBool,
}

/// Wakes the stream of one node.
#[derive(Debug, Default)]
pub(crate) struct StreamWaker {
    pub(crate) notify: Notify,
    /// The stream is to end.
    pub(crate) is_dismissed: AtomicBool,
    /// The session has to check again whether the client may continue.
    pub(crate) is_to_recheck: AtomicBool,
}

impl SharedHub {
    pub fn new(hub: Hub) -> Arc<Self> {
        let (hub, wakers) = (Mutex::new(hub), Mutex::new(BTreeMap::new()));
        Arc::new(Self { hub, wakers, start: Instant::now(), closed: AtomicBool::new(false) })
    }

    /// Runs a function on the hub, and wakes the streams of the nodes with pending objects.
    pub fn with<R>(&self, what: impl FnOnce(&mut Hub) -> R) -> R {
        self.apply(what).0
    }

    /// Like [`with`](Self::with), and also returns the nodes with pending objects.
    pub fn apply<R>(&self, what: impl FnOnce(&mut Hub) -> R) -> (R, BTreeSet<String>) {
        let (result, touched) = {
            let mut hub = lock(&self.hub);
            (what(&mut hub), hub.take_touched())
        };
        if !touched.is_empty() {
            let wakers = lock(&self.wakers);
            let woken = touched.iter().filter_map(|node| wakers.get(node));
            woken.for_each(|waker| waker.notify.notify_one());
        }
        (result, touched)
    }

    /// Forgets nodes that did not return, and objects that no node needs.
    pub fn tidy(&self) {
        let now_ms = self.now_ms();
        self.with(|hub| hub.tidy(now_ms));
        // Drop the wakers that no stream waits for.
        lock(&self.wakers).retain(|_, waker| Arc::strong_count(waker) > 1);
    }

    /// Refuses new streams from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// Returns the nodes that have a stream.
    pub fn followers(&self) -> Vec<String> {
        let wakers = lock(&self.wakers);
        let waiting = wakers.iter().filter(|(_, waker)| Arc::strong_count(waker) > 1);
        waiting.map(|(node, _)| node.clone()).collect()
    }

    /// Ends a node's stream, so that the node continues with another replica.
    pub fn dismiss(&self, node: &str) {
        if let Some(waker) = lock(&self.wakers).get(node) {
            waker.is_dismissed.store(true, Ordering::SeqCst);
            waker.notify.notify_one();
        }
    }

    /// Makes a node's stream check again whether the node may continue.
    pub fn look_again(&self, node: &str) {
        if let Some(waker) = lock(&self.wakers).get(node) {
            waker.is_to_recheck.store(true, Ordering::SeqCst);
            waker.notify.notify_one();
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Starts a node's stream with a waker of its own. An ended stream must not consume a wake-up of this one, so it is
    /// informed of its end.
    pub(crate) fn begin(
        &self,
        node: &str,
        says: &ClientState,
    ) -> (Handshake, [u8; 16], Arc<StreamWaker>) {
        let waker = Arc::<StreamWaker>::default();
        let (begun, epoch, over) = self.with(|hub| {
            let begun = hub.open_stream(node, says);
            let begins = matches!(begun, Handshake::Resumed(_) | Handshake::Compared(_));
            // Under the hub's lock: of two concurrent starts the later one also has the waker.
            let over = begins.then(|| lock(&self.wakers).insert(node.to_owned(), waker.clone()));
            (begun, hub.epoch(), over.flatten())
        });
        if let Some(over) = over {
            over.notify.notify_one();
        }
        (begun, epoch, waker)
    }
}
