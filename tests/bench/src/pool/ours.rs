//! Ferrule's daemon: the real `ipamd-core`, whose effects the arena executes.

use super::{
    requests::{Daemon, DaemonReply, DaemonRequest, Outcome, Pod, RequestQueue, Tag},
    setting::{COOLDOWN, NodeSetting, PoolSetting},
};
use config_model::{EniId, PodKey, PodName, Span, Time};
use ipamd_core::{
    Answer, CardLimits, Cards, Checkpoint, CloudCall, CloudFault, ClusterFact, Core,
    Ec2ErrorResponse, Effect, Event, Limits, NodeFacts, OpId, PoolConfig, ReleaseCause, Remedy,
    Start, Ticket, Witness,
};
use lab_cloud::{
    CallError, DescribeNetworkInterfaces, Filter, NetworkInterface, Request, Response,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};
use tests_sim::translate;

/// `FERRULE_ADD_WAIT`.
const ADD_WAIT: Span = Span::seconds(45);
/// Start of the process until its first event.
const START: Span = Span::millis(500);
/// The plugin builds the pod's interface.
const BUILD: Span = Span::millis(5);
/// Delay of a repair pass after a change, and the longest interval between two passes.
const DEBOUNCE: Span = Span::millis(10);
const PERIOD: Span = Span::seconds(10);
/// Poll interval for a missing link. The real daemon gets an event from the kernel instead.
const LINK_POLL: Span = Span::millis(50);

/// The purpose of a pending request.
enum Purpose {
    Boot,
    Wake,
    Pass,
    Links { started: Time, in_use: BTreeSet<IpAddr> },
    Confirm(Pod),
    Call { op: OpId, call: CloudCall },
    Look { witness: Witness, started: Time },
}

/// Ferrule's daemon on one node.
pub(crate) struct Ours {
    node: NodeSetting,
    core: Option<Core>,
    config: PoolConfig,
    anticipate: bool,
    seed: u64,
    pending: BTreeMap<Tag, Purpose>,
    requests: u64,
    tickets: u64,
    adding: BTreeMap<Ticket, Pod>,
    /// Addresses with routes and rules.
    kernel: BTreeMap<Pod, IpAddr>,
    wakes_at: Option<Time>,
    pass_at: Option<Time>,
    /// True if ENIs or their links may have changed since the last pass.
    enis_changed: bool,
    ready: bool,
}

impl Ours {
    pub(crate) fn new(pool: PoolSetting, node: NodeSetting, seed: u64) -> Self {
        let set = |value: u32| (value > 0).then_some(value);
        let config = PoolConfig {
            prefixes: pool.prefixes,
            warm_eni_target: pool.warm_eni,
            warm_prefix_target: Some(pool.warm_prefix),
            warm_ip_target: set(pool.warm_ip),
            minimum_ip_target: set(pool.minimum_ip),
            max_pods: node.max_pods,
            cooldown: COOLDOWN,
            subnet_discovery: true,
            ..PoolConfig::default()
        };
        Self {
            node,
            core: None,
            config,
            anticipate: pool.anticipate,
            seed,
            pending: BTreeMap::new(),
            requests: 0,
            tickets: 0,
            adding: BTreeMap::new(),
            kernel: BTreeMap::new(),
            wakes_at: None,
            pass_at: None,
            enis_changed: true,
            ready: false,
        }
    }

    fn start(&mut self, now: Time, queue: &mut RequestQueue) {
        let start = Start { boot_id: "boot".to_owned(), seed: self.seed };
        let (config, facts) = (self.config.clone(), facts(&self.node));
        let limits = limits(&self.node);
        self.core = Some(Core::new(config, facts, limits, Checkpoint::default(), start, now));
        self.handle(Event::Tick, now, queue);
        self.schedule_pass(now, Span(0), queue);
    }

    fn handle(&mut self, event: Event, now: Time, queue: &mut RequestQueue) {
        let Some(core) = &mut self.core else { return };
        let effects = core.on_event(event, now);
        for effect in effects {
            self.execute(effect, now, queue);
        }
        let Some(core) = &self.core else { return };
        let wake = core.wake_at();
        self.ready = self.ready || core.snapshot(now).counts.usable > 0;
        if let Some(at) = wake.filter(|at| self.wakes_at.is_none_or(|known| *at < known)) {
            self.wakes_at = Some(at);
            self.request(DaemonRequest::Sleep(at.since(now)), Purpose::Wake, queue);
        }
    }

    fn request(&mut self, request: DaemonRequest, purpose: Purpose, queue: &mut RequestQueue) {
        self.requests += 1;
        let tag = Tag(self.requests);
        self.pending.insert(tag, purpose);
        queue.requests.push((tag, request));
    }

