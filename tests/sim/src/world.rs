//! One node and all that surrounds it: a clock, a queue, and what happens when.

use crate::{
    branches::Branches,
    checkpoint::Disk,
    daemon::{Asker, Daemon},
    dice::draw,
    ec2::Ec2,
    host::Host,
    judge::{Judge, Law, Violation},
    kubelet::{Kubelet, SandboxId},
    plan::{Deed, Mode, Plan, Setup},
    planted::Planted,
    repair::PassStage,
    trace::Trace,
};
use config_model::{PodKey, PodName, Span, Time};
use config_settings::Settings;
use ipamd_core::{Answer, CloudCall, CloudFault, ClusterFact, Event, OpId, Ticket, Witness};
use lab_cloud::FaultId;
use std::collections::{BTreeMap, BTreeSet};

/// When the node first starts; the cloud is older.
pub(crate) const DAY_ONE: Time = Time(3_600_000);

/// Something that is due.
#[derive(Debug)]
pub(crate) enum Happening {
    /// A step of the plan.
    Step(usize),
    /// A spell of weather is over.
    WeatherEnds(Option<FaultId>),
    /// The kernel does as it is told again.
    KernelYields,
    /// The disk is quick again.
    DiskRecovers,
    /// The daemon's process is started.
    Start,
    /// The daemon with this number has all it needs to begin.
    Begin(u32),
    /// The daemon with this number reaches the API server.
    Cluster(u32),
    /// A write of the daemon with this number is done.
    Written(u32),
    /// A request to EC2 arrives.
    Arrives(Box<Request>),
    /// A word reaches the daemon with this number.
    Told(u32, Box<Event>),
    /// A look at IMDS or EC2 is made.
    Looks(u32, Witness, Time, Option<Span>),
    /// A step of a repair pass of the daemon with this number.
    Pass(u32, PassStage),
    /// An answer reaches who asked.
    Heard(Box<(Asker, Answer)>),
    /// A connection breaks.
    Lost(Asker),
    /// A plugin's ADD goes on.
    Add(SandboxId, AddStep),
    /// A DEL begins.
    Del(SandboxId),
    /// A plugin's DEL goes on.
    DelOn(u32, DelStep),
    /// The runtime removes a sandbox's namespace.
    NamespaceGoes(SandboxId),
    /// The kubelet starts a pod, or tries again.
    Sync(u16),
    /// A request must have been answered by now.
    Overdue(u32, Ticket),
    /// The resource controller looks at the cluster.
    Controller,
    /// The resource controller may work again.
    ControllerBack,
    /// The object of a pod that was asked to end goes.
    PodGone(Box<PodName>),
    /// The watch of the daemon with this number tells of a branch.
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

/// Where a plugin's ADD goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddStep {
    /// It looks for the daemon.
    Dial,
    /// It makes the links.
    Link,
    /// It makes routes and rules.
    Connect,
    /// It is killed.
    Dies,
}

/// Where a plugin's DEL goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum DelStep {
    /// The daemon did not answer in time.
    GivesUp,
    /// The daemon has told; the kernel is next.
    Kernel(Option<Vec<std::net::IpAddr>>),
}

/// One node in one run.
pub(crate) struct World {
    pub(crate) seed: u64,
    pub(crate) setup: Setup,
    steps: Vec<crate::plan::Step>,
    pub(crate) planted: Option<Planted>,
    pub(crate) now: Time,
    queue: BTreeMap<(Time, u64), Happening>,
    sequence: u64,
    pub(crate) ec2: Ec2,
    pub(crate) host: Host,
    pub(crate) disk: Disk,
    pub(crate) disk_write: Option<Span>,
    pub(crate) daemon: Option<Daemon>,
    pub(crate) lives: u32,
    pub(crate) kubelet: Kubelet,
    pub(crate) branches: Branches,
    /// Words that DELs left without the daemon, and when.
    pub(crate) tombstones: BTreeMap<PodKey, Time>,
    /// ENIs that strangers attached.
    pub(crate) foreign: BTreeSet<config_model::EniId>,
    pub(crate) settings: Settings,
    pub(crate) schedulable: bool,
    /// Client tokens that EC2 was asked with.
    pub(crate) tokens_sent: BTreeSet<String>,
    /// Since when the daemon could know.
    pub(crate) told_schedulable: Time,
    pub(crate) judge: Judge,
    pub(crate) trace: Trace,
    draws: u64,
    /// Nothing befalls the node any more.
    pub(crate) quiet: bool,
    /// Things that are out of order now.
    pub(crate) spells: u32,
    happened: u64,
}

