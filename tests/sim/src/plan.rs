//! The plan of a life, complete before the run, so that it can be replayed with parts left out.

mod life;
mod setup;

pub use setup::{Mode, Setup};

use crate::random::Rng;
use config_model::Span;
use std::fmt;

/// A node and its life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    pub seed: u64,
    pub setup: Setup,
    /// In order of time.
    pub steps: Vec<Step>,
    /// The time after which no incident occurs and every property must be reached.
    pub quiet_from: Span,
}

/// An incident at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Relative to the node's first start.
    pub at: Span,
    pub incident: Incident,
}

/// An incident caused by the kubelet, EC2, other tenants, the operator or a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incident {
    /// Pods start.
    Start {
        /// The number of the first pod.
        first: u16,
        count: u16,
        /// The interval between two pods.
        apart: Span,
        /// The point at which their plugins die, if they do.
        dies: Option<Death>,
    },
    /// Pods end.
    Delete {
        /// The number of the first pod.
        first: u16,
        count: u16,
        /// The times of the DELs, from now.
        dels: Vec<Span>,
    },
    /// Pods are replaced by pods of the same name, as in a StatefulSet.
    Replace {
        /// The number of the first pod.
        first: u16,
        count: u16,
        /// The start of the next pod, from now.
        after: Span,
        /// The times of the DELs of the previous pod, from now.
        dels: Vec<Span>,
    },
    /// EC2 or IMDS has a fault for a while.
    Weather { how: Weather, lasts: Span },
    /// The daemon dies, at once or after a number of effects.
    Kill {
        /// The number of effects before that.
        after: u32,
        /// The time until the next start.
        down: Span,
    },
    /// The daemon stops on SIGTERM.
    Stop {
        /// The time until the next start.
        down: Span,
    },
    /// The daemon restarts with other settings.
    Reconfigure {
        targets: setup::Targets,
        /// True if prefixes are requested from now on.
        prefixes: bool,
    },
    /// The node loses its power and boots again.
    Reboot {
        /// The time until the daemon starts.
        down: Span,
    },
    /// Another program detaches an ENI.
    PullEni {
        /// The index among the possible ones.
        nth: u16,
    },
    /// Another program unassigns an address or a prefix.
    TakeAddress {
        /// The index among the possible ones.
        nth: u16,
    },
    /// Another program attaches an ENI of its own.
    ForeignEni {
        /// The number of its addresses.
        addresses: u16,
    },
    /// Other tenants take addresses of the subnet.
    TenantsCome {
        /// Percentage of the free addresses.
        percent: u8,
        /// The number of addresses per ENI of theirs.
        piece: u16,
    },
    /// Other tenants free their addresses.
    TenantsGo {
        /// Percentage of them.
        percent: u8,
    },
    /// Other nodes call EC2 and exhaust the account's limits.
    OthersCall { calls: u16 },
    /// The kernel refuses changes of some pods' routes and rules.
    KernelRefuses { lasts: Span },
    /// Another program removes rules or routes of pods.
    KernelDrifts {
        /// The index among the possible ones.
        nth: u16,
    },
    /// Writes of the checkpoint are slow.
    DiskIsSlow {
        /// The time of one write.
        write: Span,
        lasts: Span,
    },
    /// The node becomes schedulable or unschedulable.
    Schedulable(bool),
    /// The node gets or loses its pod CIDR.
    NodeCidr(bool),
    /// The resource controller stops for a while.
    ControllerAway { lasts: Span },
}

/// A fault of EC2 or IMDS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Weather {
    /// EC2 throttles every nth call.
    Throttled {
        /// 1 means every call.
        nth: u32,
    },
    /// Calls fail without effect.
    Failing {
        /// EC2's code.
        code: &'static str,
        /// The only affected action; `None` means all.
        action: Option<lab_cloud::Action>,
    },
    /// Calls take effect, and their replies are lost.
    RepliesLost {
        /// The number of lost replies.
        times: u32,
    },
    /// Calls never arrive.
    CallsLost {
        /// The percentage of them.
        percent: u8,
    },
    /// Calls are slow.
    Slow { latency: Span },
    /// Describe answers are old.
    ReadsLag {
        /// Their age.
        lag: Span,
    },
    /// IMDS answers are old.
    ImdsLags {
        /// Their age.
        lag: Span,
    },
    /// IMDS does not answer.
    ImdsSilent,
    /// New attachments stay `attaching`.
    AttachesHang,
}

/// The point at which a plugin is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Death {
    /// While it waits for the daemon's answer.
    Waiting,
    /// After the reservation, before it built anything.
    Reserved,
    /// In the middle of the building.
    Building,
    /// Before it confirms.
    Built,
    /// After the confirmation, before its output.
    Confirmed,
}

impl Plan {
    /// The plan of a seed, in this mode or in one that the seed selects.
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
        write!(f, "{:>9.3} s  {:?}", self.at.0 as f64 / 1000.0, self.incident)
    }
}
