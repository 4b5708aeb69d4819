//! The environment of the daemons: one cloud, a kubelet on each node, one simulated clock.

use super::{
    meter::{Meter, Tally},
    requests::{Daemon, DaemonReply, DaemonRequest, Outcome, Pod, RequestQueue, Tag},
    rng::Rng,
    setting::NodeSetting,
    trace::Trace,
};
use config_model::{InstanceId, Span, Time};
use ipnet::Ipv4Net;
use lab_cloud::{
    AttachmentStatus, Caller, Cloud, CloudSpec, Launch, OperateError, Request, SubnetSpec,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

/// After a failed ADD the kubelet waits `backOffPeriod` and up to half of it more. If the network is not
/// ready, it waits `backOffOnTransientErrorPeriod` and up to half of it more (`pkg/kubelet/pod_workers.go`,
/// `completeWork`).
const BACK_OFF: Span = Span::seconds(10);
const NOT_READY_BACK_OFF: Span = Span::seconds(1);
const BACK_OFF_JITTER_PERCENT: u64 = 50;
/// Reads of all ENIs from IMDS.
const IMDS_LATENCY: Span = Span::millis(20);
/// A dump of the node's links.
const LINKS_LATENCY: Span = Span::millis(5);

/// An event on the agenda.
enum ArenaEvent {
    Boot(usize),
    /// A call, which EC2 executes at this time.
    Call(usize, Tag, Box<Request>),
    Imds(usize, Tag),
    Links(usize, Tag),
    Wake(usize, Tag),
    Bind(Pod),
    Try(Pod),
    Leave(Pod),
    Delete(Pod),
}

/// State of a pod in its kubelet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Pending,
    Adding,
    Running(Ipv4Addr),
    Gone,
}

struct Node<'a> {
    instance: InstanceId,
    /// Time at which the first pod should start on the node. `None` after it has started.
    first_pod: Option<Time>,
    /// The pods that Kubernetes has bound to the node.
    bound: BTreeSet<Pod>,
    daemon: Box<dyn Daemon + 'a>,
}

/// A run of one trace with one kind of daemon.
pub(crate) struct Arena<'a> {
    trace: &'a Trace,
    now: Time,
    cloud: Cloud,
    agenda: BTreeMap<(Time, u64), ArenaEvent>,
    count: u64,
    nodes: Vec<Node<'a>>,
    pods: Vec<State>,
    meter: Meter,
    rng: Rng,
}

impl<'a> Arena<'a> {
    /// Creates a cloud with the trace's nodes. `make` creates their daemons.
    ///
    /// # Errors
    /// If the cloud refuses the trace's specification.
    pub(crate) fn new(
        trace: &'a Trace,
        seed: u64,
        mut make: impl FnMut(NodeSetting, u64) -> Box<dyn Daemon + 'a>,
    ) -> Result<Self, OperateError> {
        let mut cloud = Cloud::new(spec(trace), seed)?;
        let mut rng = Rng::new(seed);
        let subnet = cloud
            .subnet_named(SUBNET)
            .cloned()
            .ok_or_else(|| OperateError::Refused("the subnet was not made".to_owned()))?;
        let mut nodes = Vec::new();
        for at in 0..trace.joins.len() {
            let launch = Launch::new(format!("node-{at}"), trace.kind.name, subnet.id.clone());
            let instance = cloud.launch(Time(0), launch)?;
            let primary = cloud.enis_of(Time(0), &instance);
            let groups = primary.iter().flat_map(|eni| eni.groups.iter().map(|g| g.id.clone()));
            let setting = NodeSetting {
                instance: instance.clone(),
                kind: trace.kind,
                vpc: subnet.vpc_id.clone(),
                zone: subnet.availability_zone.clone(),
                subnet: subnet.id.clone(),
                subnet_cidr: subnet.cidr,
                primary_eni: primary
                    .first()
                    .map(|eni| eni.id.clone())
                    .ok_or_else(|| OperateError::NoInstance(instance.clone()))?,
                groups: groups.collect(),
                max_pods: trace.max_pods,
            };
            let daemon = make(setting, rng.next());
            let first_pod = trace.lives.iter().filter(|l| l.node == at).map(|l| l.from).min();
            nodes.push(Node { instance, first_pod, bound: BTreeSet::new(), daemon });
        }
        let pods = vec![State::Pending; trace.lives.len()];
        let first = trace.lives.iter().map(|life| life.from).min().unwrap_or_default();
        let (agenda, meter) = (BTreeMap::new(), Meter::new(first));
        Ok(Self { trace, now: Time(0), cloud, agenda, count: 0, nodes, pods, meter, rng })
    }

