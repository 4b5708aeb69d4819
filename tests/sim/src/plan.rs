//! What befalls one node, decided before anything runs: so that it can be replayed with parts left
//! out.

mod life;
mod setup;

pub use setup::{Mode, Setup};

use crate::dice::Rng;
use config_model::Span;
use std::fmt;

/// A node and its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Where it comes from.
    pub seed: u64,
    /// The node.
    pub setup: Setup,
    /// What happens, in order of time.
    pub steps: Vec<Step>,
    /// When nothing happens any more, and all must come right.
    pub quiet_from: Span,
}

/// Something that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, counted from the node's first start.
    pub at: Span,
    /// What.
    pub deed: Deed,
}

/// What the kubelet, EC2, other tenants, the operator and bad luck do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Pods are to run.
    Start {
        /// The first one's number.
        first: u16,
        /// How many.
        count: u16,
        /// How far from one to the next.
        apart: Span,
        /// Where their plugins die, if they do.
        dies: Option<Death>,
    },
    /// Pods are to end.
    Delete {
        /// The first one's number.
        first: u16,
        /// How many.
        count: u16,
        /// When the DELs come, counted from now.
        dels: Vec<Span>,
    },
    /// A pod is replaced by one of the same name, as a StatefulSet does.
    Replace {
        /// The first one's number.
        first: u16,
        /// How many.
        count: u16,
        /// When the next one starts, counted from now.
        after: Span,
        /// When the DELs of the one before come, counted from now.
        dels: Vec<Span>,
    },
    /// EC2 or IMDS misbehaves for a while.
    Weather {
        /// How.
        how: Weather,
        /// How long.
        lasts: Span,
    },
    /// The daemon dies: at once, or after so many more effects.
    Kill {
        /// Effects carried out before.
        after: u32,
        /// How long until it is started again.
        down: Span,
    },
    /// The daemon is stopped with SIGTERM.
    Stop {
        /// How long until it is started again.
        down: Span,
    },
    /// The daemon is started anew with other settings.
    Reconfigure {
        /// Other warm targets.
        targets: setup::Targets,
        /// Whether prefixes are asked for from now on.
        prefixes: bool,
    },
    /// The node loses its power and boots again.
    Reboot {
        /// How long until the daemon is started.
        down: Span,
    },
    /// Somebody detaches an ENI.
    PullEni {
        /// Which of those that can be.
        nth: u16,
    },
    /// Somebody unassigns an address or prefix.
    TakeAddress {
        /// Which.
        nth: u16,
    },
    /// Somebody attaches an ENI of his own.
    ForeignEni {
        /// With so many addresses.
        addresses: u16,
    },
    /// Other tenants take addresses of the subnet: so many, in pieces of so many.
    TenantsCome {
        /// In hundredths of what is free.
        percent: u8,
        /// How many addresses one of their ENIs takes.
        piece: u16,
    },
    /// Other tenants free what they took.
    TenantsGo {
        /// In hundredths.
        percent: u8,
    },
    /// Other nodes call EC2 and empty the account's buckets.
    OthersCall {
        /// How often.
        calls: u16,
    },
    /// The kernel refuses to change routes and rules of some pods.
    KernelRefuses {
        /// How long.
        lasts: Span,
    },
    /// Somebody removes rules or routes of pods.
    KernelDrifts {
        /// Which, by place.
        nth: u16,
    },
    /// A write of the checkpoint takes long.
    DiskIsSlow {
        /// One write takes so long.
        write: Span,
        /// How long.
        lasts: Span,
    },
    /// Kubernetes says whether the node takes pods.
    Schedulable(bool),
    /// The resource controller does nothing.
    ControllerAway {
        /// How long.
        lasts: Span,
    },
}

/// Bad weather.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weather {
    /// Every nth call is throttled.
    Throttled {
        /// 1: every one.
        nth: u32,
    },
    /// Calls fail before they do anything.
    Failing {
        /// EC2's code.
        code: &'static str,
        /// Only this action; all if `None`.
        action: Option<lab_cloud::Action>,
    },
    /// Calls are carried out and their replies lost.
    RepliesLost {
        /// So many of them.
        times: u32,
    },
    /// Calls never arrive.
    CallsLost {
        /// In so many of a hundred cases.
        percent: u8,
    },
    /// Calls take long.
    Slow {
        /// So long.
        latency: Span,
    },
    /// Describe answers are old.
    ReadsLag {
        /// So old.
        lag: Span,
    },
    /// IMDS answers are old.
    ImdsLags {
        /// So old.
        lag: Span,
    },
    /// IMDS does not answer.
    ImdsSilent,
    /// Attachments that begin now stay `attaching`.
    AttachesHang,
}

/// Where a plugin is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// While it waits for the daemon's answer.
    Waiting,
    /// After the reservation, before it built anything.
    Reserved,
    /// Half-way through the building.
    Building,
    /// Before it confirms.
    Built,
    /// After it was confirmed, before it says so.
    Confirmed,
}

impl Plan {
    /// The plan of a seed; in this mode, or in one that the seed picks.
    pub fn of(seed: u64, mode: Option<Mode>) -> Self {
        let mut rng = Rng::new(seed, "setup");
        let drawn = rng.pick(Mode::DRAWN);
        let setup = Setup::draw(mode.unwrap_or(drawn), &mut rng);
        let (steps, quiet_from) = life::draw(&setup, seed);
        Self { seed, setup, steps, quiet_from }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>9.3} s  {:?}", self.at.0 as f64 / 1000.0, self.deed)
    }
}
