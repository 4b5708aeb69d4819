//! The daemon's process around the real core, with the order of the daemon's event loop.
//!
//! A reply or a call leaves when the records before it are durable. One write is under way at a time. Requests that
//! arrive before there is an address book wait. The process can die between any two effects.

use crate::{
    branches::branches_of,
    ec2::{CALL_TIMEOUT, ZONE, answer, blocks, request, seen_by_ec2, seen_by_imds, unknown},
    judge::Law,
    kubelet::SandboxId,
    plan::Mode,
    planted::Planted,
    random::Rng,
    repair::{PassStage, Repair},
    world::{DueEvent, Request, World},
};
use config_model::{PodKey, PodName, Span, Time};
use ipamd_core::{
    Action as CoreAction, Answer, CardLimits, Cards, CloudCall, CloudFault, ClusterFact, Core,
    Effect, EniConfig, Event, Family, Limits, NodeFacts, OpId, PoolConfig, Refusal, RefusalReason,
    ReleaseCause, Remedy, Start, Ticket, Witness,
};
use ipamd_node::{Durable, Outbox};
use lab_cloud::{DescribeNetworkInterfaces, Filter, InstanceType, Page, Response};
use std::collections::BTreeMap;

/// One daemon process.
pub(crate) struct Daemon {
    pub(crate) life: u32,
    /// `None` before the node is known.
    pub(crate) core: Option<Core>,
    queued: Vec<(Ticket, Question)>,
    outbox: Outbox,
    writing: bool,
    durable: u64,
    askers: BTreeMap<Ticket, (Sender, Time)>,
    tickets: u64,
    pub(crate) repair: Repair,
    /// The number of effects before the process dies, and the time until the next start.
    dies: Option<(u32, Span)>,
    stopping: bool,
}

/// A request to the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Question {
    Reserve(PodKey, PodName, Time),
    Confirm(PodKey, String),
    Release(PodKey, ReleaseCause),
}

/// The sender of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sender {
    /// An ADD that needs an address.
    Add(SandboxId),
    /// An ADD that confirms.
    Confirm(SandboxId),
    /// An ADD that failed and releases.
    RollBack(SandboxId),
    Del(u32),
    /// A tombstone in a repair pass.
    TombstoneInPass(PodKey),
    /// A tombstone at the start.
    TombstoneAtStart(PodKey),
}

const TAG_INSTANCE: &str = "node.k8s.amazonaws.com/instance_id";

impl World {
    pub(crate) fn is_alive(&self, life: u32) -> bool {
        self.daemon.as_ref().is_some_and(|daemon| daemon.life == life)
    }

    pub(crate) fn wake_at(&self) -> Option<Time> {
        let core = self.daemon.as_ref()?.core.as_ref()?;
        core.wake_at().map(|at| self.host.when(at))
    }

    pub(crate) fn start_daemon(&mut self) {
        if self.daemon.is_some() {
            return;
        }
        self.lives += 1;
        let life = self.lives;
        self.daemon = Some(Daemon {
            life,
            core: None,
            queued: Vec::new(),
            outbox: Outbox::default(),
            writing: false,
            durable: 0,
            askers: BTreeMap::new(),
            tickets: 0,
            repair: Repair::default(),
            dies: None,
            stopping: false,
        });
        self.judge.extend_fault(self.now);
        self.note(|| format!("daemon {life} starts"));
        let takes = self.draw("start", 50, 1500);
        self.after(Span(takes), DueEvent::Begin(life));
    }

