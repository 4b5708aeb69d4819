//! The event loop: one task owns the core, and all other tasks send it messages.
//!
//! [`Outbox`] keeps the order of effects: a reply or a cloud call leaves only after the records before it are
//! durable. The loop never waits for a disk, a socket or the cloud. Cloud calls run as tasks of their own and
//! send their results as messages.

use crate::{
    checkpoint::{Progress, Writer},
    clock,
    cluster::Cluster,
    inbox::Inbox,
    messages::{Input, Question, RepairOutcome, StartState},
    metrics::Metrics,
    pass_report::DELETE_POD,
    policy,
    start::pool_config::max_pods,
    trigger::Trigger,
    view::{Phase, View},
};
use config_model::{InstanceId, PodKey, PodName, Time};
use datapath_rpc::AgentAt;
use ipamd_cloud::Cloud;
use ipamd_core::{
    Action, Answer, CloudCall, CloudFault, ClusterFact, Core, Effect, Event, Limits, Notice, OpId,
    PodView, PoolConfig, Refusal, RefusalReason, ReleaseCause, Severity, Snapshot, Ticket, Topic,
    Witness,
};
use ipamd_node::Outbox;
use std::{
    collections::{BTreeMap, VecDeque},
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};
use tokio::{
    runtime::Handle,
    sync::{mpsc, oneshot, watch},
    task::JoinSet,
    time::sleep,
};

pub(crate) struct EventLoop {
    inputs: mpsc::Receiver<Input>,
    inbox: Inbox,
    metrics: Arc<Metrics>,
    repair: Trigger,
    cluster: Cluster,
    agent: Option<AgentAt>,
    starting: watch::Receiver<String>,
    state: State,
    stopping: bool,
    finishing: bool,
    waiting: BTreeMap<Ticket, Waiter>,
    outbox: Outbox,
    notices: VecDeque<(Time, Notice)>,
    calls: JoinSet<()>,
    background: Handle,
}

enum State {
    /// Requests that arrived before the start completed, in order.
    Starting {
        queued: Vec<Queued>,
        inspected: Vec<Inspected>,
        /// News from Kubernetes; the last of each kind counts.
        facts: Vec<ClusterFact>,
    },
    Running(Box<Running>),
}

struct Queued {
    ticket: Ticket,
    question: Question,
    reply: oneshot::Sender<Answer>,
}

/// A question for the reservation of a key.
type Inspected = (PodKey, oneshot::Sender<Option<PodView>>);

struct Running {
    core: Core,
    cloud: Arc<dyn Cloud>,
    instance: InstanceId,
    limits: Limits,
    targets: PoolConfig,
    writer: Writer,
    progress: watch::Receiver<Progress>,
}

struct Waiter {
    reply: oneshot::Sender<Answer>,
    since: Instant,
}

/// The event loop's connections to other tasks.
pub(crate) struct Deps {
    pub(crate) inbox: Inbox,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) repair: Trigger,
    pub(crate) cluster: Cluster,
    /// `None` if ferrule-agent does not enforce policy on this node.
    pub(crate) agent: Option<AgentAt>,
    /// The step of the start that is not complete yet.
    pub(crate) starting: watch::Receiver<String>,
    /// The runtime of calls to the cloud and to the agent.
    pub(crate) background: Handle,
}

impl EventLoop {
    pub(crate) fn new(inputs: mpsc::Receiver<Input>, deps: Deps) -> Self {
        let Deps { inbox, metrics, repair, cluster, agent, starting, background } = deps;
        Self {
            inputs,
            inbox,
            metrics,
            repair,
            cluster,
            agent,
            starting,
            state: State::Starting { queued: Vec::new(), inspected: Vec::new(), facts: Vec::new() },
            stopping: false,
            finishing: false,
            waiting: BTreeMap::new(),
            outbox: Outbox::default(),
            notices: VecDeque::new(),
            calls: JoinSet::new(),
            background,
        }
    }

