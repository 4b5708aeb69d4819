//! The controller's end of the stream.

use crate::{
    Reply,
    generated::distribution_server::{Distribution, DistributionServer},
    hello::{says, version},
    preauth::Connection,
    session::Session,
};
use control_hub::{ClientState, Handshake, Hub};
use control_wire::proto::{
    AnnounceReply, AnnounceRequest, Behind, FollowRequest, How, Reached, ReportReply,
    ReportRequest, Welcome, follow_reply, follow_request,
};
use futures::channel::mpsc;
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{sync::Notify, time::timeout};
use tonic::{Request, Response, Status, Streaming};

/// Timeout of a node's first message.
const HELLO: Duration = Duration::from_secs(10);
/// Capacity of a stream's reply channel: the last part of a generation and the bookmark after it, which are sent as
/// one. The channel has room for one more reply for its sender.
const SAID: usize = 1;
/// Status message of streams that end because the replica stops.
pub(crate) const ENDS: &str = "this replica ends: go on with another";
/// Maximum time for which a node takes no data or acknowledges nothing. The node receives the missing content when
/// it reconnects.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum size of a node's message: its content takes about 40 bytes per object.
const MESSAGE_BYTES: usize = 8 << 20;

/// Identity of an authenticated client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Caller {
    /// The node that the caller's pod is bound to.
    pub node: String,
    /// That pod's name.
    pub pod: String,
    pub uid: String,
    /// When its token ends; the stream ends with it.
    pub until: Option<Instant>,
}

/// Identifies the caller of a request, and admits or refuses it.
#[tonic::async_trait]
pub trait Gatekeeper: Send + Sync + 'static {
    /// Returns the owner of a token, or the status that refuses it.
    async fn admit(&self, token: &str) -> Result<Caller, Status>;

    /// Checks whether an admitted client may continue. The server calls it often, so it must answer from memory.
    ///
    /// # Errors
    /// Returns the status for the client if it may not continue.
    fn still(&self, _caller: &Caller) -> Result<(), Status> {
        Ok(())
    }

    /// A node's pod has its address.
    async fn announce(&self, caller: &Caller, announce: AnnounceRequest) -> Result<(), Status>;

    /// Handles a node's report about its policies.
    async fn report(&self, caller: &Caller, report: ReportRequest) -> Result<(), Status>;

    /// Handles a node's ack of a generation with the time since when the node holds it; for measurements.
    fn held(&self, _node: &str, _generation: u64, _since: Instant) {}

    /// A node's stream is ended, as it took nothing, or held nothing, for long.
    fn stuck(&self, _node: &str) {}

    /// A node's stream is over; for those who measure.
    fn ended(&self, _node: &str) {}
}

/// The hub, and the streams that wait for it.
pub struct SharedHub {
    hub: Mutex<Hub>,
    bells: Mutex<BTreeMap<String, Arc<StreamWaker>>>,
    begun: Instant,
    closed: AtomicBool,
}

/// Wakes the stream of one node.
#[derive(Debug, Default)]
pub(crate) struct StreamWaker {
    pub(crate) rung: Notify,
    /// The stream is to end.
    pub(crate) is_dismissed: AtomicBool,
    /// The session has to check again whether the client may continue.
    pub(crate) is_doubted: AtomicBool,
}

/// The service of one replica.
#[derive(Clone)]
pub struct DistributionService {
    office: Arc<SharedHub>,
    admit: Arc<dyn Gatekeeper>,
    patience: Duration,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedHub {
    pub fn new(hub: Hub) -> Arc<Self> {
        let (hub, bells) = (Mutex::new(hub), Mutex::new(BTreeMap::new()));
        Arc::new(Self { hub, bells, begun: Instant::now(), closed: AtomicBool::new(false) })
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
            let bells = lock(&self.bells);
            let woken = touched.iter().filter_map(|node| bells.get(node));
            woken.for_each(|bell| bell.rung.notify_one());
        }
        (result, touched)
    }

    /// Forgets nodes that did not return, and objects that no node needs.
    pub fn tidy(&self) {
        let now_ms = self.now_ms();
        self.with(|hub| hub.tidy(now_ms));
        // Drop the wakers that no stream waits for.
        lock(&self.bells).retain(|_, bell| Arc::strong_count(bell) > 1);
    }

    /// Refuses new streams from now on.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// The nodes that have a stream.
    pub fn followers(&self) -> Vec<String> {
        let bells = lock(&self.bells);
        let waiting = bells.iter().filter(|(_, bell)| Arc::strong_count(bell) > 1);
        waiting.map(|(node, _)| node.clone()).collect()
    }

    /// Ends a node's stream, so that the node continues with another replica.
    pub fn dismiss(&self, node: &str) {
        if let Some(bell) = lock(&self.bells).get(node) {
            bell.is_dismissed.store(true, Ordering::SeqCst);
            bell.rung.notify_one();
        }
    }

