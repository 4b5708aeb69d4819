//! Follows one replica after the other, forever.

use crate::{
    clock::{Clock, draw},
    contact::Contact,
    desks::Desks,
    event::Event,
};
use control_rpc::{Follow, FollowError, StreamEvent};
use control_wire::proto::Hello;
use datapath_node::{Next, Replicas};
use std::{
    collections::BTreeSet,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::{Notify, mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until},
};

/// The ready replicas, shared by the tasks that dial them.
#[derive(Clone, Debug)]
pub(crate) struct Ready {
    replicas: Arc<Mutex<Replicas>>,
    changed: Arc<Notify>,
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

    fn lock(&self) -> MutexGuard<'_, Replicas> {
        self.replicas.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The state of the stream that the core requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Told {
    /// The number of streams that have started. The other fields are about the last of them.
    pub(crate) streams: u64,
    /// The generation that the last stream has brought to; 0 if none.
    pub(crate) holds: u64,
    /// The stream is to end and the next one to compare everything.
    pub(crate) anew: bool,
}

/// The task that follows a replica.
pub(crate) struct Follower {
    pub(crate) ready: Ready,
    pub(crate) contact: Contact,
    pub(crate) desks: Desks,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) told: watch::Receiver<Told>,
    /// The number of streams that have started.
    pub(crate) streams: u64,
    pub(crate) clock: Clock,
}

/// The agent ends: its queue of events is closed.
struct Ended;

impl Follower {
    pub(crate) async fn run(mut self) {
        while let Ok(()) = self.turn().await {}
    }

    async fn turn(&mut self) -> Result<(), Ended> {
        let next = self.ready.lock().next(self.clock.now(), draw());
        match next {
            Next::Nobody => {
                self.alone("no replica of the controller is known to be ready".to_owned()).await?;
                self.ready.changed.notified().await;
            }
            Next::Wait(until) => {
                tokio::select! {
                    () = sleep(self.clock.until(until)) => {}
                    () = self.ready.changed.notified() => {}
                    () = self.events.closed() => return Err(Ended),
                }
            }
            Next::Dial { at, take_behind } => self.dial(at, take_behind).await?,
        }
        Ok(())
    }

    async fn dial(&mut self, at: SocketAddr, take_behind: bool) -> Result<(), Ended> {
        let files = self.contact.trust().and_then(|trust| Ok((trust, self.contact.token()?)));
        let (trust, token) = match files {
            Ok(files) => files,
            Err(error) => return self.alone(error.to_string()).await,
        };
        let hello = self.hello(take_behind).await?;
        match Follow::begin(at, &trust, &token, hello).await {
            Ok(follow) => {
                let behind = take_behind;
                if behind {
                    tracing::warn!(%at, "no replica has read as far as this node holds: the newest is taken");
                }
                self.ready.lock().began();
                self.desks.adopt(at, follow.client());
                let epoch = follow.welcome().epoch.clone();
                self.streams += 1;
                self.tell(Event::Began { at, epoch, behind }).await?;
                tracing::info!(%at, "following");
                let why = self.listen(at, follow).await?;
                tracing::warn!(%at, why, "the stream has ended");
                self.ready.lock().ended(self.clock.now(), draw());
                self.alone(why).await
            }
            Err(FollowError::Behind { at, reached }) => {
                let (reply, lag) = oneshot::channel();
                self.tell(Event::Lag { reached, reply }).await?;
                let lag = lag.await.map_err(|_| Ended)?;
                self.ready.lock().is_behind(at, lag, self.clock.now());
                let why = format!("the replica at {at} has read less than this node holds");
                self.alone(why).await
            }
            Err(error) => self.alone(error.to_string()).await,
        }
    }

    /// Passes on the messages of a stream until it ends; the cause.
    async fn listen(&mut self, at: SocketAddr, mut follow: Follow) -> Result<String, Ended> {
        let mut said = 0;
        // The replica may have lost the API server only; its streams continue.
        let mut leave_at = None;
        loop {
            tokio::select! {
                heard = follow.heard() => match heard {
                    Ok(StreamEvent::Part(part)) => self.tell(Event::Part(part)).await?,
                    Ok(StreamEvent::Bookmark(bookmark)) => self.tell(Event::Bookmark(bookmark)).await?,
                    Err(error) => return Ok(error.to_string()),
                },
                () = self.ready.changed.notified() => {
                    let is_left_out = self.ready.lock().is_left_out(at);
                    leave_at = is_left_out.then(|| leave_at.unwrap_or_else(later));
                }
                () = sleep_until(leave_at.unwrap_or_else(Instant::now)), if leave_at.is_some() => {
                    return Ok("it is no longer ready, and other replicas are".to_owned());
                }
                changed = self.told.changed() => {
                    changed.map_err(|_| Ended)?;
                    let now = *self.told.borrow_and_update();
                    if now.streams != self.streams {
                        // Messages of the earlier stream are still being processed.
                        continue;
                    }
                    if now.anew {
                        return Ok("its update does not fit the snapshot of this node".to_owned());
                    }
                    // Also if the generation is the same as before: this stream has sent it again.
                    if now.holds != said {
                        self.ready.lock().worked();
                        if let Err(error) = follow.holds(now.holds).await {
                            return Ok(error.to_string());
                        }
                        said = now.holds;
                    }
                }
            }
        }
    }

    async fn hello(&self, take_behind: bool) -> Result<Hello, Ended> {
        let (reply, hello) = oneshot::channel();
        self.tell(Event::Hello { take_behind, reply }).await?;
        hello.await.map_err(|_| Ended)
    }

    async fn alone(&self, why: String) -> Result<(), Ended> {
        self.tell(Event::Alone(why)).await
    }

    async fn tell(&self, event: Event) -> Result<(), Ended> {
        self.events.send(event).await.map_err(|_| Ended)
    }
}

/// The time to leave a replica that is no longer ready. It is spread over nodes, and the replica may be back soon.
fn later() -> Instant {
    Instant::now() + LEAVE + Duration::from_millis(draw() % LEAVE_SPREAD)
}

const LEAVE: Duration = Duration::from_secs(2);
/// Milliseconds.
const LEAVE_SPREAD: u64 = 5_000;
