//! The agent, wired together: one task owns the core and carries out its effects.

use crate::{
    clock::Clock,
    credentials::Credentials,
    event::{EVENTS, Event},
    exhaustion::Exhaustion,
    flows::{self, FlowLog, Query},
    follow::{Follower, StreamState},
    health_checks::{self, HealthServer, Hosts, ServiceHealth},
    http::{self, Pages, unready},
    links,
    metrics::Metrics,
    own_services::{self, OwnServices},
    ready_replicas::Ready,
    replica_clients::ReplicaClients,
    replica_file::ReplicaFile,
    reserved_ports::{NodePorts, ReservedPorts},
    socket::Socket,
    store::{self, DiskFolder, FileDamage, OpenError, Restored, Store},
};
use anyhow::{Context as _, Result};
use config_model::causes;
use config_settings::Agent;
use datapath_backend::Backend;
use datapath_node::{Answer, BackendEvent, Desired, Effect, Links, Node, Retire, Ticket};
use datapath_rpc::SERVICES_SOCKET;
use runtime_process::memory::{self, FreeMemory};
use runtime_socket::server::{Health, HealthName, Incoming, listen};
use std::{
    collections::BTreeMap,
    future::Future,
    net::SocketAddr,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::{JoinSet, spawn_blocking, yield_now},
    time::{sleep, timeout},
};

/// The agent's settings and environment.
#[derive(Clone, Debug)]
pub struct Options {
    /// The resolved settings.
    pub agent: Agent,
    /// The node's name.
    pub node: String,
    /// The controller's replicas. If there are any, the daemon's file is not read.
    pub replicas: Vec<SocketAddr>,
    /// Writable path of the host's `/proc/sys/net`.
    pub proc_sys_net: PathBuf,
}

/// The number of events that are taken before effects are carried out.
const BATCH: usize = 64;
/// The interval at which a store whose queue was full is offered the whole snapshot.
const CATCH_UP: Duration = Duration::from_millis(200);
/// The longest pause of the loop, after which health is reported.
const BEAT: Duration = Duration::from_secs(5);

/// Runs the agent until `stop` completes.
///
/// # Errors
/// Another agent has the socket or the state folder, or the socket cannot be taken over.
pub async fn run(
    options: Options,
    backend: impl Backend,
    stop: impl Future<Output = ()>,
) -> Result<()> {
    let Options { agent, node: name, replicas, proc_sys_net } = options;
    let clock = Clock::start();
    let metrics = Arc::new(Metrics::new().context("cannot register the metrics")?);
    let (events, inbox) = mpsc::channel(EVENTS);
    // The first step: an agent that runs already keeps its socket.
    let incoming = listen(&agent.socket).await.context("cannot open the agent's socket")?;
    let links = observe_links().await.unwrap_or_else(|why| {
        tracing::error!(why, "cannot observe the links of pods");
        Links::new()
    });
    let (node, store, disk) = restore(&agent, &links, &events)?;
    let node = node.named(&name, agent.connections.services);
    let ready = Ready::new(&name);
    let credentials = Credentials::of(&agent);
    let clients = ReplicaClients::new(credentials.clone(), ready.clone(), Arc::clone(&metrics));
    let (stream_state, stream_states) = watch::channel(StreamState::default());
    // One state and one observation at a time.
    let (work, todo) = mpsc::channel(2);
    let (queries, asked) = mpsc::channel(QUERIES);
    let flows = Arc::new(FlowLog::new(agent.policy_event_logs));
    let health = Health::starting().await;
    let (backend_name, enforces) = (backend.name(), backend.enforces());
    tracing::info!(node = name, backend = backend_name, socket = %agent.socket.display(), "serving");
    if !enforces {
        tracing::warn!(
            "the backend is none: policies are received and reported, and not enforced on this node"
        );
    }

    let mut tasks = JoinSet::new();
    let (service_health, of_services) = watch::channel(ServiceHealth::default());
    let calls = Calls { todo, asked, listeners: flows.listeners(), service_health, clock };
    let driving = tokio::spawn(drive(backend, calls, events.clone(), Arc::clone(&metrics)));
    let follower = Follower {
        ready: ready.clone(),
        credentials,
        clients: clients.clone(),
        events: events.clone(),
        stream_state: stream_states,
        streams: 0,
        clock,
    };
    tasks.spawn(follower.run());
    let (following, follows) = watch::channel(false);
    let ports = NodePorts::of(&proc_sys_net, &agent.state_dir);
    if agent.connections.services {
        tasks.spawn(ReservedPorts::new(ports, Arc::clone(&metrics)).keep());
        let socket = agent.replicas.with_file_name(SERVICES_SOCKET);
        let (events, after) = (events.clone(), own_services::AFTER);
        tasks.spawn(OwnServices { socket, follows, events, after }.run());
        let server = HealthServer {
            health: of_services,
            clock,
            at: agent.healthz,
            hosts: Hosts::ALL,
            metrics: Arc::clone(&metrics),
            pause: health_checks::PAUSE,
        };
        tasks.spawn(server.run());
    } else {
        tasks.spawn(async {
            let _ = spawn_blocking(move || ports.release_and_log()).await;
        });
    }
    let path = agent.replicas.clone();
    find(replicas, ReplicaFile { path, ready, events: events.clone() }, &mut tasks);
    if let Some(at) = agent.metrics.clone() {
        let pages = Pages { events: events.clone(), metrics: Arc::clone(&metrics) };
        tasks.spawn(http::serve(pages, at));
    }
    let socket = Arc::new(Socket {
        events: events.clone(),
        metrics: Arc::clone(&metrics),
        backend: backend_name,
        clock,
        flows: Arc::clone(&flows),
        queries,
    });
    tasks.spawn(answer(incoming, socket, health.clone()));
    let owner = Owner {
        node,
        store,
        disk,
        clock,
        metrics,
        clients,
        events,
        flows,
        stream_state,
        work,
        enforces,
        drift: Drift::default(),
        health,
        healthy: (false, false),
        replies: BTreeMap::new(),
        disconnected: None,
        following,
        free_memory: free_memory(),
    };
    owner.run(inbox, stop).await;
    if timeout(RETIRE, driving).await.is_err() {
        tracing::warn!("the backend is still busy; the agent exits without waiting for it");
    }
    tasks.shutdown().await;
    let _ = std::fs::remove_file(&agent.socket);
    Ok(())
}