    /// Creates the core, once IMDS has identified the node.
    pub(crate) fn begin(&mut self, life: u32) {
        if !self.is_alive(life) {
            return;
        }
        if self.ec2.cloud.imds_outage(&self.ec2.instance).is_some() {
            self.after(Span::seconds(2), DueEvent::Begin(life));
            return;
        }
        let restored = self.disk.read();
        let now = self.now;
        let again = ipamd_core::Checkpoint::replay(restored.compact());
        self.judge.demand(again == restored, Law::Checkpoint, now, || {
            format!("the compaction of {restored:?} is {again:?}")
        });
        let seed = self.draw("seed", 0, u64::MAX - 1);
        let start = Start { boot_id: self.host.boot_id(), seed };
        let clock = self.host.clock(self.now);
        let core = Core::new(self.config(), self.facts(), self.limits(), restored, start, clock);
        let Some(daemon) = self.daemon.as_mut() else { return };
        daemon.core = Some(core);
        let queued = std::mem::take(&mut daemon.queued);
        self.judge.extend_fault(self.now);
        self.note(|| format!("daemon {life} has its address book"));
        self.deliver(Event::Tick);
        // Missed DELs come first.
        for key in self.tombstones.keys().cloned().collect::<Vec<_>>() {
            let release = Question::Release(key.clone(), ReleaseCause::PodDeleted);
            self.ask(release, Sender::TombstoneAtStart(key));
        }
        for (ticket, question) in queued {
            self.put(ticket, question);
        }
        // The API server becomes reachable some time after the start.
        self.schedulable_since = self.now + CLUSTER_TAKES;
        let takes = self.draw("cluster", 1, CLUSTER_TAKES.0);
        self.after(Span(takes), DueEvent::Cluster(life));
        self.at(self.now, DueEvent::Pass(life, PassStage::Begins));
    }

    fn config(&self) -> PoolConfig {
        let (targets, mode) = (self.setup.targets, self.setup.mode);
        let cooldown = match self.planted {
            Some(Planted::CooldownNotCounted) => Span(0),
            _ => self.setup.cooldown,
        };
        PoolConfig {
            warm_eni_target: targets.warm_enis,
            warm_ip_target: Some(targets.warm_ips),
            minimum_ip_target: Some(targets.minimum_ips),
            warm_prefix_target: Some(targets.warm_prefixes),
            prefixes: self.setup.prefixes,
            max_eni: self.setup.max_eni,
            max_pods: self.setup.max_pods,
            cooldown,
            family: if mode == Mode::Ipv6 { Family::V6 } else { Family::V4 },
            multi_nic: mode == Mode::Cards,
            provisioning: mode.provisions(),
            imds_only: mode == Mode::ImdsOnly,
            subnet_discovery: mode == Mode::Discovery,
            custom_networking: mode == Mode::Custom,
            pod_enis: mode == Mode::Trunk,
            node_cidrs: self.pod_cidr.into_iter().collect(),
            ..PoolConfig::default()
        }
    }

