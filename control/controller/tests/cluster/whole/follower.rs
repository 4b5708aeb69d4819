//! A node that follows any replica that accepts it, with its content.

use super::bounds::Bounds;
use crate::agent::hello;
use control_rpc::{Follow, StreamEvent, Trust};
use control_wire::{NodeSnapshot, ObjectId, Progress};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use tokio::time::sleep;

pub(crate) struct Follower {
    pub(crate) name: String,
    token: String,
    pub(crate) held: Mutex<NodeSnapshot>,
    /// Number of applied generations.
    pub(crate) applied: AtomicUsize,
    bounds: Mutex<Arc<Bounds>>,
}

impl Follower {
    pub(crate) fn new(name: String, token: String) -> Self {
        let (held, applied, bounds) = (Mutex::default(), AtomicUsize::new(0), Mutex::default());
        Self { name, token, held, applied, bounds }
    }

    /// Sets the bounds from now on, and checks the current content at once.
    pub(crate) fn may_hold(&self, bounds: Arc<Bounds>) {
        let held = self.held.lock().unwrap();
        assert_eq!(bounds.wrong(&held), None, "{}", self.name);
        *self.bounds.lock().unwrap() = bounds;
    }

    pub(crate) async fn run(self: Arc<Self>, trust: Trust, replicas: [SocketAddr; 2]) {
        let mut turn = self.name.len() + self.token.len();
        let mut names = BTreeMap::new();
        loop {
            turn += 1;
            let at = replicas[turn % replicas.len()];
            let hello = hello(&self.held.lock().unwrap());
            if let Ok(follow) = Follow::begin(at, &trust, &self.token, hello).await {
                self.held.lock().unwrap().start_stream(&follow.welcome().epoch);
                self.apply(follow, &mut names).await;
            }
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// Follows until the stream ends.
    async fn apply(&self, mut follow: Follow, names: &mut BTreeMap<ObjectId, String>) {
        loop {
            let holds = match follow.receive().await {
                Ok(StreamEvent::Part(part)) => {
                    let mut held = self.held.lock().unwrap();
                    // A rejected update would be a lost or a duplicate change.
                    match held.receive(part).unwrap() {
                        Progress::Applied(changed) => {
                            let touched = changed.iter().map(|(id, _)| id.clone()).collect();
                            let bounds = self.bounds.lock().unwrap().clone();
                            let wrong = bounds.wrong_of(&held, &touched, names);
                            assert_eq!(wrong, None, "{} at {}", self.name, held.generation);
                            Some(held.generation)
                        }
                        Progress::Incomplete => None,
                    }
                }
                Ok(StreamEvent::Bookmark(bookmark)) => {
                    let mut held = self.held.lock().unwrap();
                    let before = held.reached.clone();
                    held.apply_bookmark(&bookmark);
                    let back = before.iter().find(|(kind, version)| {
                        held.reached.get(*kind).is_none_or(|reached| reached < version)
                    });
                    assert_eq!(back, None, "{} was taken back: {:?}", self.name, held.reached);
                    None
                }
                Err(_) => return,
            };
            if let Some(generation) = holds {
                self.applied.fetch_add(1, Ordering::Relaxed);
                if follow.acknowledge(generation).await.is_err() {
                    return;
                }
            }
        }
    }
}
