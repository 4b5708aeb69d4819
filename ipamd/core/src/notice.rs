//! Facts for logs, metrics and events.

use config_model::{PodName, Time};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// No action needed.
    Info,
    /// A fault that the core handles itself.
    Warning,
    /// Pods are affected, or a person must act.
    Error,
}

/// The kind of a notice: a stable name for metrics and tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Topic {
    /// The pool got an ENI or addresses.
    PoolGrew,
    /// An ENI or addresses were returned.
    PoolShrank,
    /// A cloud call failed.
    CallFailed,
    /// A subnet has no free addresses.
    SubnetExhausted,
    /// A limit of the instance or the account is reached.
    LimitReached,
    /// An ENI was attached, but its link does not appear.
    AttachStuck,
    /// An ENI that was ready no longer is.
    EniNotReady,
    /// An ENI or addresses that were not requested were found and added to the book.
    Adopted,
    /// Two witnesses lack a free address or an ENI.
    Vanished,
    /// Two witnesses lack an assigned address. The pod keeps it.
    AssignedVanished,
    /// A reservation was never confirmed.
    ReservationLapsed,
    /// An address stays in its cooldown because the kernel still has routes or rules for it.
    KernelDirty,
    /// A Reserve was refused.
    ReserveRefused,
    /// A Reserve was refused because another pod has the name of its host veth.
    VethNameInUse,
    /// A confirmed pod has no host veth, so the host cannot reach it.
    LinkMissing,
    /// A witness did not answer.
    WitnessSilent,
    /// EC2 throttled an action; its rate is reduced for a while.
    BudgetShrunk,
    /// The state of an earlier process was restored.
    Restored,
    /// The node's ENIConfig is missing or unusable.
    EniConfigInvalid,
    /// A subnet has free addresses, but no whole prefix; single addresses are requested instead.
    SubnetFragmented,
    /// The node needs a trunk ENI and has none.
    TrunkMissing,
    /// A leaked ENI was found: deleted, or kept because its age is unknown.
    LeakedEni,
    /// An ENI got the security groups of the primary one.
    GroupsChanged,
    /// No subnet may be used for a new ENI.
    NoSubnet,
    /// The node is unschedulable: its pool keeps its size.
    Unschedulable,
    /// EC2 does not report the limits of the instance type: the planner creates nothing.
    LimitsUnknown,
    /// A pod CIDR of the node is not used, because it overlaps other addresses or has none for pods.
    NodeCidrRefused,
    /// A pod CIDR is out of use, but pods keep addresses of it.
    NodeCidrRemoved,
}

impl Topic {
    /// The value of metrics labels and log fields.
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
            Self::VethNameInUse => "veth_name_in_use",
            Self::LinkMissing => "link_missing",
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
            Self::NodeCidrRefused => "node_cidr_refused",
            Self::NodeCidrRemoved => "node_cidr_removed",
        }
    }
}

/// A fact for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    pub severity: Severity,
    pub topic: Topic,
    /// An ENI, a subnet, an address or a pod.
    pub object: String,
    /// The pod that gets the notice as an event, if there is one.
    pub pod: Option<PodName>,
    /// The fact and its cause.
    pub cause: String,
    /// Empty if no action is needed.
    pub next_step: String,
}

/// A step that the planner delays, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    pub obstacle: Obstacle,
    /// The delayed step or its object.
    pub what: String,
    pub why: String,
    /// The time of the next try, if time is the only obstacle.
    pub until: Option<Time>,
    pub next_step: String,
}

/// The kind of obstacle to the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Obstacle {
    /// A subnet has no free addresses.
    SubnetFull,
    /// The node has the most ENIs that it may have, and they are full.
    EniLimit,
    /// The node runs as many pods as it may.
    MaxPods,
    /// There is no place for a new ENI.
    NoPlace,
    /// The limits of the instance type are unknown.
    LimitsUnknown,
    /// The node is cordoned, and its pool keeps its size.
    Unschedulable,
    /// The settings leave addresses to another program.
    NotOurs,
    /// Attached ENIs do not become ready.
    AttachStuck,
    /// Only time: a call under way, a budget, an observation.
    Time,
}
