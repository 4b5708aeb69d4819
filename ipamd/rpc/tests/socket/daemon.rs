//! A daemon with one address, to ask.

use config_model::{DeviceIndex, HostEndMode, PodKey, PodName, RuleLayout, Span, TableId};
use ipamd_rpc::{
    Assignment, Client, Collect, Collected, Confirm, Enforcer, Pod, PodAddress, PoolStatus, Reason,
    Refusal, Release, ReleaseCause, Released, Reservation, Reserve, ReserveOutcome,
    server::{CallFailed, Ipam, serve},
};
use runtime_socket::server::{Health, listen};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};
use tokio::{
    sync::{Semaphore, oneshot, watch},
    task::JoinHandle,
};

/// Long enough for anything that is going to happen.
pub(crate) fn soon() -> Instant {
    Instant::now() + Duration::from_secs(20)
}

/// Short enough not to wait for what is not going to happen.
pub(crate) fn shortly() -> Instant {
    Instant::now() + Duration::from_millis(300)
}

pub(crate) fn key(id: &str) -> PodKey {
    PodKey::new("aws-cni", id, "eth0").unwrap()
}

pub(crate) fn reserve(id: &str) -> Reserve {
    let name = PodName { namespace: "default".into(), name: "web-0".into() };
    Reserve {
        key: key(id),
        pod: Pod { name, uid: None, infra_container_id: None },
        netns: "/run/netns/x".into(),
        wait: Span::seconds(10),
        multi_nic: false,
    }
}

pub(crate) fn release(id: &str) -> Release {
    Release { key: key(id), pod: None, cause: ReleaseCause::PodDeleted }
}

pub(crate) fn confirm(id: &str) -> Confirm {
    Confirm { key: key(id), host_interface: "eni0d7763386da".into() }
}

pub(crate) fn address() -> PodAddress {
    PodAddress {
        ipv4: Some("10.0.1.7".parse().unwrap()),
        ipv6: None,
        device: DeviceIndex(1),
        table: TableId(2),
        eni: Some("eni-1".into()),
    }
}

pub(crate) fn held(confirmed: bool) -> Assignment {
    let rules = RuleLayout::Compact;
    Assignment {
        pod: None,
        addresses: vec![address()],
        branch: None,
        confirmed,
        rules,
        host_end: HostEndMode::Routed,
    }
}

/// Holds pods; the container ids `full`, `broken` and `slow` call for a refusal, a failure and an
/// answer that does not come.
pub(crate) struct Book {
    held: Mutex<BTreeMap<PodKey, bool>>,
    names: Mutex<BTreeMap<PodKey, PodName>>,
    pub(crate) waiting: watch::Sender<usize>,
    never: Semaphore,
    /// The policy agent in the answers.
    pub(crate) policy: Mutex<Option<Enforcer>>,
}

struct Waiter<'a>(&'a watch::Sender<usize>);

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl Ipam for Book {
    async fn reserve(&self, request: Reserve) -> Result<ReserveOutcome, CallFailed> {
        match request.key.container_id.as_str() {
            "full" => {
                return Ok(ReserveOutcome::Refused(Refusal {
                    reason: Reason::Exhausted,
                    message: "subnet-1 has no free address".into(),
                    next_step: "add a subnet".into(),
                }));
            }
            "broken" => {
                return Err(CallFailed { message: "write the checkpoint: disk full".into() });
            }
            id if id.starts_with("slow") => {
                self.waiting.send_modify(|count| *count += 1);
                let _counted = Waiter(&self.waiting);
                let _ = self.never.acquire().await;
            }
            _ => {}
        }
        self.names.lock().unwrap().insert(request.key.clone(), request.pod.name);
        self.held.lock().unwrap().entry(request.key).or_insert(false);
        Ok(ReserveOutcome::Reserved(Reservation {
            addresses: vec![address()],
            vpc_v4_cidrs: vec!["10.0.0.0/16".parse().unwrap()],
            use_external_snat: false,
            rules: RuleLayout::Compact,
            egress: true,
            host_end: HostEndMode::Routed,
        }))
    }

    async fn confirm(&self, request: Confirm) -> Result<bool, CallFailed> {
        let mut held = self.held.lock().unwrap();
        Ok(held.get_mut(&request.key).map(|confirmed| *confirmed = true).is_some())
    }

    async fn release(&self, request: Release) -> Result<Released, CallFailed> {
        let known = self.held.lock().unwrap().remove(&request.key).is_some();
        Ok(if known { Released::Known(vec![address()]) } else { Released::Unknown })
    }

    async fn inspect(&self, key: PodKey) -> Result<Option<Assignment>, CallFailed> {
        let confirmed = self.held.lock().unwrap().get(&key).copied();
        Ok(confirmed.map(held))
    }

    async fn holds(&self, pod: &PodName) -> Result<bool, CallFailed> {
        let names = self.names.lock().unwrap();
        let name = |key: &PodKey| names.get(key);
        Ok(self.held.lock().unwrap().keys().any(|key| name(key) == Some(pod)))
    }

    fn enforcer(&self) -> Option<Enforcer> {
        self.policy.lock().unwrap().clone()
    }

    async fn status(&self) -> Result<PoolStatus, CallFailed> {
        Ok(PoolStatus { unavailable: vec!["no address".into()], impaired: vec!["eni-1".into()] })
    }

    /// Spares what is not confirmed; what is called `stuck` stays.
    async fn collect(&self, request: Collect) -> Result<Collected, CallFailed> {
        let mut collected = Collected::default();
        let mut held = self.held.lock().unwrap();
        held.retain(|key, confirmed| {
            if key.network != request.network || request.valid.contains(key) {
                return true;
            }
            if !*confirmed {
                collected.spared.insert(key.clone());
            } else if key.container_id == "stuck" {
                collected.failed.insert(key.clone(), "the disk is full".into());
            } else {
                collected.released.insert(key.clone(), vec![address()]);
                return false;
            }
            true
        });
        Ok(collected)
    }
}

pub(crate) struct Daemon {
    pub(crate) socket: PathBuf,
    pub(crate) book: Arc<Book>,
    pub(crate) health: Health,
    stop: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl Daemon {
    pub(crate) async fn start(socket: &Path) -> Self {
        let incoming = listen(socket).await.unwrap();
        let book = Arc::new(Book {
            held: Mutex::default(),
            names: Mutex::default(),
            waiting: watch::Sender::new(0),
            never: Semaphore::new(0),
            policy: Mutex::default(),
        });
        let health = Health::starting().await;
        let (stop, stopped) = oneshot::channel();
        let (serve_book, serve_health) = (Arc::clone(&book), health.clone());
        let serving = tokio::spawn(async move {
            let stopped = async { drop(stopped.await) };
            serve(incoming, serve_book, &serve_health, stopped).await.unwrap();
        });
        Self { socket: socket.to_owned(), book, health, stop: Some(stop), serving }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(&self.socket, soon()).await.unwrap()
    }

    /// Stops as at SIGTERM: what is under way is answered first.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        self.serving.await.unwrap();
    }

    pub(crate) async fn waiting_becomes(&self, wanted: usize) {
        let mut waiting = self.book.waiting.subscribe();
        let seen = waiting.wait_for(|count| *count == wanted);
        tokio::time::timeout(Duration::from_secs(20), seen).await.unwrap().unwrap();
    }
}