/// Finds replicas: those that were given, or those of the daemon's file.
fn find(replicas: Vec<SocketAddr>, file: ReplicaFile, tasks: &mut JoinSet<()>) {
    if replicas.is_empty() {
        tasks.spawn(file.follow());
    } else {
        file.ready.set(&replicas.into_iter().collect());
    }
}

/// Answers on the socket.
async fn answer(incoming: Incoming, socket: Arc<Socket>, health: Health) {
    let served = datapath_rpc::serve(incoming, socket, &health, std::future::pending());
    if let Err(error) = served.await {
        tracing::error!(error = format!("{error:#}"), "cannot serve the socket");
    }
}

async fn observe_links() -> Result<Links, String> {
    spawn_blocking(links::observe).await.unwrap_or_else(|error| Err(causes(&error)))
}

/// The state from the disk. Without a file the agent continues from memory.
fn restore(
    agent: &Agent,
    links: &Links,
    events: &mpsc::Sender<Event>,
) -> Result<(Node, Option<Store>, Option<String>)> {
    let opened = DiskFolder::open(&agent.state_dir).and_then(store::open);
    let (journal, found) = match opened {
        Ok(opened) => opened,
        Err(error @ OpenError::InUse { .. }) => {
            return Err(error).context("cannot open the agent's state");
        }
        Err(error) => {
            let why = error.to_string();
            tracing::error!(
                error = why,
                "cannot open the policy journal: the agent continues from memory; repair the folder and restart \
                 the agent, or set FERRULE_AGENT_STATE_DIR"
            );
            return Ok((Node::new(Default::default(), BTreeMap::new(), links), None, Some(why)));
        }
    };
    let Restored { replayed, damage } = found;
    match damage {
        Some(FileDamage { cause, is_torn_tail: false }) => tracing::error!(
            cause,
            "the policy journal is damaged: only the records before the damage count, and the file is kept aside"
        ),
        Some(FileDamage { cause, is_torn_tail: true }) => {
            tracing::warn!(
                cause,
                "the last write to the policy journal is incomplete and does not count"
            );
        }
        None => {}
    }
    let (policies, pods) = (replayed.held.policies.len(), replayed.held.pods.len());
    tracing::info!(policies, pods, started = replayed.local.len(), "loaded the policy journal");
    let store = Store::start(journal, events.clone()).context("cannot start the store thread")?;
    Ok((Node::new(replayed.held, replayed.local, links), Some(store), None))
}

/// A call of the backend.
#[derive(Debug)]
enum Work {
    Apply(Desired),
    Observe,
}

