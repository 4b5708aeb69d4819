//! The world around one core: cloud, kernel, file, clock, and the process itself.

mod cloud;
mod judge;

pub(crate) use cloud::{Cloud, Fault};

use config_model::{EniId, PodKey, PodName, Span, Time};
use ipamd_core::{
    Answer, AttachmentState, Cards, Checkpoint, CloudFault, Core, Effect, Event, Limits, NodeFacts,
    Notice, PodView, PoolConfig, Record, RefusalReason, ReleaseCause, Remedy, Snapshot, Start,
    Ticket, Topic, Witness,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

/// The time of a cloud answer.
const ROUND_TRIP: Span = Span::millis(200);
/// The delay of a repair pass after a change of the desired state, and the longest time between two passes.
const PASS_SOON: Span = Span::millis(10);
const PASS_INTERVAL: Span = Span::seconds(10);
/// The time in which a plugin builds an interface.
const BUILD: Span = Span::millis(20);

pub(crate) struct World {
    pub(crate) now: Time,
    pub(crate) core: Core,
    pub(crate) cloud: Cloud,
    pub(crate) config: PoolConfig,
    pub(crate) limits: Limits,
    pub(crate) node: NodeFacts,
    /// Durable records, and those that a crash would lose.
    pub(crate) file: Vec<Record>,
    unsynced: Vec<Record>,
    pub(crate) boot: u32,
    seed: u64,
    /// Events on their way to the core.
    inbox: BTreeMap<(Time, u64), Event>,
    sequence: u64,
    next_pass: Time,
    /// Addresses with routes and rules in the kernel, and their pods.
    pub(crate) kernel: BTreeMap<IpAddr, PodKey>,
    /// The repair pass cannot remove anything while this is set.
    pub(crate) kernel_stuck: bool,
    pub(crate) answers: BTreeMap<Ticket, Answer>,
    pub(crate) answered_at: BTreeMap<Ticket, Time>,
    asked: BTreeMap<Ticket, PodKey>,
    tickets: u64,
    pub(crate) notices: Vec<Notice>,
    /// The pods of `Effect::Forget`.
    pub(crate) forgotten: Vec<(PodKey, PodName)>,
    /// The assigned addresses of each key, until they are released or lapse.
    pub(crate) assigned: BTreeMap<PodKey, Vec<IpAddr>>,
    released_at: BTreeMap<IpAddr, Time>,
    /// Addresses that another program removed.
    pub(crate) stolen: BTreeSet<IpAddr>,
    /// The number of effects before the process dies.
    pub(crate) dies_after: Option<u32>,
    pub(crate) deaths: u32,
    /// Plugins build and confirm their interfaces.
    pub(crate) plugins_finish: bool,
    /// The times of the requests for a trunk.
    pub(crate) trunk_wishes: Vec<Time>,
    /// The number of questions to each witness.
    pub(crate) looks: BTreeMap<Witness, usize>,
    pub(crate) imds_is_down: bool,
    pub ec2_is_down: bool,
}

pub(crate) fn key(pod: u32) -> PodKey {
    PodKey::new("aws-cni", format!("sandbox{pod}"), "eth0").unwrap()
}

pub(crate) fn uid(pod: u32) -> String {
    format!("uid-{pod}")
}

pub(crate) fn pod(pod: u32) -> PodName {
    PodName { namespace: "default".into(), name: format!("web-{pod}") }
}

impl World {
    pub(crate) fn new(
        config: PoolConfig,
        enis: u16,
        ipv4_per_eni: u16,
        primary_addresses: u16,
    ) -> Self {
        let cloud = Cloud::new(enis, ipv4_per_eni, primary_addresses);
        let node = Self::node(&cloud);
        Self::start(config, Limits::one_card(enis, ipv4_per_eni), node, cloud)
    }

    /// The node that the cloud's primary ENI is attached to.
    pub(crate) fn node(cloud: &Cloud) -> NodeFacts {
        let instance = "node.k8s.amazonaws.com/instance_id".to_owned();
        NodeFacts {
            instance_id: "i-1".into(),
            primary_eni: cloud.primary(),
            vpc: "vpc-1".into(),
            zone: "zone-a".into(),
            subnet: "subnet-1".into(),
            subnet_cidr: Some("10.0.0.0/16".parse().unwrap()),
            subnet_cidr_v6: None,
            security_groups: vec!["sg-1".into()],
            description: "aws-K8S-i-1".into(),
            tags: BTreeMap::from([(instance, "i-1".to_owned())]),
        }
    }

    /// Starts the process in a prepared cloud.
    pub(crate) fn start(config: PoolConfig, limits: Limits, node: NodeFacts, cloud: Cloud) -> Self {
        let start = Start { boot_id: "boot-1".into(), seed: 1 };
        let now = Time(1_000_000);
        let restored = Checkpoint::default();
        let core = Core::new(config.clone(), node.clone(), limits.clone(), restored, start, now);
        let mut world = Self {
            now,
            core,
            cloud,
            config,
            limits,
            node,
            file: Vec::new(),
            unsynced: Vec::new(),
            boot: 1,
            seed: 1,
            inbox: BTreeMap::new(),
            sequence: 0,
            next_pass: now,
            kernel: BTreeMap::new(),
            kernel_stuck: false,
            answers: BTreeMap::new(),
            answered_at: BTreeMap::new(),
            asked: BTreeMap::new(),
            tickets: 0,
            notices: Vec::new(),
            forgotten: Vec::new(),
            assigned: BTreeMap::new(),
            released_at: BTreeMap::new(),
            stolen: BTreeSet::new(),
            dies_after: None,
            deaths: 0,
            plugins_finish: true,
            trunk_wishes: Vec::new(),
            looks: BTreeMap::new(),
            imds_is_down: false,
            ec2_is_down: false,
        };
        world.send(Event::Tick);
        world
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.core.snapshot(self.now)
    }

    /// Passes an event to the core, and carries out its effects.
    pub(crate) fn send(&mut self, event: Event) {
        let effects = self.core.on_event(event, self.now);
        for effect in effects {
            if self.dies_after == Some(0) {
                self.dies_after = None;
                self.deaths += 1;
                self.restart();
                return;
            }
            self.dies_after = self.dies_after.map(|left| left - 1);
            self.carry_out(effect);
        }
        self.check();
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::Persist(record) => self.unsynced.push(record),
            Effect::Reply { ticket, answer } => {
                self.sync();
                self.replied(ticket, answer);
            }
            Effect::Cloud { op, call } => {
                self.sync();
                self.judge_giving_back(&call);
                let result = self.cloud.call(&call, self.now);
                self.later(ROUND_TRIP, Event::CloudDone { op, result });
            }
            Effect::Look { witness } => {
                *self.looks.entry(witness).or_default() += 1;
                let down = match witness {
                    Witness::Imds => self.imds_is_down,
                    Witness::Ec2 => self.ec2_is_down,
                };
                let event = if down {
                    let code = "Timeout".to_owned();
                    let message = "the test's silence".to_owned();
                    let fault = CloudFault { code, message, remedy: Remedy::Unknown };
                    Event::LookFailed { witness, fault }
                } else {
                    let enis = self.cloud.look(witness, self.now);
                    Event::Sighting { witness, started: self.now, enis }
                };
                self.later(ROUND_TRIP, event);
            }
            Effect::AskForTrunk => self.trunk_wishes.push(self.now),
            Effect::NodeChanged => self.next_pass = self.next_pass.min(self.now + PASS_SOON),
            Effect::Forget { key, pod } => self.forgotten.push((key, pod)),
            Effect::Report(notice) => self.notices.push(notice),
        }
    }

    pub(crate) fn sync(&mut self) {
        self.file.append(&mut self.unsynced);
    }

    fn later(&mut self, span: Span, event: Event) {
        self.sequence += 1;
        self.inbox.insert((self.now + span, self.sequence), event);
    }

    fn replied(&mut self, ticket: Ticket, answer: Answer) {
        assert!(
            self.answers.insert(ticket, answer.clone()).is_none(),
            "answered twice: {ticket:?}"
        );
        self.answered_at.insert(ticket, self.now);
        let Some(key) = self.asked.get(&ticket).cloned() else { return };
        if let Answer::ReservedBranch(_) = &answer
            && self.plugins_finish
        {
            let ticket = self.ticket();
            let (key, host_interface) = (key.clone(), "vlan123".into());
            self.later(BUILD, Event::Confirm { ticket, key, host_interface });
        }
        if let Answer::Reserved { addresses } = answer {
            let addresses: Vec<IpAddr> = addresses.iter().map(|held| held.address).collect();
            match self.assigned.insert(key.clone(), addresses.clone()) {
                Some(before) => assert_eq!(before, addresses, "{key} got other addresses"),
                None => addresses.iter().for_each(|it| self.judge_handing_out(&key, *it)),
            }
            if self.plugins_finish {
                self.kernel.extend(addresses.into_iter().map(|address| (address, key.clone())));
                let ticket = self.ticket();
                let event = Event::Confirm { ticket, key, host_interface: "eni123".into() };
                self.later(BUILD, event);
            }
        }
    }

    fn ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket(self.tickets)
    }

    pub(crate) fn reserve(&mut self, number: u32) -> Ticket {
        self.reserve_for(number, Span::seconds(45))
    }

    pub(crate) fn reserve_for(&mut self, number: u32, patience: Span) -> Ticket {
        self.reserve_from(number, Cards::First, false, patience)
    }

    pub(crate) fn reserve_from(
        &mut self,
        number: u32,
        cards: Cards,
        branch: bool,
        patience: Span,
    ) -> Ticket {
        let ticket = self.ticket();
        self.asked.insert(ticket, key(number));
        let (key, pod, give_up_at) = (key(number), pod(number), self.now + patience);
        let branch = branch.then(|| uid(number));
        self.send(Event::Reserve { ticket, key, pod, cards, branch, give_up_at });
        ticket
    }

    /// Reserves for a pod of this namespace and name.
    pub(crate) fn reserve_named(
        &mut self,
        number: u32,
        (namespace, name): (&str, &str),
        cards: Cards,
    ) -> Ticket {
        let ticket = self.ticket();
        self.asked.insert(ticket, key(number));
        let pod = PodName { namespace: namespace.to_owned(), name: name.to_owned() };
        let (key, give_up_at) = (key(number), self.now + Span::seconds(45));
        self.send(Event::Reserve { ticket, key, pod, cards, branch: None, give_up_at });
        ticket
    }

    pub(crate) fn confirm(&mut self, number: u32) -> Ticket {
        let ticket = self.ticket();
        let key = key(number);
        self.send(Event::Confirm { ticket, key, host_interface: "eni123".into() });
        ticket
    }

    /// A DEL: release first, then the kernel.
    pub(crate) fn release(&mut self, number: u32) -> Ticket {
        let ticket = self.release_only(number);
        if self.answers.contains_key(&ticket) {
            self.kernel.retain(|_, holder| *holder != key(number));
        }
        ticket
    }

    /// A DEL that has not changed the kernel yet.
    pub(crate) fn release_only(&mut self, number: u32) -> Ticket {
        let ticket = self.ticket();
        let cause = ReleaseCause::PodDeleted;
        self.send(Event::Release { ticket, key: key(number), cause });
        ticket
    }

    pub(crate) fn reserve_all(&mut self, pods: impl IntoIterator<Item = u32>) -> Vec<Ticket> {
        pods.into_iter().map(|pod| self.reserve(pod)).collect()
    }

    /// Advances the time. Everything occurs when it is due.
    pub(crate) fn pass(&mut self, span: Span) {
        let end = self.now + span;
        let mut idle_ticks = 0;
        loop {
            let inbox = self.inbox.first_key_value().map(|((at, _), _)| *at);
            let next = [inbox, self.core.wake_at(), Some(self.next_pass)];
            let next = next.into_iter().flatten().min().unwrap().max(self.now);
            if next > end {
                self.now = end;
                return;
            }
            idle_ticks = if next == self.now { idle_ticks + 1 } else { 0 };
            assert!(idle_ticks < 2000, "the core wakes without end: {:?}", self.snapshot().waiting);
            self.now = next;
            if inbox.is_some_and(|at| at <= next) {
                let (_, event) = self.inbox.pop_first().unwrap();
                self.send(event);
            } else if self.next_pass <= next {
                self.repair_pass();
            } else {
                self.send(Event::Tick);
            }
        }
    }

    /// Observes the kernel, plans and applies, then reports the observation.
    fn repair_pass(&mut self) {
        self.next_pass = self.now + PASS_INTERVAL;
        self.cloud.progress(self.now);
        let in_use: BTreeSet<IpAddr> = self.kernel.keys().copied().collect();
        let snapshot = self.snapshot();
        if !self.kernel_stuck {
            let of_pod = |pod: &PodView| {
                let key = pod.key.clone();
                let held = pod.addresses.clone();
                held.into_iter().map(move |held| (held.address, key.clone()))
            };
            let keep: BTreeSet<_> = snapshot.pods.iter().flat_map(of_pod).collect();
            self.kernel.retain(|address, holder| keep.contains(&(*address, holder.clone())));
        }
        let deaths = self.deaths;
        self.send(Event::KernelSeen { started: self.now, in_use });
        for view in snapshot.enis.iter().filter(|view| view.managed && !view.leaving) {
            let there = self.cloud.enis.get(&view.id).is_some_and(|eni| {
                let attachment = eni.seen.attachment.as_ref();
                attachment.is_some_and(|a| a.state == AttachmentState::Attached)
            });
            if self.deaths == deaths && there != view.ready {
                let eni = view.id.clone();
                let why = "no link has its MAC address".to_owned();
                self.send(if there {
                    Event::EniReady { eni }
                } else {
                    Event::EniNotReady { eni, why }
                });
            }
            if !there && self.deaths == deaths {
                // The next pass looks for a missing link soon.
                self.next_pass = self.next_pass.min(self.now + Span::seconds(1));
            }
        }
    }

    /// The process dies and starts again. Records that were not synced and answers are lost.
    pub(crate) fn restart(&mut self) {
        self.unsynced.clear();
        self.inbox.clear();
        self.seed += 1;
        self.asked.clear();
        let restored = Checkpoint::replay(self.file.clone());
        assert_eq!(Checkpoint::replay(restored.compact()), restored, "compacting loses something");
        let start = Start { boot_id: format!("boot-{}", self.boot), seed: self.seed };
        let (config, node) = (self.config.clone(), self.node.clone());
        self.core = Core::new(config, node, self.limits.clone(), restored, start, self.now);
        self.next_pass = self.now;
        self.send(Event::Tick);
    }

    /// The node reboots, without its kernel state and pods.
    pub(crate) fn reboot(&mut self) {
        self.boot += 1;
        self.kernel.clear();
        for address in std::mem::take(&mut self.assigned).into_values().flatten() {
            self.released_at.insert(address, self.now);
        }
        self.restart();
    }

    pub(crate) fn address_of(&self, number: u32) -> Option<IpAddr> {
        self.core.inspect(&key(number)).map(|pod| pod.addresses[0].address)
    }

    pub(crate) fn eni_of(&self, number: u32) -> EniId {
        self.core.inspect(&key(number)).unwrap().addresses[0].source.eni().unwrap().clone()
    }

    pub(crate) fn refused(&self, ticket: Ticket) -> Option<RefusalReason> {
        match self.answers.get(&ticket) {
            Some(Answer::Refused(refusal)) => Some(refusal.reason),
            _ => None,
        }
    }

    pub(crate) fn served(&self, ticket: Ticket) -> bool {
        matches!(self.answers.get(&ticket), Some(Answer::Reserved { .. }))
    }

    pub(crate) fn count_of(&self, topic: Topic) -> usize {
        self.notices.iter().filter(|notice| notice.topic == topic).count()
    }

    /// The pool's blocks that are prefixes.
    pub(crate) fn prefixes(&self) -> usize {
        let attached = self.cloud.attached();
        let blocks = attached.iter().flat_map(|eni| &eni.seen.blocks);
        blocks.filter(|block| block.prefix_len() < block.max_prefix_len()).count()
    }

    /// Restarts the process with other settings.
    pub(crate) fn restart_with(&mut self, config: PoolConfig) {
        self.config = config;
        self.restart();
    }

    /// Blocks per attached ENI, most first.
    pub(crate) fn split(&self) -> Vec<usize> {
        let attached = self.cloud.attached();
        let mut split: Vec<usize> = attached.iter().map(|eni| eni.seen.blocks.len()).collect();
        split.sort_unstable_by(|a, b| b.cmp(a));
        split
    }
}
