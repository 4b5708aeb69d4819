//! The controller's end of the stream.

use crate::{
    Reply,
    generated::policies_server::{Policies, PoliciesServer},
};
use policy_hub::{Begun, Hub, Says, Stream};
use policy_wire::{
    Digest, ObjectId, VERSIONS, parts,
    proto::{
        AnnounceReply, AnnounceRequest, Behind, FollowRequest, Hello, How, Reached, ReportReply,
        ReportRequest, Welcome, follow_reply, follow_request,
    },
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};
use tokio::{
    sync::{Notify, mpsc},
    time::{interval, timeout},
};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

/// How long a node may take to say what it holds.
const HELLO: Duration = Duration::from_secs(10);
/// How often a node is told how far the cluster was read, if nothing changes.
const BOOKMARK: Duration = Duration::from_secs(30);
/// What a node is told whose stream ends because the replica does.
const ENDS: &str = "this replica ends: go on with another";
/// How large a message of a node may be: what it holds is some 40 bytes an object.
const MESSAGE_BYTES: usize = 8 << 20;

/// Who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// The node that the caller's pod is bound to.
    pub node: String,
    /// When its token ends; the stream ends with it.
    pub until: Option<Instant>,
}

/// Says who a caller is.
#[tonic::async_trait]
pub trait Admit: Send + Sync + 'static {
    /// Who has this token, or why nobody is let in with it.
    async fn admit(&self, token: &str) -> Result<Caller, Status>;

    /// A node's pod has its address.
    async fn announce(&self, caller: &Caller, announce: AnnounceRequest) -> Result<(), Status>;

    /// What became of policies on a node.
    async fn report(&self, caller: &Caller, report: ReportRequest) -> Result<(), Status>;

    /// A node says that it holds a generation; for those who measure.
    fn held(&self, _node: &str, _generation: u64) {}

    /// A node's stream is over; for those who measure.
    fn ended(&self, _node: &str) {}
}

/// The hub, and the streams that wait for it.
pub struct Office {
    hub: Mutex<Hub>,
    bells: Mutex<BTreeMap<String, Arc<Bell>>>,
    begun: Instant,
    closed: AtomicBool,
}

/// Wakes the stream of one node.
#[derive(Debug, Default)]
struct Bell {
    rung: Notify,
    /// The stream is to end.
    is_dismissed: AtomicBool,
}

/// The service of one replica.
#[derive(Clone)]
pub struct Serving {
    office: Arc<Office>,
    admit: Arc<dyn Admit>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Office {
    /// One for a hub.
    pub fn new(hub: Hub) -> Arc<Self> {
        let (hub, bells) = (Mutex::new(hub), Mutex::new(BTreeMap::new()));
        Arc::new(Self { hub, bells, begun: Instant::now(), closed: AtomicBool::new(false) })
    }

    /// Does something with the hub, and wakes the streams of the nodes that have something to be told.
    pub fn with<R>(&self, what: impl FnOnce(&mut Hub) -> R) -> R {
        self.apply(what).0
    }

    /// The same, and says which nodes have something to be told.
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

    /// Forgets nodes that did not come back, and what no node needs any more.
    pub fn tidy(&self) {
        let now_ms = self.now_ms();
        self.with(|hub| hub.tidy(now_ms));
        // Those that no stream waits for.
        lock(&self.bells).retain(|_, bell| Arc::strong_count(bell) > 1);
    }

    /// From now on no stream begins here.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
    }

    /// The nodes that have a stream.
    pub fn followers(&self) -> Vec<String> {
        let bells = lock(&self.bells);
        let waiting = bells.iter().filter(|(_, bell)| Arc::strong_count(bell) > 1);
        waiting.map(|(node, _)| node.clone()).collect()
    }

