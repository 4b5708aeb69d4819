//! The agent, wired together: one task owns the node and carries out what it wants.

use crate::{
    Backend, Kubernetes,
    clock::Clock,
    contact::Contact,
    desks::Desks,
    endpoints::Watch,
    event::{EVENTS, Event},
    follow::{Follower, Ready, Told},
    http::{self, Shown, unready},
    metrics::Metrics,
    socket::Socket,
    store::{DiskFolder, Found, Ledger, OpenError, Store},
};
use anyhow::{Context as _, Result};
use config_settings::Agent;
use datapath_node::{Answer, Desired, Effect, Node, Ticket};
use runtime_socket::server::{Health, HealthName, Incoming, listen};
use std::{collections::BTreeMap, future::Future, net::SocketAddr, sync::Arc, time::Duration};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::sleep,
};

/// What the agent is started with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Its settings.
    pub agent: Agent,
    /// The node's name.
    pub node: String,
    /// Replicas of the controller; if there are any, the API server is not asked for them.
    pub replicas: Vec<SocketAddr>,
    /// How it is asked.
    pub kubernetes: Kubernetes,
}

/// As many events are taken before effects are carried out.
const BATCH: usize = 64;
/// How often a disk that has no room for orders is offered all that is held.
const CATCH_UP: Duration = Duration::from_millis(200);
/// As long at most nothing happens: health is told then.
const BEAT: Duration = Duration::from_secs(5);

/// Is the agent until `stop` completes.
///
/// # Errors
/// If the socket or the folder of its state is another agent's, or the socket cannot be had.
pub async fn run(
    options: Options,
    backend: impl Backend,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let Options { agent, node: name, replicas, kubernetes } = options;
    let clock = Clock::start();
    let metrics = Arc::new(Metrics::new().context("metrics")?);
    let (events, heard) = mpsc::channel(EVENTS);
    // First of all: another agent's socket is not taken.
    let incoming = listen(&agent.socket).await.context("the agent's socket")?;
    let (node, store, disk) = restore(&agent, &events)?;
    let ready = Ready::new(&name);
    let contact = Contact::of(&agent);
    let desks = Desks::new(contact.clone(), ready.clone(), Arc::clone(&metrics));
    let (told, telling) = watch::channel(Told::default());
    let (states, applying) = mpsc::channel(1);
    let health = Health::starting().await;
    let (backend_name, enforces) = (backend.name(), backend.enforces());
    tracing::info!(node = name, backend = backend_name, socket = %agent.socket.display(), "serving");
    if !enforces {
        tracing::warn!(
            "there is no backend: policies are computed and held, and nothing enforces them on this node"
        );
    }

    let mut tasks = JoinSet::new();
    tasks.spawn(apply(backend, applying, events.clone()));
    let follower = Follower {
        ready: ready.clone(),
        contact,
        desks: desks.clone(),
        events: events.clone(),
        told: telling,
        streams: 0,
        clock,
    };
    tasks.spawn(follower.run());
    let service = agent.service.clone();
    find(replicas, Watch { kubernetes, service, ready, events: events.clone() }, &mut tasks);
    if let Some(at) = agent.metrics.clone() {
        let shown = Shown { events: events.clone(), metrics: Arc::clone(&metrics) };
        tasks.spawn(http::serve(shown, at));
    }
    let socket = Arc::new(Socket {
        events: events.clone(),
        metrics: Arc::clone(&metrics),
        backend: backend_name,
        clock,
    });
    tasks.spawn(answer(incoming, socket, health.clone()));
    let owner = Owner {
        node,
        store,
        disk,
        clock,
        metrics,
        desks,
        events,
        told,
        states,
        enforces,
        health,
        healthy: (false, false),
        replies: BTreeMap::new(),
        alone: None,
    };
    owner.run(heard, stop).await;
    tasks.shutdown().await;
    let _ = std::fs::remove_file(&agent.socket);
    Ok(())
}

/// Where replicas are: those that were named, or the ones of the Service.
fn find(replicas: Vec<SocketAddr>, watch: Watch, tasks: &mut JoinSet<()>) {
    if replicas.is_empty() {
        tasks.spawn(watch.run());
    } else {
        watch.ready.set(&replicas.into_iter().collect());
    }
}

/// Answers on the socket.
async fn answer(incoming: Incoming, socket: Arc<Socket>, health: Health) {
    let served = datapath_rpc::serve(incoming, socket, &health, std::future::pending());
    if let Err(error) = served.await {
        tracing::error!(error = format!("{error:#}"), "the socket is not served any more");
    }
}

/// What lay on the disk. Where there can be no file, the agent goes on from memory.
fn restore(
    agent: &Agent,
    events: &mpsc::Sender<Event>,
) -> Result<(Node, Option<Store>, Option<String>)> {
    let opened = DiskFolder::open(&agent.state_dir).and_then(Ledger::open);
    let (ledger, found) = match opened {
        Ok(opened) => opened,
        Err(error @ OpenError::InUse { .. }) => return Err(error).context("the agent's state"),
        Err(error) => {
            let why = error.to_string();
            tracing::error!(
                error = why,
                "what this node is told of policy is not kept: the agent goes on from memory; see to the \
                 folder and restart it, or set FERRULE_AGENT_STATE_DIR"
            );
            return Ok((Node::new(Default::default(), BTreeMap::new()), None, Some(why)));
        }
    };
    let Found { replayed, damage } = found;
    match damage {
        Some((why, Some(aside))) => tracing::error!(
            why,
            aside = %aside.display(),
            "the file of what this node was told is damaged: it is kept aside, and what stands before the damage counts"
        ),
        Some((why, None)) => {
            tracing::warn!(why, "the end of the file of what this node was told is missing")
        }
        None => {}
    }
    let (policies, pods) = (replayed.held.policies.len(), replayed.held.pods.len());
    tracing::info!(policies, pods, started = replayed.local.len(), "what was on the disk is held");
    let store = Store::start(ledger, events.clone()).context("begin to write")?;
    Ok((Node::new(replayed.held, replayed.local), Some(store), None))
}

