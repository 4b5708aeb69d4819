//! One node and its environment: a clock and a queue of events.

use crate::{
    branches::Branches,
    checkpoint::Disk,
    daemon::{Daemon, Sender},
    ec2::Ec2,
    host::Host,
    judge::{Judge, Law, Violation},
    kubelet::{Kubelet, SandboxId},
    plan::{Incident, Mode, Plan, Setup},
    planted::Planted,
    random::draw,
    repair::PassStage,
    trace::Trace,
};
use config_model::{PodKey, PodName, Span, Time};
use config_settings::Settings;
use ipamd_core::{Answer, CloudCall, CloudFault, ClusterFact, Event, OpId, Ticket, Witness};
use ipnet::IpNet;
use lab_cloud::FaultId;
use std::collections::{BTreeMap, BTreeSet};

/// The node's first start; the cloud is older.
pub(crate) const DAY_ONE: Time = Time(3_600_000);

/// An event in the queue, which occurs at its time.
#[derive(Debug)]
pub(crate) enum DueEvent {
    /// A step of the plan.
    Step(usize),
    /// The end of a fault.
    WeatherEnds(Option<FaultId>),
    /// The kernel accepts changes again.
    KernelYields,
    /// The disk is fast again.
    DiskRecovers,
    /// The daemon's process starts.
    Start,
    /// The daemon with this number knows the node and creates its core.
    Begin(u32),
    /// The daemon with this number reaches the API server.
    Cluster(u32),
    /// A write of the daemon with this number is done.
    Written(u32),
    /// A request arrives at EC2.
    Arrives(Box<Request>),
    /// An event reaches the daemon with this number.
    Delivery(u32, Box<Event>),
    /// IMDS or EC2 is observed.
    Looks(u32, Witness, Time, Option<Span>),
    /// A step of a repair pass of the daemon with this number.
    Pass(u32, PassStage),
    /// An answer reaches its receiver.
    AnswerArrives(Box<(Sender, Answer)>),
    /// A connection breaks.
    Lost(Sender),
    /// A plugin's ADD continues.
    Add(SandboxId, AddStep),
    /// A DEL starts.
    Del(SandboxId),
    /// A plugin's DEL continues.
    DelOn(u32, DelStep),
    /// The runtime removes a sandbox's namespace.
    NamespaceGoes(SandboxId),
    /// The kubelet starts a pod, or tries again.
    Sync(u16),
    /// The deadline of a request.
    Overdue(u32, Ticket),
    /// The resource controller runs a pass.
    Controller,
    /// The resource controller works again.
    ControllerBack,
    /// The object of a terminating pod goes.
    PodGone(Box<PodName>),
    /// The watch of the daemon with this number announces a branch.
    Announced(u32, Box<ClusterFact>),
}

/// A call on its way.
#[derive(Debug)]
pub(crate) struct Request {
    pub(crate) life: u32,
    pub(crate) op: OpId,
    pub(crate) call: CloudCall,
    pub(crate) sent: Time,
    pub(crate) back: Span,
}

/// The next step of a plugin's ADD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddStep {
    /// Connects to the daemon.
    Dial,
    /// Creates the links.
    Link,
    /// Creates routes and rules.
    Connect,
    /// The plugin is killed.
    Dies,
}

/// The next step of a plugin's DEL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DelStep {
    /// The daemon did not answer in time.
    GivesUp,
    /// The daemon has answered; the kernel is next.
    Kernel(Option<Vec<std::net::IpAddr>>),
}