    /// Runs until [`Input::Finish`] arrives and all records are durable.
    pub(crate) async fn run(mut self) {
        loop {
            let pause = self.pause();
            tokio::select! {
                input = self.inputs.recv() => match input {
                    Some(input) => self.take_in(input),
                    None => return,
                },
                () = progressed(&mut self.state) => {}
                () = sleep(pause) => {}
                Some(_) = self.calls.join_next() => {}
            }
            self.settle();
            if self.finishing && (self.outbox.is_empty() || !self.is_running()) {
                break;
            }
        }
        if let State::Running(running) = self.state {
            finish(running.writer, self.background).await;
        }
    }

    /// Processes this message and those behind it in the queue, so that their records share one write.
    fn take_in(&mut self, first: Input) {
        self.handle(first);
        for _ in 1..BATCH {
            match self.inputs.try_recv() {
                Ok(input) => self.handle(input),
                Err(_) => return,
            }
        }
    }

    fn handle(&mut self, input: Input) {
        match input {
            Input::Ask { ticket, question, reply } => self.ask(Queued { ticket, question, reply }),
            Input::Abandoned(ticket) => self.abandon(ticket),
            Input::Inspect { key, reply } => self.inspect(key, reply),
            Input::Start(start) => self.start(*start),
            Input::Cloud(event) => self.dispatch(event),
            Input::Limits(limits) => self.limits_reported(limits),
            Input::Cluster(fact) => self.learn(fact),
            Input::Repaired(outcome) => self.repaired(outcome),
            Input::View(reply) => {
                let _ = reply.send(self.view());
            }
            Input::Stopping => self.stop(),
            Input::Finish => self.finishing = true,
        }
    }

    fn ask(&mut self, queued: Queued) {
        match &mut self.state {
            State::Starting { .. } if self.stopping => {
                let _ = queued.reply.send(refused(RefusalReason::Stopping, STOPPING));
            }
            State::Starting { queued: queue, .. } => {
                // A client that disconnected retries. A long start must not accumulate its requests.
                queue.retain(|waiting| !waiting.reply.is_closed());
                queue.push(queued);
            }
            State::Running(_) => {
                let Queued { ticket, question, reply } = queued;
                self.waiting.insert(ticket, Waiter { reply, since: Instant::now() });
                self.dispatch(question.into_event(ticket));
            }
        }
    }

    fn inspect(&mut self, key: PodKey, reply: oneshot::Sender<Option<PodView>>) {
        match &mut self.state {
            State::Starting { inspected, .. } => {
                inspected.retain(|(_, reply)| !reply.is_closed());
                inspected.push((key, reply));
            }
            State::Running(running) => {
                let _ = reply.send(running.core.inspect(&key));
            }
        }
    }

    fn learn(&mut self, fact: ClusterFact) {
        match &mut self.state {
            State::Starting { facts, .. } => {
                facts.retain(|before| !replaces(&fact, before));
                facts.push(fact);
            }
            State::Running(_) => self.dispatch(Event::Cluster(fact)),
        }
    }

    fn abandon(&mut self, ticket: Ticket) {
        match &mut self.state {
            State::Starting { queued, .. } => queued.retain(|waiting| waiting.ticket != ticket),
            State::Running(_) => {
                self.waiting.remove(&ticket);
                self.dispatch(Event::Abandoned { ticket });
            }
        }
    }

    /// Missed DELs come before all requests.
    fn start(&mut self, start: StartState) {
        let State::Starting { queued, inspected, facts } = &mut self.state else { return };
        let (queued, inspected) = (std::mem::take(queued), std::mem::take(inspected));
        let facts = std::mem::take(facts);
        let StartState { core, cloud, instance, limits, targets, writer, notices, .. } = start;
        let (unknown_limits, tombstoned) = (start.unknown_limits, start.tombstoned);
        let progress = writer.progress();
        let running = Running { core, cloud, instance, limits, targets, writer, progress };
        self.state = State::Running(Box::new(running));
        for notice in notices {
            self.report(notice);
        }
        if let Some((instance_type, fault)) = unknown_limits {
            self.limits_unknown(instance_type, fault);
        }
        // Facts come before planning: they set the node's pod limit and the subnets of new ENIs.
        for fact in facts {
            self.dispatch(Event::Cluster(fact));
        }
        self.dispatch(Event::Tick);
        for key in tombstoned {
            let ticket = self.inbox.next_ticket();
            self.dispatch(Event::Release { ticket, key, cause: ReleaseCause::PodDeleted });
        }
        // A client that disconnected has closed its channel. Its DEL left a tombstone.
        for queued in queued.into_iter().filter(|queued| !queued.reply.is_closed()) {
            self.ask(queued);
        }
        for (key, reply) in inspected {
            self.inspect(key, reply);
        }
        if self.stopping {
            self.dispatch(Event::Stopping);
        }
    }