    /// Makes a node's stream check again whether the node may continue.
    pub fn look_again(&self, node: &str) {
        if let Some(bell) = lock(&self.bells).get(node) {
            bell.is_doubted.store(true, Ordering::SeqCst);
            bell.rung.notify_one();
        }
    }

    fn is_closed(&self) -> bool {
        self.closed.load(Ordering::SeqCst)
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Starts a node's stream with a waker of its own. An ended stream must not consume a wake-up of this one, so it is
    /// informed of its end.
    fn begin(&self, node: &str, says: &ClientState) -> (Handshake, [u8; 16], Arc<StreamWaker>) {
        let bell = Arc::<StreamWaker>::default();
        let (begun, epoch, over) = self.with(|hub| {
            let begun = hub.open_stream(node, says);
            let begins = matches!(begun, Handshake::Resumed(_) | Handshake::Compared(_));
            // Under the hub's lock: of two concurrent starts the later one also has the waker.
            let over = begins.then(|| lock(&self.bells).insert(node.to_owned(), bell.clone()));
            (begun, hub.epoch(), over.flatten())
        });
        if let Some(over) = over {
            over.rung.notify_one();
        }
        (begun, epoch, bell)
    }
}

impl DistributionService {
    /// The service, to be put into a server.
    pub fn new(office: Arc<SharedHub>, admit: Arc<dyn Gatekeeper>) -> DistributionServer<Self> {
        Self::patient(office, admit, PATIENCE)
    }

    /// Like [`new`](Self::new), with another limit for nodes that take or acknowledge nothing.
    pub fn patient(
        office: Arc<SharedHub>,
        admit: Arc<dyn Gatekeeper>,
        patience: Duration,
    ) -> DistributionServer<Self> {
        let server = DistributionServer::new(Self { office, admit, patience });
        server.max_decoding_message_size(MESSAGE_BYTES)
    }

    async fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let header = request.metadata().get("authorization");
        let text = header.and_then(|value| value.to_str().ok());
        let token = text.and_then(|text| text.strip_prefix("Bearer "));
        let token = token.ok_or_else(|| Status::unauthenticated("there is no bearer token"))?;
        let visitor = request.extensions().get::<Connection>();
        let _asking = visitor.map(Connection::asks);
        let caller = self.admit.admit(token).await;
        match (&caller, visitor) {
            (Ok(_), Some(visitor)) => visitor.is_known(),
            (Err(_), Some(visitor)) => visitor.is_refused(),
            (_, None) => {}
        }
        caller
    }
}

#[tonic::async_trait]
impl Distribution for DistributionService {
    type FollowStream = mpsc::Receiver<Result<Reply, Status>>;

    async fn follow(
        &self,
        request: Request<Streaming<FollowRequest>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let caller = self.caller(&request).await?;
        let visitor = request.extensions().get::<Connection>().cloned();
        if self.office.is_closed() {
            return Err(Status::unavailable(ENDS));
        }
        let mut requests = request.into_inner();
        let first = timeout(HELLO, requests.message()).await;
        let first =
            first.map_err(|_| Status::deadline_exceeded("what the node holds did not come"));
        let Some(follow_request::Of::Hello(hello)) = first??.and_then(|first| first.of) else {
            return Err(Status::invalid_argument("the first message is not Hello"));
        };
        let version = version(&hello)?;
        let says = says(&hello)?;
        let node = caller.node.clone();
        let (mut replies, stream) = mpsc::channel(SAID);
        let (begun, epoch, bell) = self.office.begin(&node, &says);
        let (how, follows) = match begun {
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
        let kinds = self.office.with(|hub| hub.kinds(&follows));
        let kinds = kinds.into_iter().map(|kind| kind.0).collect();
        let welcome = Welcome { version, epoch: epoch.to_vec(), how: how.into(), kinds };
        let _ = replies.try_send(Ok(follow_reply::Of::Welcome(welcome).into()));
        let (office, admit) = (self.office.clone(), self.admit.clone());
        let patience = self.patience;
        let teller = Session { office, admit, caller, follows, replies, bell, visitor, patience };
        tokio::spawn(teller.run(requests));
        Ok(Response::new(stream))
    }

    async fn announce(
        &self,
        request: Request<AnnounceRequest>,
    ) -> Result<Response<AnnounceReply>, Status> {
        let caller = self.caller(&request).await?;
        self.admit.announce(&caller, request.into_inner()).await?;
        Ok(Response::new(AnnounceReply {}))
    }

    async fn report(
        &self,
        request: Request<ReportRequest>,
    ) -> Result<Response<ReportReply>, Status> {
        let caller = self.caller(&request).await?;
        self.admit.report(&caller, request.into_inner()).await?;
        Ok(Response::new(ReportReply {}))
    }
}