    fn facts(&self) -> NodeFacts {
        let instance = self.ec2.instance.clone();
        let (subnet_cidr, subnet_cidr_v6) = self.ec2.cidrs(&self.ec2.subnet);
        NodeFacts {
            primary_eni: self.ec2.primary.clone(),
            vpc: self.ec2.vpc.clone(),
            zone: ZONE.to_owned(),
            subnet: self.ec2.subnet.clone(),
            subnet_cidr,
            subnet_cidr_v6,
            security_groups: self.ec2.groups.clone(),
            description: format!("aws-K8S-{instance}"),
            tags: [(TAG_INSTANCE.to_owned(), instance.to_string())]
                .into_iter()
                .chain(self.ec2.iam.is_some().then(crate::iam::cluster_tag))
                .collect(),
            instance_id: instance,
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        let kind = InstanceType::named(self.setup.instance_type);
        let cards = kind.map(|kind| kind.cards.as_slice()).unwrap_or_default();
        Limits {
            cards: cards
                .iter()
                .map(|card| CardLimits {
                    card: config_model::CardIndex(card.index),
                    enis: card.maximum_network_interfaces,
                })
                .collect(),
            ipv4_per_eni: kind.map_or(2, |kind| kind.ipv4_per_interface),
            ipv6_per_eni: kind.map_or(2, |kind| kind.ipv6_per_interface),
            prefixes: kind.is_some_and(|kind| kind.hypervisor != lab_cloud::Hypervisor::Xen),
            trunk: branches_of(self.setup.mode, kind) > 0,
            branch_enis: branches_of(self.setup.mode, kind),
        }
    }

    /// Sends a request; `None` if no daemon accepts it.
    pub(crate) fn ask(&mut self, question: Question, sender: Sender) -> Option<Ticket> {
        let now = self.now;
        let daemon = self.daemon.as_mut()?;
        daemon.tickets += 1;
        let ticket = Ticket(daemon.tickets);
        daemon.askers.insert(ticket, (sender, now));
        let (life, starting) = (daemon.life, daemon.core.is_none());
        let overdue = match &question {
            Question::Reserve(_, _, give_up) => self.host.when(*give_up),
            Question::Confirm(..) | Question::Release(..) => now,
        };
        self.at(overdue + ANSWER_SLACK, DueEvent::Overdue(life, ticket));
        if starting {
            if let Some(daemon) = self.daemon.as_mut() {
                daemon.queued.push((ticket, question));
            }
        } else {
            self.put(ticket, question);
        }
        Some(ticket)
    }

    fn put(&mut self, ticket: Ticket, question: Question) {
        let event = match question {
            Question::Reserve(key, pod, give_up_at) => Event::Reserve {
                ticket,
                cards: self.cards_of(&pod),
                branch: self.uid_asked_for(&key, &pod),
                key,
                pod,
                give_up_at,
            },
            Question::Confirm(key, host_interface) => {
                Event::Confirm { ticket, key, host_interface }
            }
            Question::Release(key, cause) => Event::Release { ticket, key, cause },
        };
        self.deliver(event);
    }

    /// Every other pod of a node with several cards needs an address of each.
    fn cards_of(&self, pod: &PodName) -> Cards {
        let even = pod.name.ends_with(['0', '2', '4', '6', '8']);
        if self.setup.mode == Mode::Cards && even { Cards::All } else { Cards::First }
    }

    /// Sends the current facts from Kubernetes.
    pub(crate) fn deliver_cluster_facts(&mut self) {
        if self.setup.mode == Mode::Custom {
            let (name, subnet) = (ZONE.to_owned(), self.ec2.growth.clone());
            let found = EniConfig::Found { name, subnet, groups: Vec::new() };
            self.deliver(Event::Cluster(ClusterFact::EniConfig(found)));
        }
        if self.setup.mode == Mode::Unschedulable {
            self.deliver(Event::Cluster(ClusterFact::Schedulable(self.schedulable)));
        }
    }

    /// Changes the node's schedulability.
    pub(crate) fn set_schedulable(&mut self, schedulable: bool) {
        if std::mem::replace(&mut self.schedulable, schedulable) == schedulable {
            return;
        }
        if schedulable {
            self.spell_ends();
        } else {
            self.spell_begins();
        }
        self.schedulable_since = self.schedulable_since.max(self.now);
        self.deliver(Event::Cluster(ClusterFact::Schedulable(schedulable)));
    }

    /// Gives the node its pod CIDR or takes it away.
    pub(crate) fn set_pod_cidr(&mut self, there: bool) {
        let cidr = self.setup.mode.pod_cidr().filter(|_| there);
        if std::mem::replace(&mut self.pod_cidr, cidr) != cidr {
            // The observer of ADDs does not count addresses that come and go.
            self.judge.extend_fault(self.now);
            self.deliver(Event::NodeCidrs(cidr.into_iter().collect()));
        }
    }

    /// Law: no call that the mode forbids.
    fn judge_mode(&mut self, call: &CloudCall) {
        // A repeated token only asks for the result of the first request.
        if let CloudCall::CreateEni { token, .. } = call
            && !self.tokens_sent.insert(token.clone())
        {
            return;
        }
        self.judge_trunk(call);
        let (now, mode) = (self.now, self.setup.mode);
        let looks = matches!(call.action(), CoreAction::Describe | CoreAction::DescribeSubnets);
        let allowed = match mode {
            Mode::ImdsOnly => false,
            Mode::NotProvisioned => looks,
            Mode::Unschedulable if !self.schedulable => {
                let grows = matches!(call, CloudCall::CreateEni { .. } | CloudCall::Assign { .. });
                !grows || now < self.schedulable_since + ANSWER_SLACK
            }
            _ => true,
        };
        self.judge.demand(allowed, Law::Forbidden, now, || format!("{mode}: {call:?}"));
    }

    /// The sender has disconnected.
    pub(crate) fn abandon(&mut self, ticket: Ticket) {
        let Some(daemon) = self.daemon.as_mut() else { return };
        daemon.queued.retain(|(queued, _)| *queued != ticket);
        daemon.askers.remove(&ticket);
        if daemon.core.is_some() {
            self.deliver(Event::Abandoned { ticket });
        }
    }

    pub(crate) fn deliver(&mut self, event: Event) {
        let clock = self.host.clock(self.now);
        let Some(core) = self.daemon.as_mut().and_then(|daemon| daemon.core.as_mut()) else {
            return;
        };
        if !matches!(event, Event::Tick | Event::KernelSeen { .. }) {
            self.trace.line(self.now, || format!("   > {}", brief(&event)));
        }
        for effect in core.on_event(event, clock) {
            if self.dies_now() {
                return;
            }
            self.judge_emitted(&effect);
            let Some(daemon) = self.daemon.as_mut() else { return };
            for at_once in daemon.outbox.take_in(vec![effect]) {
                self.carry_out(at_once);
            }
        }
        self.settle();
    }

    /// Counts an effect. Returns true if the process dies before it.
    fn dies_now(&mut self) -> bool {
        let Some(daemon) = self.daemon.as_mut() else { return true };
        match &mut daemon.dies {
            Some((0, down)) => {
                let down = *down;
                self.daemon_dies(down);
                true
            }
            Some((left, _)) => {
                *left -= 1;
                false
            }
            None => false,
        }
    }

    /// Releases effects that may leave, and starts the next write.
    fn settle(&mut self) {
        loop {
            let Some(daemon) = self.daemon.as_mut() else { return };
            let durable = match self.planted {
                Some(Planted::CheckpointAfterReply) => u64::MAX,
                _ => daemon.durable,
            };
            daemon.outbox.settle(Durable(durable));
            let Some(effect) = daemon.outbox.release() else { break };
            if self.dies_now() {
                return;
            }
            self.carry_out(effect);
        }
        let Some(daemon) = self.daemon.as_mut() else { return };
        daemon.outbox.settle(Durable(daemon.durable));
        if daemon.writing {
            return;
        }
        if let Some(batch) = daemon.outbox.batch() {
            daemon.writing = true;
            let life = daemon.life;
            self.disk.begin(batch);
            let usual = self.draw("write", 0, 6);
            let takes = self.disk_write.map_or(usual, |slow| slow.0);
            self.after(Span(takes), DueEvent::Written(life));
        }
    }

    pub(crate) fn written(&mut self, life: u32) {
        if !self.is_alive(life) {
            return;
        }
        let count = self.disk.done();
        if let Some(daemon) = self.daemon.as_mut() {
            daemon.writing = false;
            daemon.durable += count;
        }
        self.settle();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Reply { ticket, answer } => self.reply(ticket, answer),
            Effect::Cloud { op, call } => self.call(op, call),
            Effect::Look { witness } => self.look(witness),
            Effect::NodeChanged => self.kernel_changed(),
            Effect::Report(notice) => {
                self.note(|| {
                    format!("   ! {:?} {}: {}", notice.topic, notice.object, notice.cause)
                });
            }
            Effect::AskForTrunk => self.ask_for_trunk(),
            Effect::Persist(_) | Effect::Forget { .. } => {}
        }
    }

