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
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
}

/// The hub, and the streams that wait for it.
pub struct Office {
    hub: Mutex<Hub>,
    bells: Mutex<BTreeMap<String, Arc<Notify>>>,
    begun: Instant,
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
        Arc::new(Self { hub, bells, begun: Instant::now() })
    }

    /// Does something with the hub, and wakes the streams of the nodes that have something to be told.
    pub fn with<R>(&self, what: impl FnOnce(&mut Hub) -> R) -> R {
        let (result, touched) = {
            let mut hub = lock(&self.hub);
            (what(&mut hub), hub.take_touched())
        };
        if !touched.is_empty() {
            let bells = lock(&self.bells);
            let woken = touched.iter().filter_map(|node| bells.get(node));
            woken.for_each(|bell| bell.notify_one());
        }
        result
    }

    /// Milliseconds since the start.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn bell(&self, node: &str) -> Arc<Notify> {
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
        let teller = Teller { office, follows, replies, bell, until: caller.until };
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
    follows: Stream,
    replies: mpsc::Sender<Result<Reply, Status>>,
    bell: Arc<Notify>,
    until: Option<Instant>,
}

/// The stream is over.
struct Over;

impl Teller {
    async fn run(self, mut requests: Streaming<FollowRequest>) {
        let _ = self.talk(&mut requests).await;
        let now_ms = self.office.now_ms();
        self.office.with(|hub| hub.end(&self.follows, now_ms));
    }

    async fn talk(&self, requests: &mut Streaming<FollowRequest>) -> Result<(), Over> {
        let mut ticks = interval(BOOKMARK);
        ticks.tick().await;
        loop {
            if !self.office.with(|hub| hub.is_current(&self.follows)) {
                return self.ends(Status::aborted("the node has begun another stream")).await;
            }
            self.tell().await?;
            tokio::select! {
                () = self.bell.notified() => {}
                _ = ticks.tick() => self.bookmark().await?,
                () = ended(self.until) => {
                    return self.ends(Status::unauthenticated("the token has ended")).await;
                }
                request = requests.message() => match request {
                    Ok(Some(FollowRequest { of: Some(follow_request::Of::Applied(applied)) })) => {
                        self.office.with(|hub| hub.held(&self.follows, applied.generation));
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

    /// Tells all that there is, as fast as the node takes it.
    async fn tell(&self) -> Result<(), Over> {
        let mut told = false;
        while let Some(telling) = self.office.with(|hub| hub.tell(&self.follows)) {
            for part in parts(telling.generation, &telling.changes) {
                self.send(Ok(Reply::Part(part))).await?;
            }
            told = true;
        }
        if told { self.bookmark().await } else { Ok(()) }
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