/// The calls for the backend.
struct Calls {
    todo: mpsc::Receiver<Work>,
    asked: mpsc::Receiver<Query>,
    /// The number of listeners for each allowed connection.
    listeners: watch::Receiver<usize>,
    service_health: watch::Sender<ServiceHealth>,
    clock: Clock,
}

/// Drives the backend: calls, and between them its events. The state in force stays when the agent exits.
async fn drive(
    mut backend: impl Backend,
    calls: Calls,
    events: mpsc::Sender<Event>,
    metrics: Arc<Metrics>,
) {
    let Calls { mut todo, mut asked, mut listeners, service_health, clock } = calls;
    listeners.mark_changed();
    let mut listens = false;
    let mut exhaustion = Exhaustion::default();
    loop {
        let event = tokio::select! {
            Some(query) = asked.recv() => {
                answer_query(&mut backend, query).await;
                continue;
            }
            Ok(()) = listeners.changed() => {
                let is_wanted = *listeners.borrow_and_update() > 0;
                if is_wanted != listens {
                    match backend.listen(is_wanted).await {
                        Ok(()) => listens = is_wanted,
                        Err(error) => {
                            tracing::warn!(why = causes(&error), "cannot report each connection");
                        }
                    }
                }
                continue;
            }
            work = todo.recv() => match work {
                Some(Work::Apply(desired)) => {
                    service_health.send_if_modified(|of| {
                        of.proxy.begin(clock.now());
                        of.proxy.is_leaving = desired.state.is_leaving;
                        false
                    });
                    let outcome = backend.apply(&desired).await;
                    let checks = backend.health_checks();
                    service_health.send_if_modified(|of| of.finish(checks, clock.now()));
                    let revision = desired.revision;
                    // Otherwise the snapshot would be copied for the next change.
                    drop(desired);
                    Event::Applied { revision, outcome }
                }
                Some(Work::Observe) => {
                    if events.send(Event::Links(observe_links().await)).await.is_err() {
                        break;
                    }
                    let figures = backend.figures();
                    metrics.packets(&figures.packets);
                    exhaustion.note(&figures.packets);
                    metrics.map_memory(backend.map_memory());
                    if let Some(services) = figures.services {
                        metrics.services(&services);
                    }
                    Event::Observed(backend.observe().await.map_err(|error| causes(&error)))
                }
                None => break,
            },
            event = backend.event() => Event::Backend(event),
        };
        if events.send(event).await.is_err() {
            break;
        }
        // A pod may wait for the result. The backend's own work follows.
        yield_now().await;
    }
    if let Err(error) = backend.retire(Retire::Keep).await {
        tracing::warn!(error = causes(&error), "cannot stop the backend");
    }
}

/// Answers a question about the backend's state. A client that has gone needs no answer.
async fn answer_query(backend: &mut impl Backend, query: Query) {
    match query {
        Query::Uses(reply) => {
            let _ = reply.send(backend.uses().await.map_err(|error| causes(&error)));
        }
        Query::Paths(uid, reply) => {
            let _ = reply.send(backend.paths(&uid).await.map_err(|error| causes(&error)));
        }
        Query::LookUp(probe, reply) => {
            let _ = reply.send(backend.look_up(&probe).await.map_err(|error| causes(&error)));
        }
    }
}

/// The task that owns the node.
struct Owner {
    node: Node,
    store: Option<Store>,
    disk: Option<String>,
    clock: Clock,
    metrics: Arc<Metrics>,
    clients: ReplicaClients,
    events: mpsc::Sender<Event>,
    flows: Arc<FlowLog>,
    stream_state: watch::Sender<StreamState>,
    work: mpsc::Sender<Work>,
    /// True if the backend enforces anything.
    enforces: bool,
    drift: Drift,
    health: Health,
    /// Live and ready as reported last.
    healthy: (bool, bool),
    replies: BTreeMap<Ticket, oneshot::Sender<Answer>>,
    /// The cause for following no replica that was logged last.
    disconnected: Option<String>,
    /// True while a replica is followed.
    following: watch::Sender<bool>,
    free_memory: FreeMemory,
}

/// The state from the disk was read just now.
fn free_memory() -> FreeMemory {
    let mut free = FreeMemory::default();
    free.note(memory::MANY, Instant::now());
    free
}

