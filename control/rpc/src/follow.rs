//! A node's end of the stream.

use crate::{ReplicaClient, Reply, Trust, generated::distribution_client::DistributionClient};
use control_wire::proto::{
    AnnounceRequest, Applied, Bookmark, FollowRequest, Hello, Part, ReportRequest, Welcome,
    follow_reply, follow_request,
};
use futures::{StreamExt as _, stream};
use http::Uri;
use hyper_util::rt::TokioIo;
use std::{collections::BTreeMap, net::SocketAddr, time::Duration};
use thiserror::Error;
use tokio::{
    net::TcpStream,
    sync::mpsc,
    time::{Instant, timeout, timeout_at},
};
use tonic::{
    Request, Status, Streaming,
    metadata::{Ascii, MetadataValue},
    transport::{Channel, Endpoint},
};

/// How long connecting may take.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the first answer may take.
const WELCOME: Duration = Duration::from_secs(10);
/// How late it may be said that the node holds a generation. An event that 5,000 nodes are told of has reached them
/// by then: what they answer does not keep it from the last of them.
const LATE: Duration = Duration::from_millis(300);
/// How large a message may be.
const MESSAGE_BYTES: usize = 16 << 20;
/// A connection of which nothing is heard is asked so often, and given up after as long again.
const ALIVE: Duration = Duration::from_secs(15);

type Holds = mpsc::Receiver<(u64, Instant)>;

/// Why a stream did not begin, or ended.
#[derive(Debug, Error)]
pub enum FollowError {
    /// The replica was not reached.
    #[error("cannot reach the replica at {at}: {why}")]
    Unreachable {
        /// Where.
        at: SocketAddr,
        /// Why not.
        why: String,
    },
    /// It refused, or broke off.
    #[error("the replica at {at}: {status}")]
    Refused {
        /// Where.
        at: SocketAddr,
        /// What it said.
        status: Box<Status>,
    },
    /// It has read less of the cluster than the node holds.
    #[error("the replica at {at} has read less than this node holds")]
    Behind {
        /// Where.
        at: SocketAddr,
        /// How far it has read each kind.
        reached: BTreeMap<String, u64>,
    },
    /// It said something out of turn, or nothing.
    #[error("the replica at {at} {what}")]
    Odd {
        /// Where.
        at: SocketAddr,
        /// What.
        what: &'static str,
    },
    /// The token is no header.
    #[error("the token cannot be sent: it has characters that no token has")]
    Token,
}

/// What is heard on a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum StreamEvent {
    /// A part of a generation.
    Part(Part),
    /// How far the cluster was read.
    Bookmark(Bookmark),
}

/// A stream that has begun.
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
    /// Connects to a replica and begins.
    ///
    /// # Errors
    /// If it cannot be reached, refuses, or is behind.
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
        let says = stream::unfold(holds, applied);
        let mut request = Request::new(stream::iter([hello]).chain(says));
        request.metadata_mut().insert("authorization", token.clone());
        let refused = |status: Status| FollowError::Refused { at, status: Box::new(status) };
        let late = |_| FollowError::Odd { at, what: "does not answer" };
        let begun = timeout(WELCOME, client.follow(request)).await.map_err(late)?;
        let mut replies = begun.map_err(refused)?.into_inner();
        let first = timeout(WELCOME, replies.message()).await.map_err(late)?.map_err(refused)?;
        match of(first) {
            Some(follow_reply::Of::Welcome(welcome)) => {
                Ok(Self { at, welcome, replies, held, client, token })
            }
            Some(follow_reply::Of::Behind(behind)) => {
                let reached = behind.reached.into_iter();
                let reached = reached.map(|of| (of.kind, of.version)).collect();
                Err(FollowError::Behind { at, reached })
            }
            Some(_) => Err(FollowError::Odd { at, what: "does not say welcome" }),
            None => Err(FollowError::Odd { at, what: "ends the stream before it began" }),
        }
    }

    /// The replica's address.
    pub fn at(&self) -> SocketAddr {
        self.at
    }

    /// What it said first.
    pub fn welcome(&self) -> &Welcome {
        &self.welcome
    }

    /// What comes next. May be dropped at any time: nothing is lost.
    ///
    /// # Errors
    /// If the stream is over.
    pub async fn heard(&mut self) -> Result<StreamEvent, FollowError> {
        let at = self.at;
        let said = self.replies.message().await;
        match of(said.map_err(|status| FollowError::Refused { at, status: Box::new(status) })?) {
            Some(follow_reply::Of::Part(part)) => Ok(StreamEvent::Part(part)),
            Some(follow_reply::Of::Bookmark(bookmark)) => Ok(StreamEvent::Bookmark(bookmark)),
            Some(follow_reply::Of::Welcome(_) | follow_reply::Of::Behind(_)) => {
                Err(FollowError::Odd { at, what: "says welcome twice" })
            }
            None => Err(FollowError::Odd { at, what: "has ended the stream" }),
        }
    }

    /// The node holds a generation: the replica is told a little later, or with the next.
    ///
    /// # Errors
    /// If the stream is over.
    pub async fn holds(&self, generation: u64) -> Result<(), FollowError> {
        let said = self.held.send((generation, Instant::now())).await;
        said.map_err(|_| FollowError::Odd { at: self.at, what: "has ended the stream" })
    }

    /// The same replica, for single questions over the same connection.
    pub fn client(&self) -> ReplicaClient {
        ReplicaClient::of(self.client.clone())
    }

    /// Tells this replica of a pod's address.
    ///
    /// # Errors
    /// If it refuses, or cannot be reached.
    pub async fn announce(&mut self, announce: AnnounceRequest) -> Result<(), Status> {
        let request = self.request(announce);
        self.client.announce(request).await.map(drop)
    }

    /// Tells this replica what became of policies.
    ///
    /// # Errors
    /// If it refuses, or cannot be reached.
    pub async fn report(&mut self, report: ReportRequest) -> Result<(), Status> {
        let request = self.request(report);
        self.client.report(request).await.map(drop)
    }

    fn request<T>(&self, message: T) -> Request<T> {
        with_token(message, &self.token)
    }
}