/// One node in one run.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) setup: Setup,
    steps: Vec<crate::plan::Step>,
    pub(crate) planted: Option<Planted>,
    pub(crate) now: Time,
    queue: BTreeMap<(Time, u64), DueEvent>,
    sequence: u64,
    pub(crate) ec2: Ec2,
    pub(crate) host: Host,
    pub(crate) disk: Disk,
    pub(crate) disk_write: Option<Span>,
    pub(crate) daemon: Option<Daemon>,
    pub(crate) lives: u32,
    pub(crate) kubelet: Kubelet,
    pub(crate) branches: Branches,
    /// Tombstones of DELs without a daemon, with their times.
    pub(crate) tombstones: BTreeMap<PodKey, Time>,
    /// ENIs of other programs.
    pub(crate) foreign: BTreeSet<config_model::EniId>,
    pub(crate) settings: Settings,
    pub(crate) schedulable: bool,
    /// The node's current pod CIDR.
    pub(crate) pod_cidr: Option<IpNet>,
    /// Client tokens that EC2 has received.
    pub(crate) tokens_sent: BTreeSet<String>,
    /// The time since which the daemon could know the node's schedulability.
    pub(crate) schedulable_since: Time,
    pub(crate) judge: Judge,
    pub(crate) trace: Trace,
    draws: u64,
    /// True after the last incident.
    pub(crate) quiet: bool,
    /// The number of current faults.
    pub(crate) spells: u32,
    happened: u64,
}

impl World {
    pub(crate) fn new(plan: &Plan, planted: Option<Planted>, trace: Trace) -> Result<Self, String> {
        let setup = plan.setup.clone();
        let pod_cidr = setup.mode.pod_cidr();
        let mut settings = Settings::defaults();
        if setup.mode == Mode::Ipv6 {
            settings.family = config_settings::Family::V6;
        }
        let mut ec2 = Ec2::new(&setup, plan.seed, DAY_ONE).map_err(|error| error.to_string())?;
        if !setup.mode.provisions() {
            let kind = lab_cloud::InstanceType::named(setup.instance_type);
            ec2.provide(DAY_ONE, kind.map_or(1, |kind| kind.ipv4_per_interface - 1));
        }
        let family = ipamd_node::desired::family(&settings);
        let lifetime = ipamd_core::PoolConfig::default().reservation_lifetime;
        let judge = Judge::new(setup.cooldown, lifetime, DAY_ONE);
        let mut world = Self {
            seed: plan.seed,
            setup,
            steps: plan.steps.clone(),
            planted,
            now: DAY_ONE,
            queue: BTreeMap::new(),
            sequence: 0,
            ec2,
            host: Host::boot(1, family, DAY_ONE),
            disk: Disk::default(),
            disk_write: None,
            daemon: None,
            lives: 0,
            kubelet: Kubelet::default(),
            branches: Branches::default(),
            tombstones: BTreeMap::new(),
            foreign: BTreeSet::new(),
            settings,
            schedulable: true,
            pod_cidr,
            tokens_sent: BTreeSet::new(),
            schedulable_since: DAY_ONE,
            judge,
            trace,
            draws: 0,
            quiet: false,
            spells: 0,
            happened: 0,
        };
        for (number, step) in plan.steps.iter().enumerate() {
            world.at(DAY_ONE + step.at, DueEvent::Step(number));
        }
        world.at(DAY_ONE, DueEvent::Start);
        world.join();
        Ok(world)
    }

    /// A number for this purpose.
    pub(crate) fn draw(&mut self, purpose: &'static str, low: u64, high: u64) -> u64 {
        self.draws += 1;
        let reach = draw(self.seed, purpose, self.draws) % (high.saturating_sub(low) + 1);
        // Usually small, sometimes large.
        low + draw(self.seed, "reach", self.draws) % (reach + 1)
    }