    /// The core works without the limits. A task asks EC2 for them until it answers.
    fn limits_unknown(&mut self, instance_type: String, fault: CloudFault) {
        let State::Running(running) = &self.state else { return };
        let (cloud, inbox) = (Arc::clone(&running.cloud), self.inbox.clone());
        let cluster = self.cluster.clone();
        cluster.call_failed(TYPE_LIMITS, &fault);
        self.dispatch(Event::LimitsUnknown { instance_type: instance_type.clone(), fault });
        self.call_out(async move {
            let mut pause = LIMITS_FIRST_PAUSE;
            loop {
                sleep(pause).await;
                pause = (pause * 2).min(LIMITS_LAST_PAUSE);
                let input = match cloud.type_limits(&instance_type).await {
                    Ok(limits) => Input::Limits(limits.limits()),
                    Err(fault) => {
                        cluster.call_failed(TYPE_LIMITS, &fault);
                        let instance_type = instance_type.clone();
                        Input::Cloud(Event::LimitsUnknown { instance_type, fault })
                    }
                };
                let told = matches!(input, Input::Limits(_));
                if inbox.send(input).await.is_err() || told {
                    return;
                }
            }
        });
    }

    fn limits_reported(&mut self, limits: Limits) {
        let State::Running(running) = &mut self.state else { return };
        let max_pods = max_pods(running.targets.prefixes, &limits);
        running.limits = limits.clone();
        running.targets.max_pods = max_pods;
        self.dispatch(Event::LimitsReported { limits, max_pods });
    }

    fn repaired(&mut self, outcome: RepairOutcome) {
        let RepairOutcome { started, in_use, ready, not_ready, disconnected } = outcome;
        self.pods_disconnected(disconnected);
        for eni in ready {
            self.dispatch(Event::EniReady { eni });
        }
        for (eni, why) in not_ready {
            self.dispatch(Event::EniNotReady { eni, why });
        }
        self.dispatch(Event::KernelSeen { started, in_use });
    }

    fn pods_disconnected(&mut self, disconnected: Vec<(PodKey, String)>) {
        if disconnected.is_empty() {
            return;
        }
        let pods = self.view().snapshot.pods;
        for (key, cause) in disconnected {
            let pod = pods.iter().find(|it| it.key.covers(&key)).map(|it| it.pod.clone());
            self.report(Notice {
                severity: Severity::Warning,
                topic: Topic::LinkMissing,
                object: pod
                    .as_ref()
                    .map_or_else(|| key.to_string(), |pod| format!("{pod} ({key})")),
                pod,
                cause,
                next_step: DELETE_POD.to_owned(),
            });
        }
    }

    fn stop(&mut self) {
        self.stopping = true;
        match &mut self.state {
            State::Starting { queued, inspected, .. } => {
                inspected.clear();
                for waiting in std::mem::take(queued) {
                    let _ = waiting.reply.send(refused(RefusalReason::Stopping, STOPPING));
                }
            }
            State::Running(_) => self.dispatch(Event::Stopping),
        }
    }

    fn dispatch(&mut self, event: Event) {
        let State::Running(running) = &mut self.state else { return };
        let effects = running.core.on_event(event, clock::now());
        for effect in self.outbox.take_in(effects) {
            self.carry_out(effect);
        }
    }

