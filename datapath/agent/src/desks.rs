//! Calls to replicas beside the stream: announcements of pods' addresses to all, reports to one.

use crate::{contact::Contact, event::Event, follow::Ready, metrics::Metrics};
use control_rpc::ReplicaClient;
use control_wire::proto::AnnounceRequest;
use datapath_node::{LocalPod, Report, store::announcement};
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
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
pub(crate) struct Desks {
    contact: Contact,
    ready: Ready,
    metrics: Arc<Metrics>,
    open: Arc<Mutex<BTreeMap<SocketAddr, Kept>>>,
    /// One task dials a replica; the others wait for it and use its connection.
    dialing: Arc<Mutex<BTreeMap<SocketAddr, Arc<tokio::sync::Mutex<()>>>>>,
    room: Arc<Semaphore>,
}

struct Kept {
    desk: ReplicaClient,
    used: Instant,
}

impl Desks {
    pub(crate) fn new(contact: Contact, ready: Ready, metrics: Arc<Metrics>) -> Self {
        let room = Arc::new(Semaphore::new(UNDER_WAY));
        Self { contact, ready, metrics, open: Arc::default(), dialing: Arc::default(), room }
    }

    /// Uses the stream's own connection for calls as well.
    pub(crate) fn adopt(&self, at: SocketAddr, desk: ReplicaClient) {
        self.lock().insert(at, Kept { desk, used: Instant::now() });
    }

    /// Announces a pod to every ready replica, in the background.
    pub(crate) fn announce(&self, pod: &LocalPod) {
        for at in self.ready.all() {
            let Ok(place) = Arc::clone(&self.room).try_acquire_owned() else {
                self.metrics.announced("dropped");
                tracing::warn!(%at, pod = %pod.pod, "cannot announce the addresses of the pod: too many announcements are under way");
                continue;
            };
            let (desks, pod) = (self.clone(), pod.clone());
            tokio::spawn(async move {
                let _place = place;
                let message = announcement(&pod);
                match desks.announce_to(at, message).await {
                    Ok(()) => desks.metrics.announced("accepted"),
                    Err(why) => {
                        desks.metrics.announced("failed");
                        tracing::warn!(%at, pod = %pod.pod, why, "cannot announce the addresses of the pod");
                    }
                }
            });
        }
    }

    async fn announce_to(&self, at: SocketAddr, message: AnnounceRequest) -> Result<(), String> {
        let mut attempt = 1;
        loop {
            let error = match self.desk(at).await {
                Ok((desk, token)) => match desk.announce(&token, message.clone()).await {
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
        let desks = self.clone();
        tokio::spawn(async move {
            let Report { to, message } = report;
            let sent = match desks.desk(to).await {
                Ok((desk, token)) => {
                    let sent = desk.report(&token, message).await;
                    sent.map_err(|status| desks.failed(to, &status))
                }
                Err(error) => Err(error),
            };
            if let Err(why) = &sent {
                tracing::warn!(at = %to, why, "cannot report the state of policies; trying again");
            }
            desks.metrics.reported(sent.is_ok());
            let _ = events.send(Event::Reported { to, arrived: sent.is_ok() }).await;
        });
    }

    async fn desk(&self, at: SocketAddr) -> Result<(ReplicaClient, String), String> {
        let token = self.contact.token().map_err(|error| error.to_string())?;
        if let Some(desk) = self.kept(at) {
            return Ok((desk, token));
        }
        let turn = self.turn(at);
        let _alone = turn.lock().await;
        if let Some(desk) = self.kept(at) {
            return Ok((desk, token));
        }
        let trust = self.contact.trust().map_err(|error| error.to_string())?;
        let desk = ReplicaClient::open(at, &trust).await.map_err(|error| error.to_string())?;
        self.adopt(at, desk.clone());
        Ok((desk, token))
    }

    fn kept(&self, at: SocketAddr) -> Option<ReplicaClient> {
        let mut open = self.lock();
        open.retain(|_, kept| kept.used.elapsed() < IDLE);
        let kept = open.get_mut(&at)?;
        kept.used = Instant::now();
        Some(kept.desk.clone())
    }

    fn turn(&self, at: SocketAddr) -> Arc<tokio::sync::Mutex<()>> {
        let mut dialing = self.dialing.lock().unwrap_or_else(PoisonError::into_inner);
        // No task waits for the removed ones.
        dialing.retain(|_, turn| Arc::strong_count(turn) > 1);
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

    fn lock(&self) -> MutexGuard<'_, BTreeMap<SocketAddr, Kept>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