impl Owner {
    async fn run(mut self, mut inbox: mpsc::Receiver<Event>, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            self.carry_out();
            self.report_health().await;
            let wake = self.node.wake_at().map_or(BEAT, |at| self.clock.until(at).min(BEAT));
            let lagging = self.store.as_ref().is_some_and(Store::is_lagging);
            let wake = if lagging { wake.min(CATCH_UP) } else { wake };
            tokio::select! {
                () = &mut stop => break,
                event = inbox.recv() => {
                    let Some(event) = event else { break };
                    self.take(event);
                    for _ in 1..BATCH {
                        let Ok(event) = inbox.try_recv() else { break };
                        self.take(event);
                    }
                }
                () = sleep(wake) => {}
            }
            self.node.tick(self.clock.now());
            if self.free_memory.is_due(Instant::now()) {
                drop(spawn_blocking(memory::trim));
            }
        }
        tracing::info!("the agent exits; the state in force stays");
        if let Some(store) = self.store.take() {
            let _ = spawn_blocking(|| store.finish()).await;
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
                self.disconnected = None;
                self.following.send_replace(true);
                self.metrics.stream(behind);
                self.stream_state.send_modify(|state| {
                    *state = StreamState { streams: state.streams + 1, ..StreamState::default() };
                });
                self.node.began(at, &epoch, behind);
            }
            Event::Disconnected(why) => {
                self.following.send_if_modified(std::mem::take);
                // Every attempt fails with the same cause as long as nothing changes.
                if self.disconnected.as_ref() != Some(&why) {
                    tracing::warn!(why, "no replica of the controller is followed");
                    self.disconnected = Some(why.clone());
                }
                self.node.disconnected(why);
            }
            Event::NotListed(why) => self.node.not_listed(why),
            Event::Part(part) => {
                self.free_memory.note(part.changes.len(), Instant::now());
                self.node.part(part, now);
            }
            Event::Bookmark(bookmark) => self.node.bookmark(&bookmark, now),
            Event::ReadServices(read) => {
                self.free_memory.note(read.objects.len(), Instant::now());
                if let Err(fault) = self.node.read_services(&read, now) {
                    tracing::error!(%fault, "cannot use the Services that the daemon has read");
                }
            }
            Event::Applied { revision, outcome } => self.node.applied(revision, outcome, now),
            Event::Links(Ok(links)) => self.node.links_observed(&links, now),
            Event::Links(Err(why)) => tracing::warn!(why, "cannot observe the links of pods"),
            Event::Observed(observed) => {
                self.node.observed(observed, now);
                self.log_drift();
            }
            Event::Backend(event) => {
                match &event {
                    BackendEvent::Flow(flow) => self.flows.publish(&self.node, flow),
                    BackendEvent::Trace(step) => tracing::info!(?step, "traced packet observed"),
                    BackendEvent::Drift(_) | BackendEvent::Names | BackendEvent::Services => {}
                }
                self.node.backend_event(&event, now);
                self.log_drift();
            }
            Event::Reported { to, arrived } => self.node.reported(to, arrived, now),
            Event::Admit { pod, links, mode, since, reply } => {
                let ticket = self.node.admit(pod, links, mode, since);
                self.replies.insert(ticket, reply);
            }
            Event::Forget { pod, container, reply } => {
                self.node.forget(&pod, &container, now);
                let _ = reply.send(());
            }
            Event::NameUses { uses, reply } => {
                let _ = reply.send(flows::uses(&self.node, uses));
            }
            Event::NameLookups { looked, reply } => {
                let _ = reply.send(flows::lookups(&self.node, looked));
            }
            Event::Overview { reply } => {
                let _ = reply.send((self.node.overview(), self.disk.clone()));
            }
            Event::RequestImage => {
                if let Some(store) = &mut self.store {
                    store.request_image();
                }
            }
            Event::Disk(why) => self.disk = why,
        }
    }

    fn carry_out(&mut self) {
        for effect in self.node.take_effects() {
            match effect {
                Effect::Apply(desired) => self.give(Work::Apply(desired)),
                Effect::Observe => self.give(Work::Observe),
                Effect::Answer { ticket, answer } => {
                    if let Some(reply) = self.replies.remove(&ticket) {
                        let _ = reply.send(answer);
                    }
                }
                Effect::Announce(pod) => self.clients.announce(&pod),
                Effect::Acknowledge(generation) => {
                    self.metrics.generation("held");
                    self.stream_state.send_modify(|state| state.acknowledge = generation);
                }
                Effect::Resync(fault) => {
                    self.metrics.generation("refused");
                    tracing::error!(%fault, "inconsistent update from the replica; requesting a full comparison");
                    self.stream_state.send_modify(|state| state.resync = true);
                }
                Effect::Persist(records) => {
                    if let Some(store) = &mut self.store {
                        store.append(records);
                    }
                }
                Effect::Report(mut report) => {
                    report.message.unenforced = !self.enforces;
                    self.clients.report(report, self.events.clone());
                }
            }
        }
        if let Some(store) = &mut self.store {
            store.catch_up(|| self.node.image());
        }
    }

    /// There is room: one state and one observation are under way at a time.
    fn give(&self, work: Work) {
        if self.work.try_send(work).is_err() {
            tracing::error!("cannot reach the backend's task: no state is put into force");
        }
    }

    /// Logs drift when it is new, and counts it each time.
    fn log_drift(&mut self) {
        let (drift, times) = self.node.drift();
        self.metrics.drifted(times - self.drift.times);
        if let Some(why) = drift
            && drift != self.drift.logged.as_deref()
        {
            tracing::warn!(why, "the state in force was changed externally; applying it again");
        }
        self.drift = Drift { logged: drift.map(str::to_owned), times };
    }

    async fn report_health(&mut self) {
        let now = (true, unready(&self.node.overview()).is_none());
        if now != self.healthy {
            self.healthy = now;
            self.health.set(HealthName::Live, now.0).await;
            self.health.set(HealthName::Ready, now.1).await;
        }
    }
}