    /// Ends a node's stream: it is to go on with another replica.
    pub fn dismiss(&self, node: &str) {
        if let Some(bell) = lock(&self.bells).get(node) {
            bell.is_dismissed.store(true, Ordering::SeqCst);
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

    fn bell(&self, node: &str) -> Arc<Bell> {
        lock(&self.bells).entry(node.to_owned()).or_default().clone()
    }
}

impl Serving {
    /// The service, to be put into a server.
    pub fn new(office: Arc<Office>, admit: Arc<dyn Admit>) -> PoliciesServer<Self> {
        let server = PoliciesServer::new(Self { office, admit });
        server.max_decoding_message_size(MESSAGE_BYTES)
    }

    async fn caller<T>(&self, request: &Request<T>) -> Result<Caller, Status> {
        let header = request.metadata().get("authorization");
        let text = header.and_then(|value| value.to_str().ok());
        let token = text.and_then(|text| text.strip_prefix("Bearer "));
        let token = token.ok_or_else(|| Status::unauthenticated("there is no bearer token"))?;
        self.admit.admit(token).await
    }
}

#[tonic::async_trait]
impl Policies for Serving {
    type FollowStream = ReceiverStream<Result<Reply, Status>>;

    async fn follow(
        &self,
        request: Request<Streaming<FollowRequest>>,
    ) -> Result<Response<Self::FollowStream>, Status> {
        let caller = self.caller(&request).await?;
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
        let (replies, stream) = mpsc::channel(1);
        let (begun, epoch) = self.office.with(|hub| (hub.begin(&node, &says), hub.epoch()));
        let (how, follows) = match begun {
            Begun::Kept(follows) => (How::Kept, follows),
            Begun::Compared(follows) => (How::Compared, follows),
            Begun::NotYet => {
                return Err(Status::unavailable("this replica has not read the cluster yet"));
            }
            Begun::Behind(reached) => {
                let reached = reached.into_iter();
                let reached = reached.map(|(kind, version)| Reached { kind, version }).collect();
                let behind = follow_reply::Of::Behind(Behind { reached }).into();
                // There is room for the first.
                let _ = replies.try_send(Ok(behind));
                return Ok(Response::new(ReceiverStream::new(stream)));
            }
        };
        let welcome = Welcome { version, epoch: epoch.to_vec(), how: how.into() };
        let _ = replies.try_send(Ok(follow_reply::Of::Welcome(welcome).into()));
        let office = self.office.clone();
        let bell = office.bell(&node);
        let (until, admit) = (caller.until, self.admit.clone());
        let teller = Teller { office, admit, follows, replies, bell, until };
        tokio::spawn(teller.run(requests));
        Ok(Response::new(ReceiverStream::new(stream)))
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

/// One stream, until it is over.
struct Teller {
    office: Arc<Office>,
    admit: Arc<dyn Admit>,
    follows: Stream,
    replies: mpsc::Sender<Result<Reply, Status>>,
    bell: Arc<Bell>,
    until: Option<Instant>,
}

/// The stream is over.
struct Over;

impl Teller {
    async fn run(self, mut requests: Streaming<FollowRequest>) {
        let _ = self.talk(&mut requests).await;
        let now_ms = self.office.now_ms();
        let was_current = self.office.with(|hub| {
            let is_current = hub.is_current(&self.follows);
            hub.end(&self.follows, now_ms);
            is_current
        });
        if was_current {
            self.admit.ended(&self.follows.node);
        }
    }

    async fn talk(&self, requests: &mut Streaming<FollowRequest>) -> Result<(), Over> {
        let mut ticks = interval(BOOKMARK);
        ticks.tick().await;
        let mut reports_to = String::new();
        loop {
            if self.bell.is_dismissed.load(Ordering::SeqCst) {
                return self.ends(Status::unavailable(ENDS)).await;
            }
            if !self.office.with(|hub| hub.is_current(&self.follows)) {
                return self.ends(Status::aborted("the node has begun another stream")).await;
            }
            // Where reports go is said at once.
            let now = self.office.with(|hub| hub.reports_to().to_owned());
            if self.tell().await? || now != reports_to {
                self.bookmark().await?;
            }
            reports_to = now;
            tokio::select! {
                () = self.bell.rung.notified() => {}
                _ = ticks.tick() => self.bookmark().await?,
                () = ended(self.until) => {
                    return self.ends(Status::unauthenticated("the token has ended")).await;
                }
                request = requests.message() => match request {
                    Ok(Some(FollowRequest { of: Some(follow_request::Of::Applied(applied)) })) => {
                        self.office.with(|hub| hub.held(&self.follows, applied.generation));
                        self.admit.held(&self.follows.node, applied.generation);
                    }
                    Ok(Some(_)) => {
                        return self.ends(Status::invalid_argument("Hello is said once")).await;
                    }
                    Ok(None) | Err(_) => return Err(Over),
                },
                () = self.replies.closed() => return Err(Over),
            }
        }
    }

    /// Tells all that there is, as fast as the node takes it. Says whether there was something.
    async fn tell(&self) -> Result<bool, Over> {
        let mut told = false;
        while let Some(telling) = self.office.with(|hub| hub.tell(&self.follows)) {
            for part in parts(telling.generation, &telling.changes) {
                self.send(Ok(Reply::Part(part))).await?;
            }
            told = true;
        }
        Ok(told)
    }

    async fn bookmark(&self) -> Result<(), Over> {
        match self.office.with(|hub| hub.bookmark(&self.follows)) {
            Some(bookmark) => self.send(Ok(follow_reply::Of::Bookmark(bookmark).into())).await,
            None => Ok(()),
        }
    }

    async fn ends(&self, why: Status) -> Result<(), Over> {
        self.send(Err(why)).await
    }

    async fn send(&self, reply: Result<Reply, Status>) -> Result<(), Over> {
        self.replies.send(reply).await.map_err(|_| Over)
    }
}

async fn ended(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until.into()).await,
        None => std::future::pending().await,
    }
}

fn version(hello: &Hello) -> Result<u32, Status> {
    let theirs = hello.versions.unwrap_or_default();
    let newest = theirs.newest.min(*VERSIONS.end());
    if newest >= theirs.oldest.max(*VERSIONS.start()) {
        return Ok(newest);
    }
    Err(Status::failed_precondition(format!(
        "no common version: the node speaks {} to {}, this replica {} to {}",
        theirs.oldest,
        theirs.newest,
        VERSIONS.start(),
        VERSIONS.end()
    )))
}

fn says(hello: &Hello) -> Result<Says, Status> {
    let mut holds = BTreeMap::new();
    for digest in &hello.holds {
        let bad =
            |what: String| Status::invalid_argument(format!("a digest of the node's: {what}"));
        let id = digest.id.as_ref().ok_or_else(|| bad("it says not of what".to_owned()))?;
        let id = ObjectId::read(id).map_err(|why| bad(why.to_string()))?;
        let hash = digest.hash.as_slice().try_into();
        let hash = hash.map_err(|_| bad("it is not 16 bytes long".to_owned()))?;
        holds.insert(id, Digest(hash));
    }
    let reached = hello.reached.iter().map(|reached| (reached.kind.clone(), reached.version));
    Ok(Says {
        epoch: hello.epoch.clone(),
        generation: hello.generation,
        reached: reached.collect(),
        holds,
        take_behind: hello.take_behind,
    })
}