    /// Runs the trace and returns a line for every EC2 call.
    pub(crate) fn run_with_call_log(mut self) -> Vec<String> {
        self.meter.keep_call_log();
        self.play();
        self.meter.take_call_log()
    }

    /// Runs the trace.
    pub(crate) fn run(mut self) -> (Tally, Cloud, Vec<InstanceId>) {
        self.play();
        let instances = self.nodes.iter().map(|node| node.instance.clone()).collect();
        (self.meter.finish(), self.cloud, instances)
    }

    fn play(&mut self) {
        let trace = self.trace;
        for (node, join) in trace.joins.iter().enumerate() {
            self.at(*join, ArenaEvent::Boot(node));
        }
        for (pod, life) in trace.lives.iter().enumerate() {
            self.at(life.bound(), ArenaEvent::Bind(Pod(pod)));
            self.at(life.from, ArenaEvent::Try(Pod(pod)));
            if let Some(until) = life.until {
                self.at(until, ArenaEvent::Leave(Pod(pod)));
            }
        }
        while let Some(((at, _), event)) = self.agenda.pop_first() {
            if at > trace.end {
                break;
            }
            self.now = at;
            self.meter.advance(at);
            self.happen(event);
        }
        self.meter.advance(trace.end);
        for pod in &self.pods {
            if matches!(pod, State::Pending | State::Adding) {
                self.meter.unserved();
            }
        }
    }

    fn at(&mut self, at: Time, event: ArenaEvent) {
        self.count += 1;
        self.agenda.insert((at, self.count), event);
    }

    fn after(&mut self, span: Span, event: ArenaEvent) {
        self.at(self.now + span, event);
    }

    fn happen(&mut self, event: ArenaEvent) {
        match event {
            ArenaEvent::Boot(node) => {
                self.call_daemon(node, |daemon, now, queue| daemon.boot(now, queue))
            }
            ArenaEvent::Wake(node, tag) => self.answer(node, tag, DaemonReply::Slept),
            ArenaEvent::Call(node, tag, request) => {
                let result = self.cloud.call(self.now, &Caller::Administrator, *request.clone());
                self.meter.called(self.now, node, &request, &result);
                self.answer(node, tag, DaemonReply::Ec2(result));
            }
            ArenaEvent::Imds(node, tag) => {
                if let Some(instance) = self.nodes.get(node).map(|node| &node.instance) {
                    let shown = self.cloud.imds_enis(self.now, instance);
                    self.answer(node, tag, DaemonReply::Imds(shown));
                }
            }
            ArenaEvent::Links(node, tag) => self.links(node, tag),
            ArenaEvent::Bind(pod) => self.bind(pod, true),
            ArenaEvent::Try(pod) => self.try_pod(pod),
            ArenaEvent::Leave(pod) => self.leave(pod),
            ArenaEvent::Delete(pod) => self.delete(pod),
        }
    }

    fn links(&mut self, node: usize, tag: Tag) {
        let Some(instance) = self.nodes.get(node).map(|node| &node.instance) else { return };
        let there = |status| status != AttachmentStatus::Attaching;
        let enis = self.cloud.enis_of(self.now, instance);
        let plugged =
            enis.iter().filter(|eni| eni.attachment.as_ref().is_some_and(|a| there(a.status)));
        let links = plugged.map(|eni| eni.id.clone()).collect();
        self.answer(node, tag, DaemonReply::Links(links));
    }

    fn answer(&mut self, node: usize, tag: Tag, reply: DaemonReply) {
        self.call_daemon(node, |daemon, now, queue| daemon.on_reply(tag, reply, now, queue));
    }

    /// Calls a daemon, and processes its outcomes and requests.
    fn call_daemon(
        &mut self,
        node: usize,
        call: impl FnOnce(&mut dyn Daemon, Time, &mut RequestQueue),
    ) {
        let mut queue = RequestQueue::default();
        if let Some(node) = self.nodes.get_mut(node) {
            call(node.daemon.as_mut(), self.now, &mut queue);
        }
        for (pod, outcome) in queue.outcomes {
            self.on_outcome(pod, outcome);
        }
        for (tag, request) in queue.requests {
            match request {
                DaemonRequest::Sleep(span) => self.after(span, ArenaEvent::Wake(node, tag)),
                DaemonRequest::Imds => self.after(IMDS_LATENCY, ArenaEvent::Imds(node, tag)),
                DaemonRequest::Links => self.after(LINKS_LATENCY, ArenaEvent::Links(node, tag)),
                DaemonRequest::Ec2(request) => {
                    let latency = self.cloud.latency(self.now, request.action());
                    self.after(latency, ArenaEvent::Call(node, tag, request));
                }
            }
        }
    }

