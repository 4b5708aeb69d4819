//! The controller's end of the stream.

use crate::{
    Caller, Gatekeeper, Reply, SharedHub,
    generated::distribution_server::Distribution,
    hello::{client_state, version},
    session::{ENDS, Session},
};
use control_hub::Handshake;
use control_wire::proto::{
    AnnounceReply, AnnounceRequest, Behind, FollowRequest, How, Reached, ReportReply,
    ReportRequest, Welcome, follow_reply, follow_request,
};
use futures::channel::mpsc;
use runtime_limiter::Connection;
use std::{sync::Arc, time::Duration};
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};

/// Timeout of a node's first message.
const HELLO: Duration = Duration::from_secs(10);
/// Capacity of a stream's reply channel: the last part of a generation and the bookmark after it, which are sent as
/// one. The channel has room for one more reply for its sender.
const REPLIES: usize = 1;
/// The service of one replica.
#[derive(Clone)]
pub(crate) struct DistributionService {
    hub: Arc<SharedHub>,
    admit: Arc<dyn Gatekeeper>,
    patience: Duration,
}

impl DistributionService {
    pub(crate) fn new(hub: Arc<SharedHub>, admit: Arc<dyn Gatekeeper>, patience: Duration) -> Self {
        Self { hub, admit, patience }
    }
}

/// The caller that authentication has found.
fn caller<T>(request: &Request<T>) -> Result<Caller, Status> {
    let caller = request.extensions().get::<Caller>();
    caller.cloned().ok_or_else(|| Status::unauthenticated("the call was not authenticated"))
}

#[tonic::async_trait]
impl Distribution for DistributionService {
    type FollowStream = mpsc::Receiver<Result<Reply, Status>>;

    async fn follow(
        &self,
        request: Request<Streaming<FollowRequest>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let caller = caller(&request)?;
        let connection = request.extensions().get::<Connection>().cloned();
        if self.hub.is_closed() {
            return Err(Status::unavailable(ENDS));
        }
        let mut requests = request.into_inner();
        let first = timeout(HELLO, requests.message()).await;
        let first = first.map_err(|_| Status::deadline_exceeded("no Hello in time"));
        let Some(follow_request::Of::Hello(hello)) = first??.and_then(|first| first.of) else {
            return Err(Status::invalid_argument("the first message is not Hello"));
        };
        let version = version(&hello)?;
        let client = client_state(&hello)?;
        let node = caller.node.clone();
        let (mut replies, stream) = mpsc::channel(REPLIES);
        let (handshake, epoch, waker) = self.hub.begin(&node, &client);
        let (how, follows) = match handshake {
            Handshake::Resumed(follows) => (How::Kept, follows),
            Handshake::Compared(follows) => (How::Compared, follows),
            Handshake::NotYet => {
                return Err(Status::unavailable("this replica has not read the cluster yet"));
            }
            Handshake::Behind(reached) => {
                let reached = reached.into_iter();
                let reached = reached.map(|(kind, version)| Reached { kind, version }).collect();
                let behind = follow_reply::Of::Behind(Behind { reached }).into();
                // There is room for the first.
                let _ = replies.try_send(Ok(behind));
                return Ok(Response::new(stream));
            }
        };
        let kinds = self.hub.with(|hub| hub.kinds(&follows));
        let kinds = kinds.into_iter().map(|kind| kind.0).collect();
        let welcome = Welcome { version, epoch: epoch.to_vec(), how: how.into(), kinds };
        let _ = replies.try_send(Ok(follow_reply::Of::Welcome(welcome).into()));
        let (hub, admit) = (self.hub.clone(), self.admit.clone());
        let patience = self.patience;
        let session = Session { hub, admit, caller, follows, replies, waker, connection, patience };
        tokio::spawn(session.run(requests));
        Ok(Response::new(stream))
    }

    async fn announce(
        &self,
        request: Request<AnnounceRequest>,
    ) -> Result<Response<AnnounceReply>, Status> {
        let caller = caller(&request)?;
        self.admit.announce(&caller, request.into_inner()).await?;
        Ok(Response::new(AnnounceReply {}))
    }

    async fn report(
        &self,
        request: Request<ReportRequest>,
    ) -> Result<Response<ReportReply>, Status> {
        let caller = caller(&request)?;
        self.admit.report(&caller, request.into_inner()).await?;
        Ok(Response::new(ReportReply {}))
    }
}