/// The drift that was logged and counted last.
#[derive(Debug, Default)]
struct Drift {
    logged: Option<String>,
    times: u64,
}

/// The number of questions that wait.
const QUERIES: usize = 8;
/// The longest wait for the backend when the agent ends.
const RETIRE: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use async_trait::async_trait;
    use control_wire::NodeSnapshot;
    use datapath_backend::BackendError;
    use datapath_node::{Applied, Observed, Trace};
    use service_core::{HealthCheck, HealthChecks, HealthPort};
    use service_objects::{Family, ObjectName};

    /// A backend whose Services are in force from the second state on.
    #[derive(Default)]
    struct Balanced {
        applied: u64,
    }

    fn checks() -> Arc<HealthChecks> {
        let at = HealthPort { family: Family::V4, port: 31007 };
        let check = HealthCheck { service: ObjectName::new("shop", "web"), endpoints: 1 };
        Arc::new(HealthChecks { by_port: [(at, check)].into(), ..HealthChecks::default() })
    }

    #[async_trait]
    impl Backend for Balanced {
        fn name(&self) -> &'static str {
            "balanced"
        }

        async fn observe(&mut self) -> Result<Observed, BackendError> {
            Ok(Observed::default())
        }

        async fn apply(&mut self, desired: &Desired) -> Applied {
            self.applied = desired.revision;
            Applied::complete(desired)
        }

        async fn event(&mut self) -> BackendEvent {
            std::future::pending().await
        }

        fn health_checks(&self) -> Option<Arc<HealthChecks>> {
            (self.applied > 1).then(checks)
        }

        async fn trace(&mut self, _: &Trace) -> Result<(), BackendError> {
            Ok(())
        }

        async fn retire(&mut self, _: Retire) -> Result<(), BackendError> {
            Ok(())
        }
    }

    fn desired(revision: u64, is_leaving: bool) -> Desired {
        let mut state = NodeSnapshot::default();
        state.is_leaving = is_leaving;
        Desired {
            revision,
            state: Arc::new(state),
            node: Arc::default(),
            endpoints: Arc::default(),
            services: Arc::default(),
            changed: None,
        }
    }

    #[tokio::test]
    async fn load_balancers_read_the_health_of_the_services_in_force() {
        let (work, todo) = mpsc::channel(2);
        let (_queries, asked) = mpsc::channel(1);
        let (_listening, listeners) = watch::channel(0);
        let (service_health, health) = watch::channel(ServiceHealth::default());
        let (events, mut inbox) = mpsc::channel(EVENTS);
        let clock = Clock::start();
        let calls = Calls { todo, asked, listeners, service_health, clock };
        let metrics = Arc::new(Metrics::new().unwrap());
        let driving = tokio::spawn(drive(Balanced::default(), calls, events, metrics));
        let mut is_healthy = async |revision, is_leaving| {
            work.send(Work::Apply(desired(revision, is_leaving))).await.unwrap();
            let event = inbox.recv().await.unwrap();
            assert!(matches!(event, Event::Applied { .. }), "{event:?}");
            let health = health.borrow();
            assert_eq!(health.proxy.is_leaving, is_leaving);
            health.proxy.is_healthy(clock.now())
        };
        assert!(!is_healthy(1, false).await);
        assert!(health.borrow().checks.by_port.is_empty());
        assert!(is_healthy(2, false).await);
        assert!(is_healthy(3, true).await);
        assert_eq!(health.borrow().checks, checks());
        drop(work);
        driving.await.unwrap();
    }
}