    pub(crate) fn at(&mut self, at: Time, what: DueEvent) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), what);
    }

    pub(crate) fn after(&mut self, span: Span, what: DueEvent) {
        self.at(self.now + span, what);
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        self.trace.line(self.now, text);
    }

    /// Advances to that time, or to a broken law.
    pub(crate) fn run_until(&mut self, end: Time) {
        let mut at_once = 0_u32;
        while self.judge.broken.is_none() {
            let due = self.queue.first_key_value().map(|((at, _), _)| *at);
            let wake = self.wake_at();
            let cloud = self.ec2.cloud.next_change_at(self.now);
            let next = [due, wake, cloud].into_iter().flatten().min().map(|at| at.max(self.now));
            let Some(next) = next.filter(|next| *next <= end) else { break };
            at_once = if next == self.now { at_once + 1 } else { 0 };
            if at_once > AT_ONCE {
                let now = self.now;
                self.judge.report_violation(Law::NeverRests, now, || {
                    "too many events in one millisecond".to_owned()
                });
                break;
            }
            self.now = next;
            self.happened += 1;
            if due.is_some_and(|at| at <= next) {
                if let Some((_, what)) = self.queue.pop_first() {
                    self.happen(what);
                }
            } else if wake.is_some_and(|at| at <= next) {
                self.deliver(Event::Tick);
            }
            self.sync_links();
            self.judge_branches();
        }
        if self.judge.broken.is_none() {
            self.now = self.now.max(end);
        }
    }

    fn happen(&mut self, what: DueEvent) {
        match what {
            DueEvent::Step(number) => self.step(number),
            DueEvent::WeatherEnds(fault) => self.weather_ends(fault),
            DueEvent::KernelYields => {
                self.host.refuses = false;
                self.spell_ends();
            }
            DueEvent::DiskRecovers => {
                self.disk_write = None;
                self.spell_ends();
            }
            DueEvent::Start => self.start_daemon(),
            DueEvent::Begin(life) => self.begin(life),
            DueEvent::Cluster(life) => {
                if self.is_alive(life) {
                    self.deliver_cluster_facts();
                    self.list_branches(life);
                }
            }
            DueEvent::Written(life) => self.written(life),
            DueEvent::Arrives(request) => self.request_arrives(*request),
            DueEvent::Delivery(life, event) => {
                if self.is_alive(life) {
                    self.deliver(*event);
                }
            }
            DueEvent::Looks(life, witness, started, back) => {
                self.looks(life, witness, started, back);
            }
            DueEvent::Pass(life, stage) => {
                if self.is_alive(life) {
                    self.pass(stage);
                }
            }
            DueEvent::AnswerArrives(answered) => self.answered(answered.0, answered.1),
            DueEvent::Lost(sender) => self.lost(sender),
            DueEvent::Add(sandbox, step) => self.add(sandbox, step),
            DueEvent::Del(sandbox) => self.del(sandbox),
            DueEvent::DelOn(del, step) => self.del_on(del, step),
            DueEvent::NamespaceGoes(sandbox) => self.namespace_goes(sandbox),
            DueEvent::Sync(pod) => self.sync_pod(pod),
            DueEvent::Overdue(life, ticket) => self.overdue(life, ticket),
            DueEvent::Controller => self.controller_works(),
            DueEvent::ControllerBack => {
                self.branches.away = self.branches.away.saturating_sub(1);
            }
            DueEvent::PodGone(pod) => self.pod_object_goes(&pod),
            DueEvent::Announced(life, fact) => self.announced(life, *fact),
        }
    }

    fn step(&mut self, number: usize) {
        let Some(step) = self.steps.get(number) else { return };
        let incident: Incident = step.incident.clone();
        self.note(|| format!("** {incident:?}"));
        self.apply_incident(&incident);
    }

    /// Synchronizes links with the attached ENIs, and checks the limits.
    fn sync_links(&mut self) {
        let now = self.now;
        let enis = self.ec2.enis(now).to_vec();
        if self.host.plug(&enis) {
            self.note(|| {
                let names = enis.iter().map(|eni| {
                    let state = eni.attachment.as_ref().map(|a| a.status.as_str());
                    format!("{}({})", eni.id, state.unwrap_or("-"))
                });
                format!("links change: {}", names.collect::<Vec<_>>().join(" "))
            });
            self.judge_limits(&enis);
            self.kernel_changed();
        }
    }

    pub(crate) fn spell_begins(&mut self) {
        self.spells += 1;
        self.judge.extend_fault(self.now);
    }

    pub(crate) fn spell_ends(&mut self) {
        self.spells = self.spells.saturating_sub(1);
        self.judge.extend_fault(self.now);
    }

    pub(crate) fn fault(&self, code: &str, remedy: ipamd_core::Remedy) -> CloudFault {
        CloudFault { code: code.into(), message: "the weather".into(), remedy }
    }

    /// Returns the result and the last trace lines.
    pub(crate) fn finish(self) -> (Option<Violation>, Vec<String>, u64) {
        (self.judge.broken, self.trace.into_lines(), self.happened)
    }
}

/// The most events in one millisecond.
const AT_ONCE: u32 = 20_000;
