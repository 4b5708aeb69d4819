//! One stream, from its welcome to its end.

use crate::{Caller, Gatekeeper, Reply, SharedHub, shared_hub::StreamWaker};
use control_hub::{Hub, Stream, Update};
use control_wire::{
    EncodedBookmark, parts,
    proto::{FollowRequest, follow_request},
};
use futures::{SinkExt as _, channel::mpsc};
use runtime_limiter::Connection;
use std::{
    pin::pin,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};
use tokio::time::{interval, timeout};
use tonic::{Status, Streaming};

/// Status message of streams that end because the replica stops.
pub(crate) const ENDS: &str = "this replica stops; connect to another one";
/// Interval of bookmarks if nothing changes.
const BOOKMARK: Duration = Duration::from_secs(30);
/// Status message for a node that takes updates and never acknowledges them.
const STUCK: &str = "the node has not acknowledged an update in time";

/// One stream from its welcome to its end.
pub(crate) struct Session {
    pub(crate) hub: Arc<SharedHub>,
    pub(crate) admit: Arc<dyn Gatekeeper>,
    pub(crate) caller: Caller,
    pub(crate) follows: Stream,
    pub(crate) replies: mpsc::Sender<Result<Reply, Status>>,
    pub(crate) waker: Arc<StreamWaker>,
    pub(crate) connection: Option<Connection>,
    /// Maximum time for which the node takes or acknowledges nothing.
    pub(crate) patience: Duration,
}

/// The stream has ended.
struct Over;

/// Pending content of a node at one time.
struct Content {
    update: Option<Update>,
    bookmark: Option<EncodedBookmark>,
}

impl Session {
    pub(crate) async fn run(mut self, mut requests: Streaming<FollowRequest>) {
        let _ = self.serve(&mut requests).await;
        let now_ms = self.hub.now_ms();
        let was_current = self.hub.with(|hub| {
            let is_current = hub.is_current(&self.follows);
            hub.close_stream(&self.follows, now_ms);
            is_current
        });
        if was_current {
            self.admit.ended(&self.follows.node);
        }
    }

    async fn serve(&mut self, requests: &mut Streaming<FollowRequest>) -> Result<(), Over> {
        let mut ticks = interval(BOOKMARK.min(self.patience));
        ticks.tick().await;
        let mut token = pin!(ended(self.caller.until));
        let mut reports_to = String::new();
        // Generation that the node has to acknowledge, and the start of the wait for it.
        let mut awaited = None;
        loop {
            if self.waker.is_dismissed.load(Ordering::SeqCst) {
                return self.ends(Status::unavailable(ENDS)).await;
            }
            if self.waker.is_to_recheck.swap(false, Ordering::SeqCst) {
                self.may_go_on().await?;
            }
            self.send_pending(&mut reports_to).await?;
            // Until more is pending.
            loop {
                tokio::select! {
                    () = self.waker.notify.notified() => break,
                    _ = ticks.tick() => {
                        self.may_go_on().await?;
                        self.keeps_up(&mut awaited).await?;
                        self.bookmark().await?;
                    }
                    () = &mut token => {
                        return self.ends(Status::unauthenticated("the token has expired")).await;
                    }
                    request = requests.message() => if self.handle(request).await? {
                        break;
                    },
                }
            }
        }
    }

    /// Ends the stream if the client may not continue.
    async fn may_go_on(&mut self) -> Result<(), Over> {
        let Err(why) = self.admit.still(&self.caller) else { return Ok(()) };
        self.ends(why).await?;
        Err(Over)
    }

    /// Ends the stream if the node has not acknowledged a generation in time.
    async fn keeps_up(&mut self, awaited: &mut Option<(u64, Instant)>) -> Result<(), Over> {
        let now = self.hub.with(|hub| hub.awaited(&self.follows));
        match (now, &awaited) {
            (Some(now), Some((before, since))) if now == *before => {
                if since.elapsed() >= self.patience {
                    self.admit.stuck(&self.follows.node);
                    self.ends(Status::deadline_exceeded(STUCK)).await?;
                    return Err(Over);
                }
            }
            _ => *awaited = now.map(|now| (now, Instant::now())),
        }
        Ok(())
    }

    /// Handles an ack, or the end of the node's messages. Returns true if more is to be sent.
    async fn handle(
        &mut self,
        request: Result<Option<FollowRequest>, Status>,
    ) -> Result<bool, Over> {
        match request {
            Ok(Some(FollowRequest { of: Some(follow_request::Of::Applied(applied)) })) => {
                let is_due =
                    self.hub.with(|hub| hub.acknowledge(&self.follows, applied.generation));
                let now = Instant::now();
                let both =
                    [(applied.before, applied.before_for_ms), (applied.generation, applied.for_ms)];
                for (generation, for_ms) in both.into_iter().filter(|(of, _)| *of > 0) {
                    let ago = Duration::from_millis(for_ms.into());
                    let since = now.checked_sub(ago).unwrap_or(now);
                    self.admit.held(&self.follows.node, generation, since);
                }
                Ok(is_due)
            }
            Ok(Some(_)) => {
                self.ends(Status::invalid_argument("Hello must be the first message only")).await?;
                Err(Over)
            }
            Ok(None) | Err(_) => Err(Over),
        }
    }

    /// Sends all pending content and a bookmark. A change of the receiver of reports is sent at once, also if nothing
    /// else is pending.
    async fn send_pending(&mut self, reports_to: &mut String) -> Result<(), Over> {
        let content = self.hub.with(|hub| self.content(hub, reports_to));
        let Some(Content { update, bookmark }) = content else {
            self.ends(Status::aborted("the node has opened another stream")).await?;
            return Err(Over);
        };
        for part in
            update.iter().flat_map(|Update { generation, changes }| parts(*generation, changes))
        {
            self.send(Ok(Reply::Part(part))).await?;
        }
        match bookmark {
            Some(bookmark) => self.send(Ok(Reply::Bookmark(bookmark))).await,
            None => Ok(()),
        }
    }

    /// Returns the node's pending content; `None` if the stream is no longer the node's.
    fn content(&self, hub: &mut Hub, reports_to: &mut String) -> Option<Content> {
        if !hub.is_current(&self.follows) {
            return None;
        }
        let update = hub.next_update(&self.follows);
        let moved = hub.reports_to() != reports_to;
        if moved {
            hub.reports_to().clone_into(reports_to);
        }
        let bookmark = (moved || update.is_some()).then(|| hub.bookmark(&self.follows)).flatten();
        Some(Content { update, bookmark })
    }

    async fn bookmark(&mut self) -> Result<(), Over> {
        match self.hub.with(|hub| hub.bookmark(&self.follows)) {
            Some(bookmark) => self.send(Ok(Reply::Bookmark(bookmark))).await,
            None => Ok(()),
        }
    }

    async fn ends(&mut self, why: Status) -> Result<(), Over> {
        self.send(Err(why)).await
    }

    async fn send(&mut self, reply: Result<Reply, Status>) -> Result<(), Over> {
        match timeout(self.patience, self.replies.send(reply)).await {
            Ok(sent) => sent.map_err(|_| Over),
            Err(_) => {
                self.admit.stuck(&self.follows.node);
                // A status would not arrive, as the data before it is not taken.
                if let Some(connection) = &self.connection {
                    connection.end();
                }
                Err(Over)
            }
        }
    }
}

async fn ended(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}
