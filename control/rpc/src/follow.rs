//! A node's end of the stream.

use crate::{
    FollowError, ReplicaClient, Reply, Trust,
    connection::{REPLY, bearer, connect, with_token},
    generated::distribution_client::DistributionClient,
};
use control_wire::proto::{
    AnnounceRequest, Applied, Bookmark, FollowRequest, Hello, Part, ReportRequest, Welcome,
    follow_reply, follow_request,
};
use futures::{StreamExt as _, stream};
use std::{net::SocketAddr, time::Duration};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};
use tonic::{
    Request, Status, Streaming,
    metadata::{Ascii, MetadataValue},
    transport::Channel,
};

/// Maximum delay of an ack. An event for 5,000 nodes has reached all of them within it, so that early acks do not
/// delay the event for the last node.
const LATE: Duration = Duration::from_millis(300);

type Holds = mpsc::Receiver<(u64, Instant)>;

/// Message received on a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// A part of a generation.
    Part(Part),
    /// Resource versions up to which the cluster was read.
    Bookmark(Bookmark),
}

/// An open stream.
#[derive(Debug)]
pub struct Follow {
    at: SocketAddr,
    welcome: Welcome,
    replies: Streaming<Reply>,
    /// The generations that the node holds, and since when.
    held: mpsc::Sender<(u64, Instant)>,
    client: DistributionClient<Channel>,
    token: MetadataValue<Ascii>,
}

impl Follow {
    /// Connects to a replica and starts a stream.
    ///
    /// # Errors
    /// Fails if the replica cannot be reached, refuses the stream, or is behind the node.
    pub async fn begin(
        at: SocketAddr,
        trust: &Trust,
        token: &str,
        hello: Hello,
    ) -> Result<Self, FollowError> {
        let mut client = connect(at, trust).await?;
        let token = bearer(token)?;
        let (held, holds) = mpsc::channel(8);
        let hello = FollowRequest { of: Some(follow_request::Of::Hello(hello)) };
        let acks = stream::unfold(holds, applied);
        let mut request = Request::new(stream::iter([hello]).chain(acks));
        request.metadata_mut().insert("authorization", token.clone());
        let refused = |status: Status| FollowError::Refused { at, status: Box::new(status) };
        let late = |_| FollowError::Odd { at, what: "did not answer in time" };
        let opened = timeout(REPLY, client.follow(request)).await.map_err(late)?;
        let mut replies = opened.map_err(refused)?.into_inner();
        let first = timeout(REPLY, replies.message()).await.map_err(late)?.map_err(refused)?;
        match of(first) {
            Some(follow_reply::Of::Welcome(welcome)) => {
                Ok(Self { at, welcome, replies, held, client, token })
            }
            Some(follow_reply::Of::Behind(behind)) => {
                let reached = behind.reached.into_iter();
                let reached = reached.map(|of| (of.kind, of.version)).collect();
                Err(FollowError::Behind { at, reached })
            }
            Some(_) => Err(FollowError::Odd { at, what: "sent no welcome" }),
            None => Err(FollowError::Odd { at, what: "ended the stream before its welcome" }),
        }
    }

    /// Returns the replica's address.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// Returns the replica's first message.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// Receives the next message. The future is cancel-safe: a drop loses no message.
    ///
    /// # Errors
    /// Fails if the stream has ended.
    pub async fn receive(&mut self) -> Result<StreamEvent, FollowError> {
        let at = self.at;
        let reply = self.replies.message().await;
        match of(reply.map_err(|status| FollowError::Refused { at, status: Box::new(status) })?) {
            Some(follow_reply::Of::Part(part)) => Ok(StreamEvent::Part(part)),
            Some(follow_reply::Of::Bookmark(bookmark)) => Ok(StreamEvent::Bookmark(bookmark)),
            Some(follow_reply::Of::Welcome(_) | follow_reply::Of::Behind(_)) => {
                Err(FollowError::Odd { at, what: "sent a second welcome" })
            }
            None => Err(FollowError::Odd { at, what: "has ended the stream" }),
        }
    }

    /// Queues the ack of a generation. The stream sends it a little later, or together with the next.
    ///
    /// # Errors
    /// Fails if the stream has ended.
    pub async fn acknowledge(&self, generation: u64) -> Result<(), FollowError> {
        let queued = self.held.send((generation, Instant::now())).await;
        queued.map_err(|_| FollowError::Odd { at: self.at, what: "has ended the stream" })
    }

    /// Returns a client of the same replica for single requests over the same connection.
    pub fn client(&self) -> ReplicaClient {
        ReplicaClient::of(self.client.clone())
    }

    /// Announces a pod's address to this replica.
    ///
    /// # Errors
    /// Fails if the replica refuses the announcement or cannot be reached.
    pub async fn announce(&mut self, announce: AnnounceRequest) -> Result<(), Status> {
        let request = self.request(announce);
        self.client.announce(request).await.map(drop)
    }

    /// Reports the state of policies to this replica.
    ///
    /// # Errors
    /// Fails if the replica refuses the report or cannot be reached.
    pub async fn report(&mut self, report: ReportRequest) -> Result<(), Status> {
        let request = self.request(report);
        self.client.report(request).await.map(drop)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        with_token(message, &self.token)
    }
}

/// Waits for the next ack to send.
async fn applied(mut holds: Holds) -> Option<(FollowRequest, Holds)> {
    let first = holds.recv().await?;
    let next = timeout_at(first.1 + LATE, holds.recv()).await.ok().flatten();
    let since = |at: Instant| u32::try_from(at.elapsed().as_millis()).unwrap_or(u32::MAX);
    let before = next.and(Some(first));
    let (generation, at) = next.unwrap_or(first);
    let applied = Applied {
        generation,
        for_ms: since(at),
        before: before.map_or(0, |(generation, _)| generation),
        before_for_ms: before.map_or(0, |(_, at)| since(at)),
    };
    let applied = follow_request::Of::Applied(applied);
    Some((FollowRequest { of: Some(applied) }, holds))
}

fn of(reply: Option<Reply>) -> Option<follow_reply::Of> {
    match reply {
        Some(Reply::Message(message)) => message.of,
        Some(Reply::Part(_) | Reply::Bookmark(_)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[tokio::test]
    async fn two_generations_share_one_ack_with_the_time_of_each() {
        let (held, holds) = mpsc::channel(8);
        let ago = |ms| Instant::now() - Duration::from_millis(ms);
        held.send((4, ago(90))).await.unwrap();
        held.send((5, ago(40))).await.unwrap();
        let content = |request: FollowRequest| match request.of {
            Some(follow_request::Of::Applied(applied)) => applied,
            other => panic!("{other:?}"),
        };
        let (request, holds) = applied(holds).await.unwrap();
        let both = content(request);
        assert_eq!((both.generation, both.before), (5, 4));
        assert!(both.for_ms >= 40 && both.before_for_ms >= 50 + both.for_ms - 1, "{both:?}");
        // One alone is not held back for another.
        held.send((6, Instant::now() - LATE)).await.unwrap();
        let (request, _holds) = applied(holds).await.unwrap();
        let alone = content(request);
        assert_eq!((alone.generation, alone.before, alone.before_for_ms), (6, 0, 0));
        assert!(u128::from(alone.for_ms) >= LATE.as_millis(), "{alone:?}");
    }
}