    fn execute(&mut self, effect: Effect, now: Time, queue: &mut RequestQueue) {
        match effect {
            Effect::Reply { ticket, answer } => self.on_answer(ticket, answer, queue),
            Effect::Cloud { op, call } => {
                let request = translate::request(call.clone());
                self.request(
                    DaemonRequest::Ec2(Box::new(request)),
                    Purpose::Call { op, call },
                    queue,
                );
            }
            Effect::Look { witness } => {
                let request = match witness {
                    Witness::Imds => DaemonRequest::Imds,
                    Witness::Ec2 => DaemonRequest::Ec2(Box::new(self.look())),
                };
                self.request(request, Purpose::Look { witness, started: now }, queue);
            }
            Effect::NodeChanged => self.schedule_pass(now, DEBOUNCE, queue),
            Effect::Persist(_)
            | Effect::Report(_)
            | Effect::AskForTrunk
            | Effect::Forget { .. } => {}
        }
    }

    /// All ENIs of this instance, with the daemon's own filter.
    fn look(&self) -> Request {
        let instance = self.node.instance.as_str();
        DescribeNetworkInterfaces {
            filters: vec![Filter::new("attachment.instance-id", [instance])],
            ..DescribeNetworkInterfaces::default()
        }
        .into()
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Answer, queue: &mut RequestQueue) {
        let Some(pod) = self.adding.remove(&ticket) else { return };
        let given = match answer {
            Answer::Reserved { addresses } => addresses.first().map(|first| first.address),
            Answer::ReservedBranch(_)
            | Answer::Refused(_)
            | Answer::Confirmed { .. }
            | Answer::Released { .. } => None,
        };
        let Some(IpAddr::V4(address)) = given else {
            queue.outcomes.push((pod, Outcome::Failed));
            return;
        };
        self.kernel.insert(pod, IpAddr::V4(address));
        self.request(DaemonRequest::Sleep(BUILD), Purpose::Confirm(pod), queue);
        queue.outcomes.push((pod, Outcome::Given(address)));
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    fn schedule_pass(&mut self, now: Time, span: Span, queue: &mut RequestQueue) {
        let at = now + span;
        if self.pass_at.is_none_or(|known| at < known) {
            self.pass_at = Some(at);
            self.request(DaemonRequest::Sleep(span), Purpose::Pass, queue);
        }
    }

    /// Starts an observation of the kernel. The core receives it when it is complete.
    fn start_pass(&mut self, now: Time, queue: &mut RequestQueue) {
        if self.pass_at.is_none_or(|at| at > now) {
            return;
        }
        self.pass_at = None;
        let in_use = self.kernel.values().copied().collect();
        self.request(DaemonRequest::Links, Purpose::Links { started: now, in_use }, queue);
    }

    fn finish_pass(
        &mut self,
        started: Time,
        in_use: BTreeSet<IpAddr>,
        links: &[EniId],
        now: Time,
        queue: &mut RequestQueue,
    ) {
        self.handle(Event::KernelSeen { started, in_use }, now, queue);
        if !std::mem::take(&mut self.enis_changed) {
            self.schedule_pass(now, PERIOD, queue);
            return;
        }
        let enis = self.core.as_ref().map(|core| core.snapshot(now).enis).unwrap_or_default();
        let mut missed = false;
        for eni in enis.into_iter().filter(|eni| eni.managed && !eni.leaving) {
            let there = links.contains(&eni.id);
            missed |= !there;
            match (there, eni.ready) {
                (true, false) => self.handle(Event::EniReady { eni: eni.id }, now, queue),
                (false, true) => {
                    let why = "no link has its MAC address".to_owned();
                    self.handle(Event::EniNotReady { eni: eni.id, why }, now, queue);
                }
                (true, true) | (false, false) => {}
            }
        }
        self.enis_changed = missed;
        self.schedule_pass(now, if missed { LINK_POLL } else { PERIOD }, queue);
    }

    fn finish_call(
        &mut self,
        op: OpId,
        call: &CloudCall,
        result: Result<Response, CallError>,
        now: Time,
        queue: &mut RequestQueue,
    ) {
        let result = result
            .map_err(|error| fault(call.action().name(), error))
            .and_then(|response| translate::answer(call, response, 0));
        self.enis_changed = true;
        self.handle(Event::CloudDone { op, result }, now, queue);
    }

    fn sighted(
        &mut self,
        witness: Witness,
        started: Time,
        result: Result<Response, CallError>,
        now: Time,
        queue: &mut RequestQueue,
    ) {
        let event = match result {
            Ok(Response::DescribeNetworkInterfaces { network_interfaces, .. }) => {
                let enis = network_interfaces.iter().map(translate::seen_by_ec2).collect();
                Event::Sighting { witness, started, enis }
            }
            Ok(_) => return,
            Err(error) => {
                let fault = fault("DescribeNetworkInterfaces", error);
                Event::LookFailed { witness, fault }
            }
        };
        self.enis_changed = true;
        self.handle(event, now, queue);
    }

    fn sighted_by_imds(
        &mut self,
        started: Time,
        shown: &[std::sync::Arc<NetworkInterface>],
        now: Time,
        queue: &mut RequestQueue,
    ) {
        let (instance, cidr) = (&self.node.instance, Some(self.node.subnet_cidr));
        let convert = |eni: &std::sync::Arc<NetworkInterface>| {
            translate::seen_by_imds(eni, instance, (cidr, None))
        };
        let enis = shown.iter().filter_map(convert).collect();
        self.enis_changed = true;
        self.handle(Event::Sighting { witness: Witness::Imds, started, enis }, now, queue);
    }
}

impl Daemon for Ours {
    fn boot(&mut self, _: Time, queue: &mut RequestQueue) {
        self.request(DaemonRequest::Sleep(START), Purpose::Boot, queue);
    }