    fn reply(&mut self, ticket: Ticket, answer: Answer) {
        let now = self.now;
        let Some(daemon) = self.daemon.as_mut() else { return };
        let Some((sender, _)) = daemon.askers.remove(&ticket) else {
            // The answer to an abandoned request is allowed.
            return;
        };
        self.note(|| format!("   < {sender:?}: {}", brief_answer(&answer)));
        if let (Sender::Add(sandbox), Answer::Reserved { .. } | Answer::ReservedBranch(_)) =
            (&sender, &answer)
            && let Some(key) = self.kubelet.sandboxes.get(sandbox).map(|s| s.key.clone())
        {
            let known = self.disk.knows_reserved(&key);
            self.judge.demand(known, Law::AheadOfDisk, now, || {
                format!("the reply to {key} leaves before its record is on disk")
            });
            self.judge.replied(&key);
        }
        let takes = self.draw("socket", 0, 2);
        self.after(Span(takes), DueEvent::AnswerArrives(Box::new((sender, answer))));
    }

    fn call(&mut self, op: OpId, call: CloudCall) {
        let now = self.now;
        let Some(life) = self.daemon.as_ref().map(|daemon| daemon.life) else { return };
        self.note(|| format!("   < {op:?} {call:?}"));
        self.judge_mode(&call);
        let known = match &call {
            CloudCall::CreateEni { token, .. } => self.disk.knows_asked(token),
            CloudCall::DetachEni { eni, .. } => self.disk.knows_leaving(eni),
            _ => true,
        };
        self.judge.demand(known, Law::AheadOfDisk, now, || {
            format!("{call:?} leaves before its record is on disk")
        });
        let action = request(call.clone()).action();
        let (there, back) = self.ec2.trip(now, action);
        match there {
            Some(there) => {
                let request = Request { life, op, call, sent: now, back };
                self.after(there, DueEvent::Arrives(Box::new(request)));
            }
            None => {
                let result = Err(unknown("Timeout", "no answer in time"));
                let event = Event::CloudDone { op, result };
                self.after(CALL_TIMEOUT, DueEvent::Delivery(life, Box::new(event)));
            }
        }
    }

