//! Calls to replicas beside the stream: announcements of pods' addresses to all, reports to one.

use crate::{credentials::Credentials, event::Event, metrics::Metrics, ready_replicas::Ready};
use control_rpc::ReplicaClient;
use control_wire::proto::AnnounceRequest;
use datapath_node::{LocalPod, Report, store::announcement};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, mpsc},
    time::sleep,
};
use tonic::{Code, Status};

/// The number of announcements under way; one more is dropped and counted. The pod's status has the same addresses later.
const UNDER_WAY: usize = 512;
/// The number of attempts of an announcement: the replica may not know the pod yet.
const ATTEMPTS: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// The time after which an unused connection is closed.
const IDLE: Duration = Duration::from_secs(60);

/// Connections to replicas beside the stream.
#[derive(Clone)]
pub(crate) struct ReplicaClients {
    credentials: Credentials,
    ready: Ready,
    metrics: Arc<Metrics>,
    open: Arc<Mutex<BTreeMap<SocketAddr, OpenClient>>>,
    /// One task dials a replica; the others wait for it and use its connection.
    dialing: Arc<Mutex<BTreeMap<SocketAddr, Arc<tokio::sync::Mutex<()>>>>>,
    room: Arc<Semaphore>,
}

struct OpenClient {
    client: ReplicaClient,
    used: Instant,
}

impl ReplicaClients {
    pub(crate) fn new(credentials: Credentials, ready: Ready, metrics: Arc<Metrics>) -> Self {
        let room = Arc::new(Semaphore::new(UNDER_WAY));
        Self { credentials, ready, metrics, open: Arc::default(), dialing: Arc::default(), room }
    }

    /// Uses the stream's own connection for calls as well.
    pub(crate) fn adopt(&self, at: SocketAddr, client: ReplicaClient) {
        self.lock().insert(at, OpenClient { client, used: Instant::now() });
    }

    /// Announces a pod to every ready replica, in the background.
    pub(crate) fn announce(&self, pod: &LocalPod) {
        for at in self.ready.all() {
            let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
                self.metrics.announced("dropped");
                tracing::warn!(%at, pod = %pod.pod, "cannot announce the addresses of the pod: too many announcements are in progress");
                continue;
            };
            let (clients, pod) = (self.clone(), pod.clone());
            tokio::spawn(async move {
                let _place = place;
                let message = announcement(&pod);
                match clients.announce_to(at, message).await {
                    Ok(()) => clients.metrics.announced("accepted"),
                    Err(why) => {
                        clients.metrics.announced("failed");
                        tracing::warn!(%at, pod = %pod.pod, why, "cannot announce the addresses of the pod");
                    }
                }
            });
        }
    }

    async fn announce_to(&self, at: SocketAddr, message: AnnounceRequest) -> Result<(), String> {
        let mut attempt = 1;
        loop {
            let error = match self.client(at).await {
                Ok((client, token)) => match client.announce(&token, message.clone()).await {
                    Ok(()) => return Ok(()),
                    Err(status) => self.failed(at, &status),
                },
                Err(error) => error,
            };
            if attempt == ATTEMPTS {
                return Err(error);
            }
            sleep(PAUSE * attempt).await;
            attempt += 1;
        }
    }

    /// Sends a report and returns its outcome as an event.
    pub(crate) fn report(&self, report: Report, events: mpsc::Sender<Event>) {
        let clients = self.clone();
        tokio::spawn(async move {
            let Report { to, message } = report;
            let sent = match clients.client(to).await {
                Ok((client, token)) => {
                    let sent = client.report(&token, message).await;
                    sent.map_err(|status| clients.failed(to, &status))
                }
                Err(error) => Err(error),
            };
            if let Err(why) = &sent {
                tracing::warn!(at = %to, why, "cannot report the state of policies; trying again");
            }
            clients.metrics.reported(sent.is_ok());
            let _ = events.send(Event::Reported { to, arrived: sent.is_ok() }).await;
        });
    }

    async fn client(&self, at: SocketAddr) -> Result<(ReplicaClient, String), String> {
        let token = self.credentials.token().map_err(|error| error.to_string())?;
        if let Some(client) = self.open_client(at) {
            return Ok((client, token));
        }
        let lock = self.dial_lock(at);
        let _dialing = lock.lock().await;
        if let Some(client) = self.open_client(at) {
            return Ok((client, token));
        }
        let trust = self.credentials.trust().map_err(|error| error.to_string())?;
        let client = ReplicaClient::open(at, &trust).await.map_err(|error| error.to_string())?;
        self.adopt(at, client.clone());
        Ok((client, token))
    }

    fn open_client(&self, at: SocketAddr) -> Option<ReplicaClient> {
        let mut open = self.lock();
        open.retain(|_, open| open.used.elapsed() < IDLE);
        let open = open.get_mut(&at)?;
        open.used = Instant::now();
        Some(open.client.clone())
    }

    fn dial_lock(&self, at: SocketAddr) -> Arc<tokio::sync::Mutex<()>> {
        let mut dialing = runtime_lock::lock(&self.dialing);
        // No task waits for the removed ones.
        dialing.retain(|_, lock| Arc::strong_count(lock) > 1);
        Arc::clone(dialing.entry(at).or_default())
    }

    /// The text of a refusal. A connection that may be broken is not used again.
    fn failed(&self, at: SocketAddr, status: &Status) -> String {
        if matches!(
            status.code(),
            Code::Unavailable | Code::Unknown | Code::Cancelled | Code::DeadlineExceeded
        ) {
            self.lock().remove(&at);
        }
        format!("the replica at {at}: {} ({:?})", status.message(), status.code())
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, OpenClient>> {
        runtime_lock::lock(&self.open)
    }
}