/// Hands each state to the backend.
async fn apply(
    mut backend: impl Backend,
    mut states: mpsc::Receiver<Desired>,
    events: mpsc::Sender<Event>,
) {
    while let Some(desired) = states.recv().await {
        let came = backend.apply(&desired).await;
        let revision = desired.revision;
        // What is held must not be copied for the next change.
        drop(desired);
        if events.send(Event::Applied { revision, came }).await.is_err() {
            return;
        }
    }
}

/// Who owns the node.
struct Owner {
    node: Node,
    store: Option<Store>,
    disk: Option<String>,
    clock: Clock,
    metrics: Arc<Metrics>,
    desks: Desks,
    events: mpsc::Sender<Event>,
    told: watch::Sender<Told>,
    states: mpsc::Sender<Desired>,
    /// What the backend says of itself.
    enforces: bool,
    health: Health,
    /// Live and ready, as it was told last.
    healthy: (bool, bool),
    replies: BTreeMap<Ticket, oneshot::Sender<Answer>>,
    /// Why no replica is followed, as it was logged last.
    alone: Option<String>,
}

impl Owner {
    async fn run(mut self, mut heard: mpsc::Receiver<Event>, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            self.carry_out();
            self.tell_health().await;
            let wake = self.node.wake_at().map_or(BEAT, |at| self.clock.until(at).min(BEAT));
            let lagging = self.store.as_ref().is_some_and(Store::is_lagging);
            let wake = if lagging { wake.min(CATCH_UP) } else { wake };
            tokio::select! {
                () = &mut stop => break,
                event = heard.recv() => {
                    let Some(event) = event else { break };
                    self.take(event);
                    for _ in 1..BATCH {
                        let Ok(event) = heard.try_recv() else { break };
                        self.take(event);
                    }
                }
                () = sleep(wake) => {}
            }
            self.node.tick(self.clock.now());
        }
        tracing::info!("the agent ends; what is in force stays so");
        if let Some(store) = self.store.take() {
            let _ = tokio::task::spawn_blocking(|| store.finish()).await;
        }
    }

    fn take(&mut self, event: Event) {
        let now = self.clock.now();
        match event {
            Event::Hello { take_behind, reply } => {
                let _ = reply.send(self.node.hello(take_behind));
            }
            Event::Lag { reached, reply } => {
                let _ = reply.send(self.node.lag(&reached));
            }
            Event::Began { at, epoch, behind } => {
                self.alone = None;
                self.metrics.stream(behind);
                self.told.send_modify(|told| {
                    *told = Told { streams: told.streams + 1, ..Told::default() };
                });
                self.node.began(at, &epoch, behind);
            }
            Event::Alone(why) => {
                // Each attempt fails alike for as long as nothing changes.
                if self.alone.as_ref() != Some(&why) {
                    tracing::warn!(why, "no replica of the controller is followed");
                    self.alone = Some(why.clone());
                }
                self.node.alone(why);
            }
            Event::Unlisted(why) => self.node.unlisted(why),
            Event::Part(part) => self.node.part(part, now),
            Event::Bookmark(bookmark) => self.node.bookmark(&bookmark, now),
            Event::Applied { revision, came } => self.node.applied(revision, came, now),
            Event::Reported { to, arrived } => self.node.reported(to, arrived, now),
            Event::Admit { pod, mode, since, reply } => {
                let ticket = self.node.admit(pod, mode, since);
                self.replies.insert(ticket, reply);
            }
            Event::Forget { pod, container, reply } => {
                self.node.forget(&pod, &container, now);
                let _ = reply.send(());
            }
            Event::Overview { reply } => {
                let _ = reply.send((self.node.overview(), self.disk.clone()));
            }
            Event::WantImage => {
                if let Some(store) = &mut self.store {
                    store.wants_image();
                }
            }
            Event::Disk(why) => self.disk = why,
        }
    }

    fn carry_out(&mut self) {
        for effect in self.node.take_effects() {
            match effect {
                Effect::Apply(desired) => {
                    // There is room: one is under way at a time.
                    if self.states.try_send(desired).is_err() {
                        tracing::error!("the backend is gone: nothing is put into force any more");
                    }
                }
                Effect::Answer { ticket, answer } => {
                    if let Some(reply) = self.replies.remove(&ticket) {
                        let _ = reply.send(answer);
                    }
                }
                Effect::Announce(pod) => self.desks.announce(&pod),
                Effect::Holds(generation) => {
                    self.metrics.generation("held");
                    self.told.send_modify(|told| told.holds = generation);
                }
                Effect::FollowAnew(fault) => {
                    self.metrics.generation("refused");
                    tracing::error!(%fault, "what the replica says does not fit what is held: it is compared anew");
                    self.told.send_modify(|told| told.anew = true);
                }
                Effect::Keep(records) => {
                    if let Some(store) = &mut self.store {
                        store.keep(records);
                    }
                }
                Effect::Report(mut report) => {
                    report.message.unenforced = !self.enforces;
                    self.desks.report(report, self.events.clone());
                }
            }
        }
        if let Some(store) = &mut self.store {
            store.catch_up(|| self.node.image());
        }
    }

    async fn tell_health(&mut self) {
        let now = (true, unready(&self.node.overview()).is_none());
        if now != self.healthy {
            self.healthy = now;
            self.health.set(HealthName::Live, now.0).await;
            self.health.set(HealthName::Ready, now.1).await;
        }
    }
}