    /// Delivers a call to EC2, whether or not the daemon still runs.
    pub(crate) fn request_arrives(&mut self, arrived: Request) {
        let now = self.now;
        let Request { life, op, call, sent, back } = arrived;
        let enis = self.ec2.enis(now).to_vec();
        self.judge.arrives(&call, &enis, &self.host, now);
        let response = self.ec2.carry_out(now, request(call.clone()));
        let result = response.and_then(|response| answer(&call, response, now.0));
        if let (CloudCall::Unassign { blocks, .. }, Ok(_)) = (&call, &result) {
            self.judge.gone(blocks);
        }
        if let (CloudCall::AttachEni { eni, .. }, Ok(_)) = (&call, &result) {
            // An ENI that was detached by others is back.
            self.judge.harmed_enis.remove(eni);
        }
        for eni in self.ec2.enis(now) {
            self.judge.are_back(&eni.id, &blocks(eni));
        }
        self.note(|| match &result {
            Ok(answer) => format!("   = {op:?} {answer:?}"),
            Err(fault) => format!("   = {op:?} {} ({:?})", fault, fault.remedy),
        });
        let (at, result) = if now + back > sent + CALL_TIMEOUT {
            (sent + CALL_TIMEOUT, Err(unknown("Timeout", "no answer in time")))
        } else {
            (now + back, result)
        };
        self.at(at, DueEvent::Delivery(life, Box::new(Event::CloudDone { op, result })));
    }

    fn look(&mut self, witness: Witness) {
        let Some(life) = self.daemon.as_ref().map(|daemon| daemon.life) else { return };
        let started = self.host.clock(self.now);
        let (now, forbidden) = (self.now, self.setup.mode == Mode::ImdsOnly);
        self.judge.demand(!forbidden || witness == Witness::Imds, Law::Forbidden, now, || {
            "EC2 is looked at, though IMDS alone may be".to_owned()
        });
        let (there, back) = match witness {
            Witness::Imds => {
                let takes = self.draw("imds", 2, 60);
                (Some(Span(takes)), Span(1))
            }
            Witness::Ec2 => self.ec2.trip(self.now, lab_cloud::Action::DescribeNetworkInterfaces),
        };
        let arrives = there.unwrap_or(CALL_TIMEOUT);
        let back = there.map(|_| back);
        self.after(arrives, DueEvent::Looks(life, witness, started, back));
    }