/// What is said next of the generations that the node holds.
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

pub(crate) fn bearer(token: &str) -> Result<MetadataValue<Ascii>, FollowError> {
    let bearer = MetadataValue::try_from(format!("Bearer {token}"));
    let mut token = bearer.map_err(|_| FollowError::Token)?;
    token.set_sensitive(true);
    Ok(token)
}

pub(crate) fn with_token<T>(message: T, token: &MetadataValue<Ascii>) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("authorization", token.clone());
    request.set_timeout(WELCOME);
    request
}

fn of(reply: Option<Reply>) -> Option<follow_reply::Of> {
    match reply {
        Some(Reply::Message(message)) => message.of,
        Some(Reply::Part(_) | Reply::Bookmark(_)) | None => None,
    }
}

pub(crate) async fn connect(
    at: SocketAddr,
    trust: &Trust,
) -> Result<DistributionClient<Channel>, FollowError> {
    let trust = trust.clone();
    let connector = tower::service_fn(move |_: Uri| {
        let trust = trust.clone();
        async move {
            let tcp = TcpStream::connect(at).await?;
            tcp.set_nodelay(true)?;
            trust.wrap(tcp).await.map(TokioIo::new)
        }
    });
    // The name is the trust's; that of the address is never looked up.
    let endpoint = Endpoint::from_static("http://controller")
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(ALIVE)
        .keep_alive_timeout(ALIVE)
        .keep_alive_while_idle(true);
    let unreachable = |why: String| FollowError::Unreachable { at, why };
    let connecting = timeout(CONNECT, endpoint.connect_with_connector(connector)).await;
    let channel = connecting.map_err(|_| unreachable(format!("no answer in {CONNECT:?}")))?;
    let channel = channel.map_err(|error| unreachable(config_model::causes(&error)))?;
    Ok(DistributionClient::new(channel).max_decoding_message_size(MESSAGE_BYTES))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[tokio::test]
    async fn two_generations_are_one_message_that_says_since_when_each_is_held() {
        let (held, holds) = mpsc::channel(8);
        let ago = |ms| Instant::now() - Duration::from_millis(ms);
        held.send((4, ago(90))).await.unwrap();
        held.send((5, ago(40))).await.unwrap();
        let said = |request: FollowRequest| match request.of {
            Some(follow_request::Of::Applied(applied)) => applied,
            other => panic!("{other:?}"),
        };
        let (request, holds) = applied(holds).await.unwrap();
        let both = said(request);
        assert_eq!((both.generation, both.before), (5, 4));
        assert!(both.for_ms >= 40 && both.before_for_ms >= 50 + both.for_ms - 1, "{both:?}");
        // One alone is not held back for another.
        held.send((6, Instant::now() - LATE)).await.unwrap();
        let (request, _holds) = applied(holds).await.unwrap();
        let alone = said(request);
        assert_eq!((alone.generation, alone.before, alone.before_for_ms), (6, 0, 0));
        assert!(u128::from(alone.for_ms) >= LATE.as_millis(), "{alone:?}");
    }
}