    fn on_reply(&mut self, tag: Tag, reply: DaemonReply, now: Time, queue: &mut RequestQueue) {
        let Some(purpose) = self.pending.remove(&tag) else { return };
        match (purpose, reply) {
            (Purpose::Boot, _) => self.start(now, queue),
            (Purpose::Wake, _) => {
                if self.wakes_at.is_some_and(|at| at <= now) {
                    self.wakes_at = None;
                    self.handle(Event::Tick, now, queue);
                }
            }
            (Purpose::Pass, _) => self.start_pass(now, queue),
            (Purpose::Links { started, in_use }, DaemonReply::Links(links)) => {
                self.finish_pass(started, in_use, &links, now, queue);
            }
            (Purpose::Confirm(pod), _) => {
                let (ticket, key) = (self.ticket(), key(pod));
                let host_interface = format!("eni{:011x}", pod.0);
                self.handle(Event::Confirm { ticket, key, host_interface }, now, queue);
            }
            (Purpose::Call { op, call }, DaemonReply::Ec2(result)) => {
                self.finish_call(op, &call, result, now, queue);
            }
            (Purpose::Look { witness, started }, DaemonReply::Ec2(result)) => {
                self.sighted(witness, started, result, now, queue);
            }
            (Purpose::Look { started, .. }, DaemonReply::Imds(shown)) => {
                self.sighted_by_imds(started, &shown, now, queue);
            }
            (Purpose::Links { .. } | Purpose::Call { .. } | Purpose::Look { .. }, _) => {}
        }
    }

    fn bound(&mut self, pods: &BTreeSet<Pod>, now: Time, queue: &mut RequestQueue) {
        if self.anticipate {
            let coming = ClusterFact::Coming(pods.iter().map(|pod| name(*pod)).collect());
            self.handle(Event::Cluster(coming), now, queue);
        }
    }

    fn add(&mut self, pod: Pod, now: Time, queue: &mut RequestQueue) {
        let ticket = self.ticket();
        self.adding.insert(ticket, pod);
        let event = Event::Reserve {
            ticket,
            key: key(pod),
            pod: name(pod),
            cards: Cards::First,
            branch: None,
            give_up_at: now + ADD_WAIT,
        };
        self.handle(event, now, queue);
    }

    fn del(&mut self, pod: Pod, now: Time, queue: &mut RequestQueue) {
        let (ticket, key) = (self.ticket(), key(pod));
        self.handle(Event::Release { ticket, key, cause: ReleaseCause::PodDeleted }, now, queue);
        self.kernel.remove(&pod);
    }

    fn is_ready(&self) -> bool {
        self.ready
    }
}

/// The fault of a failed call, by the daemon's own table of error codes.
fn fault(action: &str, error: CallError) -> CloudFault {
    match error {
        CallError::Refused(error) => {
            let (code, message) = (Some(error.code.as_str()), error.message.as_str());
            Ec2ErrorResponse { action, code, message, status: error.http_status, retry_after: None }
                .fault()
        }
        CallError::ReplyLost => CloudFault {
            code: "Dispatch".to_owned(),
            message: "the connection was closed".to_owned(),
            remedy: Remedy::Unknown,
        },
    }
}

fn name(pod: Pod) -> PodName {
    PodName { namespace: "default".to_owned(), name: format!("web-{}", pod.0) }
}

fn key(pod: Pod) -> PodKey {
    PodKey {
        network: "aws-cni".to_owned(),
        container_id: format!("sandbox{}", pod.0),
        ifname: "eth0".to_owned(),
    }
}

fn facts(node: &NodeSetting) -> NodeFacts {
    let tag = "node.k8s.amazonaws.com/instance_id".to_owned();
    NodeFacts {
        instance_id: node.instance.clone(),
        primary_eni: node.primary_eni.clone(),
        vpc: node.vpc.clone(),
        zone: node.zone.clone(),
        subnet: node.subnet.clone(),
        subnet_cidr: Some(node.subnet_cidr),
        subnet_cidr_v6: None,
        security_groups: node.groups.clone(),
        description: format!("aws-K8S-{}", node.instance),
        tags: BTreeMap::from([(tag, node.instance.to_string())]),
    }
}

fn limits(node: &NodeSetting) -> Limits {
    let cards = node.kind.cards.iter().map(|card| CardLimits {
        card: config_model::CardIndex(card.index),
        enis: card.maximum_network_interfaces,
    });
    Limits {
        cards: cards.collect(),
        ipv4_per_eni: node.kind.ipv4_per_interface,
        ipv6_per_eni: node.kind.ipv6_per_interface,
        prefixes: true,
        trunk: false,
        branch_enis: 0,
    }
}