    /// Runs after each batch of messages: timers, records to write, effects that may leave.
    fn settle(&mut self) {
        let due = |running: &Running| {
            running.core.wake_at().is_some_and(|wake_at| wake_at <= clock::now())
        };
        if matches!(&self.state, State::Running(running) if due(running)) {
            self.dispatch(Event::Tick);
        }
        self.refuse_overdue();
        loop {
            let State::Running(running) = &mut self.state else { return };
            let durable = running.progress.borrow_and_update().durable;
            self.outbox.settle(durable);
            while let Some(effect) = self.outbox.release() {
                self.carry_out(effect);
            }
            let State::Running(running) = &self.state else { return };
            let Some(batch) = self.outbox.batch() else { return };
            // A batch without a sync is durable on return, and its effects leave in the next round.
            running.writer.write(batch);
        }
    }

    /// Requests have deadlines before the start completes, too.
    fn refuse_overdue(&mut self) {
        let State::Starting { queued, .. } = &mut self.state else { return };
        let now = clock::now();
        let overdue = |queued: &Queued| matches!(queued.question, Question::Reserve { give_up_at, .. } if give_up_at <= now);
        let (late, rest): (Vec<_>, Vec<_>) =
            std::mem::take(queued).into_iter().partition(|queued| overdue(queued));
        *queued = rest;
        for late in late {
            let why = format!("the daemon is still starting: {}", *self.starting.borrow());
            let _ = late.reply.send(refused(RefusalReason::TryAgain, &why));
        }
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { ticket, answer } => self.reply(ticket, answer),
            Effect::Cloud { op, call } => self.call(op, call),
            Effect::Look { witness } => self.look(witness),
            Effect::NodeChanged => self.repair.pull(),
            Effect::AskForTrunk => self.cluster.ask_for_trunk(),
            Effect::Forget { key, pod } => self.forget(key, pod),
            Effect::Report(notice) => self.report(notice),
            Effect::Persist(_) => unreachable!("the outbox keeps records for the writer"),
        }
    }

    fn reply(&mut self, ticket: Ticket, answer: Answer) {
        let Some(Waiter { reply, since }) = self.waiting.remove(&ticket) else { return };
        self.metrics.answered(&answer, since.elapsed());
        // The client may have disconnected. A reservation then lapses; other answers need no reply.
        let _ = reply.send(answer);
    }

    fn call(&mut self, op: OpId, call: CloudCall) {
        let State::Running(running) = &self.state else { return };
        let waited = running.core.waited(op).unwrap_or_default();
        self.metrics.call_begins(call.action(), clock::duration(waited));
        let metrics = Arc::clone(&self.metrics);
        let (cloud, inbox) = (Arc::clone(&running.cloud), self.inbox.clone());
        let cluster = self.cluster.clone();
        self.call_out(async move {
            let kind = call.action();
            let action = kind.name();
            tracing::debug!(op = op.0, action, "cloud call");
            let result = cloud.execute(call).await;
            metrics.call_ends(kind);
            match &result {
                Ok(_) => tracing::debug!(op = op.0, action, "cloud call succeeded"),
                Err(fault) => {
                    tracing::warn!(op = op.0, action, %fault, "cloud call failed");
                    cluster.call_failed(action, fault);
                }
            }
            let _ = inbox.send(Input::Cloud(Event::CloudDone { op, result })).await;
        });
    }

    fn look(&mut self, witness: Witness) {
        let State::Running(running) = &self.state else { return };
        let (cloud, inbox) = (Arc::clone(&running.cloud), self.inbox.clone());
        let (instance, cluster) = (running.instance.clone(), self.cluster.clone());
        let metrics = Arc::clone(&self.metrics);
        metrics.looks(true);
        self.call_out(async move {
            let started = clock::now();
            let looked = cloud.look(witness, &instance).await;
            metrics.looks(false);
            let event = match looked {
                Ok(enis) => Event::Sighting { witness, started, enis },
                Err(fault) => {
                    tracing::warn!(?witness, %fault, "no sighting");
                    cluster.call_failed(Action::Describe.name(), &fault);
                    Event::LookFailed { witness, fault }
                }
            };
            let _ = inbox.send(Input::Cloud(event)).await;
        });
    }

    fn forget(&mut self, key: PodKey, pod: PodName) {
        let Some(agent) = self.agent.clone() else { return };
        let inbox = self.inbox.clone();
        self.call_out(async move { policy::forget(Some(&agent), &inbox, &key, Some(&pod)).await });
    }

    /// Starts a call whose result arrives as a message.
    fn call_out(&mut self, call: impl Future<Output = ()> + Send + 'static) {
        self.calls.spawn_on(call, &self.background);
    }

    fn report(&mut self, notice: Notice) {
        self.metrics.noticed(&notice);
        self.cluster.noticed(&notice);
        let Notice { severity, topic, object, cause, next_step, .. } = &notice;
        let topic = topic.name();
        match severity {
            Severity::Info => tracing::info!(topic, object, next_step, "{cause}"),
            Severity::Warning => tracing::warn!(topic, object, next_step, "{cause}"),
            Severity::Error => tracing::error!(topic, object, next_step, "{cause}"),
        }
        if self.notices.len() == NOTICES {
            self.notices.pop_front();
        }
        self.notices.push_back((clock::now(), notice));
    }

    fn view(&self) -> View {
        let now = clock::now();
        let (running, queued) = match &self.state {
            State::Starting { queued, .. } => (None, queued.len()),
            State::Running(running) => (Some(running), 0),
        };
        let phase = match &self.state {
            _ if self.stopping => Phase::Stopping,
            State::Starting { .. } => Phase::Starting(self.starting.borrow().clone()),
            State::Running(_) => Phase::Running,
        };
        let snapshot = running.map_or_else(Snapshot::default, |it| it.core.snapshot(now));
        let waited = |ticket| self.waiting.get(ticket).map(|it| it.since.elapsed());
        let waited = snapshot.waiters.iter().map(|it| waited(&it.ticket).unwrap_or_default());
        View {
            now,
            phase,
            waited: waited.collect(),
            snapshot,
            limits: running.map(|it| it.limits.clone()),
            targets: running.map(|it| it.targets.clone()),
            checkpoint_trouble: running.and_then(|it| it.progress.borrow().trouble.clone()),
            queued,
            notices: self.notices.clone(),
        }
    }

    fn is_running(&self) -> bool {
        matches!(self.state, State::Running(_))
    }

    /// The time until the next timer. It is bounded, because tokio's clock stops while the machine is suspended and
    /// the core's clock does not.
    fn pause(&self) -> Duration {
        let wake_at = match &self.state {
            State::Running(running) => running.core.wake_at(),
            State::Starting { queued, .. } => queued
                .iter()
                .filter_map(|queued| match queued.question {
                    Question::Reserve { give_up_at, .. } => Some(give_up_at),
                    Question::Confirm { .. } | Question::Release { .. } => None,
                })
                .min(),
        };
        wake_at.map_or(PAUSE_MAX, |wake_at| clock::until(wake_at).min(PAUSE_MAX))
    }
}

