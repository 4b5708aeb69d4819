//! Facts worth a log line, a metric or an event.

use config_model::{PodName, Time};

/// How loud a notice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// Good to know.
    Info,
    /// Something is not as it should be; the core copes.
    Warning,
    /// Pods suffer, or a person must act.
    Error,
}

/// What a notice is about: a stable word for metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// An ENI or addresses came to the pool.
    PoolGrew,
    /// An ENI or addresses were given back.
    PoolShrank,
    /// A cloud call failed.
    CallFailed,
    /// A subnet has no free addresses.
    SubnetExhausted,
    /// A limit of the instance or the account is reached.
    LimitReached,
    /// An ENI was attached, but its link does not come.
    AttachStuck,
    /// An ENI that worked does not any more.
    EniNotReady,
    /// An ENI or addresses that we did not ask for were found and taken in.
    Adopted,
    /// A free address or ENI is no longer there, by two witnesses.
    Vanished,
    /// An address that a pod holds is no longer there, by two witnesses. It stays with the pod.
    AssignedVanished,
    /// A reservation was never confirmed.
    ReservationLapsed,
    /// An address cannot come free: the kernel still has routes or rules of it.
    KernelDirty,
    /// A Reserve was refused.
    ReserveRefused,
    /// A witness did not answer.
    WitnessSilent,
    /// EC2 throttled an action; it is called less often for a while.
    BudgetShrunk,
    /// The state of an earlier process was taken over.
    Restored,
    /// The node's ENIConfig is missing or cannot be used.
    EniConfigInvalid,
    /// A subnet has free addresses, but no whole prefix: single addresses are asked for meanwhile.
    SubnetFragmented,
    /// The node wants a trunk ENI and has none.
    TrunkMissing,
    /// A forgotten ENI was found: deleted, or left alone for want of certainty.
    LeakedEni,
    /// The security groups of an ENI were made those of the primary one.
    GroupsChanged,
    /// No subnet may be used for a new ENI.
    NoSubnet,
    /// The node is unschedulable: its pool stays as it is.
    Unschedulable,
    /// EC2 does not tell what the instance type allows: nothing is made.
    LimitsUnknown,
}

impl Topic {
    /// The word for metrics labels and log fields.
    pub fn name(self) -> &'static str {
        match self {
            Self::PoolGrew => "pool_grew",
            Self::PoolShrank => "pool_shrank",
            Self::CallFailed => "call_failed",
            Self::SubnetExhausted => "subnet_exhausted",
            Self::LimitReached => "limit_reached",
            Self::AttachStuck => "attach_stuck",
            Self::EniNotReady => "eni_not_ready",
            Self::Adopted => "adopted",
            Self::Vanished => "vanished",
            Self::AssignedVanished => "assigned_vanished",
            Self::ReservationLapsed => "reservation_lapsed",
            Self::KernelDirty => "kernel_dirty",
            Self::ReserveRefused => "reserve_refused",
            Self::WitnessSilent => "witness_silent",
            Self::BudgetShrunk => "budget_shrunk",
            Self::Restored => "restored",
            Self::EniConfigInvalid => "eni_config_invalid",
            Self::SubnetFragmented => "subnet_fragmented",
            Self::TrunkMissing => "trunk_missing",
            Self::LeakedEni => "leaked_eni",
            Self::GroupsChanged => "groups_changed",
            Self::NoSubnet => "no_subnet",
            Self::Unschedulable => "unschedulable",
            Self::LimitsUnknown => "limits_unknown",
        }
    }
}

/// A fact: about what, what it is, and what a person can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// How loud.
    pub severity: Severity,
    /// The kind.
    pub topic: Topic,
    /// The object: an ENI, a subnet, an address, a pod.
    pub object: String,
    /// The pod that it should be told of, if it is one's.
    pub pod: Option<PodName>,
    /// What happened, with its cause.
    pub cause: String,
    /// What a person can do; empty if nothing need be done.
    pub next_step: String,
}

/// Something the planner would do, and why it does not do it now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The kind of what is in the way.
    pub obstacle: Obstacle,
    /// What would be done, or to what.
    pub what: String,
    /// Why not now.
    pub why: String,
    /// When it is tried again, if that is a matter of time.
    pub until: Option<Time>,
    /// What a person can do.
    pub next_step: String,
}

/// What keeps the planner from going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// A subnet has no free addresses.
    SubnetFull,
    /// The node has all ENIs that it may have, and they are full.
    EniLimit,
    /// The node runs no more pods.
    MaxPods,
    /// There is no place for a new ENI.
    NoPlace,
    /// What EC2 has to tell of the instance type is not known.
    LimitsUnknown,
    /// The node is cordoned, and its pool stays as it is.
    Unschedulable,
    /// The settings leave addresses to somebody else.
    NotOurs,
    /// Attached ENIs do not get ready.
    AttachStuck,
    /// Nothing but time: a call under way, a budget, a look.
    Time,
}