    pub(crate) fn looks(&mut self, life: u32, witness: Witness, started: Time, back: Option<Span>) {
        let now = self.now;
        let instance = self.ec2.instance.clone();
        let seen = match (witness, back) {
            (_, None) => Err(unknown("Timeout", "no answer in time")),
            (Witness::Imds, Some(_)) => self.imds_shows(),
            (Witness::Ec2, Some(_)) if self.planted == Some(Planted::ImdsTrustedAlone) => {
                let enis = self.ec2.cloud.imds_enis(now, &instance);
                Ok(enis.iter().map(|eni| seen_by_ec2(eni)).collect())
            }
            (Witness::Ec2, Some(_)) => {
                let ours = Filter::new("attachment.instance-id", [instance.to_string()]);
                let asked = DescribeNetworkInterfaces {
                    filters: vec![ours],
                    page: Page { max_results: Some(1000), next_token: None },
                    ..DescribeNetworkInterfaces::default()
                };
                self.ec2.carry_out(now, asked.into()).map(|response| match response {
                    Response::DescribeNetworkInterfaces { network_interfaces, .. } => {
                        network_interfaces.iter().map(seen_by_ec2).collect()
                    }
                    _ => Vec::new(),
                })
            }
        };
        let event = match seen {
            Ok(enis) => Event::Sighting { witness, started, enis },
            Err(fault) => Event::LookFailed { witness, fault },
        };
        self.after(back.unwrap_or_default(), DueEvent::Delivery(life, Box::new(event)));
    }

    fn imds_shows(&mut self) -> Result<Vec<ipamd_core::SeenEni>, CloudFault> {
        let instance = self.ec2.instance.clone();
        if self.ec2.cloud.imds_outage(&instance).is_some() {
            return Err(self.fault("GetMACs", Remedy::RetryAfter { wait: None }));
        }
        let enis = self.ec2.cloud.imds_enis(self.now, &instance);
        let seen = enis
            .iter()
            .filter_map(|eni| seen_by_imds(eni, &instance, self.ec2.cidrs(&eni.subnet_id)));
        Ok(seen.collect())
    }

    /// Plans the process's death after a number of effects.
    pub(crate) fn kill_daemon(&mut self, after: u32, down: Span) {
        if after == 0 {
            self.daemon_dies(down);
        } else if let Some(daemon) = self.daemon.as_mut() {
            daemon.dies = Some((after, down));
        }
    }

    /// Ends the process: unwritten state and connections are lost.
    pub(crate) fn daemon_dies(&mut self, down: Span) {
        let Some(daemon) = self.daemon.take() else { return };
        self.note(|| format!("daemon {} dies", daemon.life));
        self.judge.extend_fault(self.now);
        self.judge.forget_unreplied();
        let mut rng = Rng::new(self.draw("tear", 0, u64::MAX - 1), "tear");
        self.disk.process_died(&mut rng);
        for (sender, _) in daemon.askers.into_values() {
            let takes = self.draw("lost", 0, 3);
            self.after(Span(takes), DueEvent::Lost(sender));
        }
        self.after(down, DueEvent::Start);
    }

    /// SIGTERM: waiting requests are answered, and everything is made durable.
    pub(crate) fn stop_daemon(&mut self, down: Span) {
        self.judge.extend_fault(self.now);
        if let Some(daemon) = self.daemon.as_mut() {
            daemon.stopping = true;
            for (ticket, question) in std::mem::take(&mut daemon.queued) {
                let refused = Answer::Refused(Refusal {
                    reason: RefusalReason::Stopping,
                    message: "the daemon is stopping".to_owned(),
                    next_step: String::new(),
                });
                if matches!(question, Question::Reserve(..)) {
                    self.reply(ticket, refused);
                }
            }
        }
        self.deliver(Event::Stopping);
        // It waits some seconds for its last writes unless it is killed sooner.
        let takes = Span(self.draw("stop", 5, 4000));
        self.kill_daemon(u32::MAX, down);
        if let Some(life) = self.daemon.as_ref().map(|daemon| daemon.life) {
            self.after(takes, DueEvent::Overdue(life, LAST));
        }
    }