    /// Binds a pod to its node, or unbinds a deleted one. Kubernetes binds no pod to a node that is not
    /// ready.
    fn bind(&mut self, pod: Pod, bound: bool) {
        let Some(at) = self.trace.lives.get(pod.0).map(|life| life.node) else { return };
        let Some(node) = self.nodes.get_mut(at) else { return };
        let changed = match bound {
            true => node.daemon.is_ready() && node.bound.insert(pod),
            false => node.bound.remove(&pod),
        };
        if changed {
            let pods = node.bound.clone();
            self.call_daemon(at, |daemon, now, queue| daemon.bound(&pods, now, queue));
        }
    }

    /// The kubelet tries to start a pod.
    fn try_pod(&mut self, pod: Pod) {
        let Some(life) = self.trace.lives.get(pod.0) else { return };
        if self.pods.get(pod.0) != Some(&State::Pending) {
            return;
        }
        if self.nodes.get(life.node).is_some_and(|node| node.daemon.is_ready()) {
            self.set(pod, State::Adding);
            self.bind(pod, true);
            self.call_daemon(life.node, |daemon, now, queue| daemon.add(pod, now, queue));
        } else {
            let pause = self.rng.longer(NOT_READY_BACK_OFF, BACK_OFF_JITTER_PERCENT);
            self.after(pause, ArenaEvent::Try(pod));
        }
    }

    /// Handles the result of an ADD.
    fn on_outcome(&mut self, pod: Pod, outcome: Outcome) {
        let wanted = self.pods.get(pod.0) == Some(&State::Adding);
        match outcome {
            Outcome::Given(address) if wanted => self.added(pod, address),
            // The pod was deleted meanwhile: the kubelet deletes the sandbox.
            Outcome::Given(_) => self.after(Span(0), ArenaEvent::Delete(pod)),
            Outcome::Failed if wanted => {
                self.meter.failed();
                self.set(pod, State::Pending);
                let pause = self.rng.longer(BACK_OFF, BACK_OFF_JITTER_PERCENT);
                self.after(pause, ArenaEvent::Try(pod));
            }
            Outcome::Failed => {}
        }
    }

    fn added(&mut self, pod: Pod, address: Ipv4Addr) {
        self.set(pod, State::Running(address));
        let Some(life) = self.trace.lives.get(pod.0) else { return };
        self.meter.served(address, self.now.since(life.from));
        let node = self.nodes.get_mut(life.node);
        if let Some(meant) = node.and_then(|node| node.first_pod.take()) {
            self.meter.first_pod(self.now.since(meant));
        }
    }

    /// The pod is deleted.
    fn leave(&mut self, pod: Pod) {
        let before = self.pods.get(pod.0).copied();
        self.set(pod, State::Gone);
        self.bind(pod, false);
        match before {
            Some(State::Running(address)) => {
                self.meter.released(address);
                self.delete(pod);
            }
            Some(State::Adding) => {
                self.meter.unserved();
                self.delete(pod);
            }
            Some(State::Pending) => self.meter.unserved(),
            Some(State::Gone) | None => {}
        }
    }

    fn delete(&mut self, pod: Pod) {
        if let Some(life) = self.trace.lives.get(pod.0) {
            self.call_daemon(life.node, |daemon, now, queue| daemon.del(pod, now, queue));
        }
    }

    fn set(&mut self, pod: Pod, state: State) {
        if let Some(pod) = self.pods.get_mut(pod.0) {
            *pod = state;
        }
    }
}

const SUBNET: &str = "pods";

/// One subnet of the largest size, and calls with usual latencies.
fn spec(trace: &Trace) -> CloudSpec {
    let two = CloudSpec::two_zones();
    let cidr = Ipv4Net::new_assert(Ipv4Addr::new(10, 0, 0, 0), 16);
    let subnets = two.subnets.first().cloned().map(|subnet| SubnetSpec {
        name: SUBNET.to_owned(),
        cidr,
        map_public_ip_on_launch: false,
        ..subnet
    });
    CloudSpec {
        subnets: subnets.into_iter().collect(),
        throttling: trace.throttling.clone(),
        ..two
    }
}