/// Waits until all records are durable. The writer's disk may refuse forever, and this thread must still see that the
/// daemon exits.
async fn finish(writer: Writer, background: Handle) {
    let _ = background.spawn_blocking(move || writer.finish()).await;
}

async fn progressed(state: &mut State) {
    if let State::Running(running) = state
        && running.progress.changed().await.is_ok()
    {
        return;
    }
    // No writer yet, or the loop is about to end.
    std::future::pending().await
}

/// Returns whether `fact` replaces `before`.
fn replaces(fact: &ClusterFact, before: &ClusterFact) -> bool {
    match (fact, before) {
        (ClusterFact::Branch { pod, .. }, ClusterFact::Branch { pod: other, .. }) => pod == other,
        _ => std::mem::discriminant(fact) == std::mem::discriminant(before),
    }
}

fn refused(reason: RefusalReason, message: &str) -> Answer {
    Answer::Refused(Refusal {
        reason,
        message: message.to_owned(),
        next_step: "try again".to_owned(),
    })
}

const STOPPING: &str = "the daemon is stopping";
/// Messages that are processed before the loop does anything else.
const BATCH: usize = 256;
/// Notices that introspection shows.
const NOTICES: usize = 64;
const PAUSE_MAX: Duration = Duration::from_secs(5);
const TYPE_LIMITS: &str = "DescribeInstanceTypes";
/// The pause between two calls for the limits doubles from the first to the last.
const LIMITS_FIRST_PAUSE: Duration = Duration::from_secs(1);
const LIMITS_LAST_PAUSE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests;