    /// Law: a request is answered in time, and a stopping daemon ends in time.
    pub(crate) fn overdue(&mut self, life: u32, ticket: Ticket) {
        let now = self.now;
        let Some(daemon) = self.daemon.as_ref().filter(|daemon| daemon.life == life) else {
            return;
        };
        if ticket == LAST {
            let down = daemon.dies.map_or(Span(0), |(_, down)| down);
            self.daemon_dies(down);
            return;
        }
        let Some((sender, asked)) = daemon.askers.get(&ticket).cloned() else { return };
        if daemon.core.is_none() || self.disk_write.is_some() || daemon.writing {
            self.after(ANSWER_SLACK, DueEvent::Overdue(life, ticket));
            return;
        }
        self.judge.report_violation(Law::NotAnsweredOnce, now, || {
            format!("{sender:?} has no answer after {} ms", now.since(asked).0)
        });
    }

    /// Checks the core's effects before anything delays them.
    fn judge_emitted(&mut self, effect: &Effect) {
        let now = self.now;
        let Effect::Reply { ticket, answer } = effect else { return };
        let Some(daemon) = self.daemon.as_mut() else { return };
        let Some((sender, asked)) = daemon.askers.get(ticket).cloned() else {
            self.judge
                .report_violation(Law::NotAnsweredOnce, now, || format!("{ticket:?} {answer:?}"));
            return;
        };
        match answer {
            Answer::Reserved { addresses } => {
                let Sender::Add(sandbox) = sender else { return };
                let Some(sandbox) = self.kubelet.sandboxes.get(&sandbox) else { return };
                let (key, enis) = (sandbox.key.clone(), self.ec2.enis(now).to_vec());
                for given in addresses {
                    self.judge.given(&key, given, &self.host, (&enis, self.pod_cidr), now);
                }
            }
            Answer::ReservedBranch(branch) => {
                if let Sender::Add(sandbox) = sender {
                    self.judge_branch(sandbox, branch);
                }
            }
            Answer::Refused(refusal) => {
                if let Sender::Add(sandbox) = sender {
                    self.judge_no_branch(sandbox, asked, &refusal.message);
                }
            }
            Answer::Released { known: true, .. } => {
                if let Some(key) = self.key_of(&sender) {
                    self.branch_released(&key);
                    self.judge.released(&key, asked);
                }
            }
            _ => {}
        }
    }

    fn key_of(&self, sender: &Sender) -> Option<PodKey> {
        let sandbox = match sender {
            Sender::Add(sandbox) | Sender::Confirm(sandbox) | Sender::RollBack(sandbox) => sandbox,
            Sender::Del(del) => &self.kubelet.dels.get(del)?.sandbox,
            Sender::TombstoneInPass(key) | Sender::TombstoneAtStart(key) => {
                return Some(key.clone());
            }
        };
        self.kubelet.sandboxes.get(sandbox).map(|sandbox| sandbox.key.clone())
    }
}

/// Formats an event in one line.
fn brief(event: &Event) -> String {
    match event {
        Event::Sighting { witness, enis, .. } => {
            let of = |eni: &ipamd_core::SeenEni| format!("{}:{}", eni.id, eni.blocks.len());
            let all: Vec<String> = enis.iter().map(of).collect();
            format!("{witness:?} shows {}", all.join(" "))
        }
        Event::CloudDone { op, result } => match result {
            Ok(_) => format!("{op:?} done"),
            Err(fault) => format!("{op:?} failed: {}", fault.code),
        },
        other => format!("{other:?}"),
    }
}

fn brief_answer(answer: &Answer) -> String {
    match answer {
        Answer::Reserved { addresses } => {
            let all: Vec<String> = addresses.iter().map(|a| a.address.to_string()).collect();
            format!("reserved {}", all.join(" "))
        }
        Answer::Refused(refusal) => format!("refused: {}", refusal.message),
        Answer::Released { known, .. } => format!("released, known: {known}"),
        other => format!("{other:?}"),
    }
}

/// The time within which an answer that waits for nothing arrives.
const ANSWER_SLACK: Span = Span::seconds(10);
/// The time after a start at which the facts from Kubernetes arrive.
const CLUSTER_TAKES: Span = Span::seconds(8);
/// The ticket of the stop, which no request has.
const LAST: Ticket = Ticket(u64::MAX);