impl World {
    pub(crate) fn new(plan: &Plan, planted: Option<Planted>, trace: Trace) -> Result<Self, String> {
        let setup = plan.setup.clone();
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
            tokens_sent: BTreeSet::new(),
            told_schedulable: DAY_ONE,
            judge,
            trace,
            draws: 0,
            quiet: false,
            spells: 0,
            happened: 0,
        };
        for (number, step) in plan.steps.iter().enumerate() {
            world.at(DAY_ONE + step.at, Happening::Step(number));
        }
        world.at(DAY_ONE, Happening::Start);
        world.join();
        Ok(world)
    }

    /// A number for this purpose.
    pub(crate) fn draw(&mut self, purpose: &'static str, low: u64, high: u64) -> u64 {
        self.draws += 1;
        let reach = draw(self.seed, purpose, self.draws) % (high.saturating_sub(low) + 1);
        // Mostly small, now and then large.
        low + draw(self.seed, "reach", self.draws) % (reach + 1)
    }

    pub(crate) fn at(&mut self, at: Time, what: Happening) {
        self.sequence += 1;
        self.queue.insert((at.max(self.now), self.sequence), what);
    }

    pub(crate) fn after(&mut self, span: Span, what: Happening) {
        self.at(self.now + span, what);
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        self.trace.line(self.now, text);
    }

    /// Lets time pass, until then or until a law is broken.
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
                self.judge.accuse(Law::NeverRests, now, || "nothing comes to an end".to_owned());
                break;
            }
            self.now = next;
            self.happened += 1;
            if due.is_some_and(|at| at <= next) {
                if let Some((_, what)) = self.queue.pop_first() {
                    self.happen(what);
                }
            } else if wake.is_some_and(|at| at <= next) {
                self.tell(Event::Tick);
            }
            self.look_at_the_cloud();
            self.judge_branches();
        }
        if self.judge.broken.is_none() {
            self.now = self.now.max(end);
        }
    }

    fn happen(&mut self, what: Happening) {
        match what {
            Happening::Step(number) => self.step(number),
            Happening::WeatherEnds(fault) => self.weather_ends(fault),
            Happening::KernelYields => {
                self.host.refuses = false;
                self.spell_ends();
            }
            Happening::DiskRecovers => {
                self.disk_write = None;
                self.spell_ends();
            }
            Happening::Start => self.start_daemon(),
            Happening::Begin(life) => self.begin(life),
            Happening::Cluster(life) => {
                if self.is_alive(life) {
                    self.tell_of_cluster();
                    self.list_branches(life);
                }
            }
            Happening::Written(life) => self.written(life),
            Happening::Arrives(request) => self.request_arrives(*request),
            Happening::Told(life, event) => {
                if self.is_alive(life) {
                    self.tell(*event);
                }
            }
            Happening::Looks(life, witness, started, back) => {
                self.looks(life, witness, started, back);
            }
            Happening::Pass(life, stage) => {
                if self.is_alive(life) {
                    self.pass(stage);
                }
            }
            Happening::Heard(heard) => self.heard(heard.0, heard.1),
            Happening::Lost(asker) => self.lost(asker),
            Happening::Add(sandbox, step) => self.add(sandbox, step),
            Happening::Del(sandbox) => self.del(sandbox),
            Happening::DelOn(del, step) => self.del_on(del, step),
            Happening::NamespaceGoes(sandbox) => self.namespace_goes(sandbox),
            Happening::Sync(pod) => self.sync_pod(pod),
            Happening::Overdue(life, ticket) => self.overdue(life, ticket),
            Happening::Controller => self.controller_works(),
            Happening::ControllerBack => {
                self.branches.away = self.branches.away.saturating_sub(1);
            }
            Happening::PodGone(pod) => self.pod_object_goes(&pod),
            Happening::Announced(life, fact) => self.announced(life, *fact),
        }
    }

    fn step(&mut self, number: usize) {
        let Some(step) = self.steps.get(number) else { return };
        let deed: Deed = step.deed.clone();
        self.note(|| format!("** {deed:?}"));
        self.do_deed(&deed);
    }

    /// ENIs come and go, and with them links; nothing ever exceeds the limits.
    fn look_at_the_cloud(&mut self) {
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
        self.judge.trouble(self.now);
    }

    pub(crate) fn spell_ends(&mut self) {
        self.spells = self.spells.saturating_sub(1);
        self.judge.trouble(self.now);
    }

    pub(crate) fn fault(&self, code: &str, remedy: ipamd_core::Remedy) -> CloudFault {
        CloudFault { code: code.into(), message: "the weather".into(), remedy }
    }

    /// How the run ended, and the last that happened.
    pub(crate) fn finish(self) -> (Option<Violation>, Vec<String>, u64) {
        (self.judge.broken, self.trace.into_lines(), self.happened)
    }
}

/// More than so many things do not happen in one millisecond.
const AT_ONCE: u32 = 20_000;
