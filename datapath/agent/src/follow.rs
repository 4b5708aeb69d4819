//! Follows one replica after the other, forever.

use crate::{
    clock::{Clock, draw},
    credentials::Credentials,
    event::Event,
    ready_replicas::Ready,
    replica_clients::ReplicaClients,
};
use control_rpc::{Follow, FollowError, StreamEvent};
use control_wire::proto::Hello;
use datapath_node::Next;
use std::{net::SocketAddr, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    time::{Instant, sleep, sleep_until},
};

/// The state of the stream that the core requires.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct StreamState {
    /// The number of streams that have started. The other fields are about the last of them.
    pub(crate) streams: u64,
    /// The generation to acknowledge on the last stream; 0 if none.
    pub(crate) acknowledge: u64,
    /// The stream is to end and the next one to compare everything.
    pub(crate) resync: bool,
}

/// The task that follows a replica.
pub(crate) struct Follower {
    pub(crate) ready: Ready,
    pub(crate) credentials: Credentials,
    pub(crate) clients: ReplicaClients,
    pub(crate) events: mpsc::Sender<Event>,
    pub(crate) stream_state: watch::Receiver<StreamState>,
    /// The number of streams that have started.
    pub(crate) streams: u64,
    pub(crate) clock: Clock,
}

/// The agent ends: its queue of events is closed.
struct Ended;

impl Follower {
    pub(crate) async fn run(mut self) {
        while let Ok(()) = self.step().await {}
    }

    async fn step(&mut self) -> Result<(), Ended> {
        let next = self.ready.lock().next(self.clock.now(), draw());
        match next {
            Next::NoReplica => {
                self.disconnected("no replica of the controller is known to be ready".to_owned())
                    .await?;
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
        let files =
            self.credentials.trust().and_then(|trust| Ok((trust, self.credentials.token()?)));
        let (trust, token) = match files {
            Ok(files) => files,
            Err(error) => return self.disconnected(error.to_string()).await,
        };
        let hello = self.hello(take_behind).await?;
        match Follow::begin(at, &trust, &token, hello).await {
            Ok(follow) => {
                let behind = take_behind;
                if behind {
                    tracing::warn!(%at, "every replica is behind this node; following the newest one");
                }
                self.ready.lock().began();
                self.clients.adopt(at, follow.client());
                let epoch = follow.welcome().epoch.clone();
                self.streams += 1;
                self.send(Event::Began { at, epoch, behind }).await?;
                tracing::info!(%at, "following");
                let why = self.listen(at, follow).await?;
                tracing::warn!(%at, why, "the stream has ended");
                self.ready.lock().ended(self.clock.now(), draw());
                self.disconnected(why).await
            }
            Err(FollowError::Behind { at, reached }) => {
                let (reply, lag) = oneshot::channel();
                self.send(Event::Lag { reached, reply }).await?;
                let lag = lag.await.map_err(|_| Ended)?;
                self.ready.lock().is_behind(at, lag, self.clock.now());
                let why = format!("the replica at {at} has read less than this node holds");
                self.disconnected(why).await
            }
            Err(error) => self.disconnected(error.to_string()).await,
        }
    }

    /// Passes on the messages of a stream until it ends; the cause.
    async fn listen(&mut self, at: SocketAddr, mut follow: Follow) -> Result<String, Ended> {
        let mut acknowledged = 0;
        // The replica may have lost the API server only; its streams continue.
        let mut leave_at = None;
        loop {
            tokio::select! {
                event = follow.receive() => match event {
                    Ok(StreamEvent::Part(part)) => self.send(Event::Part(part)).await?,
                    Ok(StreamEvent::Bookmark(bookmark)) => self.send(Event::Bookmark(bookmark)).await?,
                    Err(error) => return Ok(error.to_string()),
                },
                () = self.ready.changed.notified() => {
                    let is_left_out = self.ready.lock().is_left_out(at);
                    leave_at = is_left_out.then(|| leave_at.unwrap_or_else(later));
                }
                () = sleep_until(leave_at.unwrap_or_else(Instant::now)), if leave_at.is_some() => {
                    return Ok("the replica is no longer ready, and others are".to_owned());
                }
                changed = self.stream_state.changed() => {
                    changed.map_err(|_| Ended)?;
                    let now = *self.stream_state.borrow_and_update();
                    if now.streams != self.streams {
                        // Messages of the earlier stream are still being processed.
                        continue;
                    }
                    if now.resync {
                        return Ok("its update does not fit the snapshot of this node".to_owned());
                    }
                    // Also if the generation is the same as before: this stream has sent it again.
                    if now.acknowledge != acknowledged {
                        self.ready.lock().worked();
                        if let Err(error) = follow.acknowledge(now.acknowledge).await {
                            return Ok(error.to_string());
                        }
                        acknowledged = now.acknowledge;
                    }
                }
            }
        }
    }

    async fn hello(&self, take_behind: bool) -> Result<Hello, Ended> {
        let (reply, hello) = oneshot::channel();
        self.send(Event::Hello { take_behind, reply }).await?;
        hello.await.map_err(|_| Ended)
    }

    async fn disconnected(&self, why: String) -> Result<(), Ended> {
        self.send(Event::Disconnected(why)).await
    }

    async fn send(&self, event: Event) -> Result<(), Ended> {
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
