//! Desired and observed host networking to ordered kernel operations.
//!
//! Pure: no socket, file, clock or environment. [`plan`] compares a [`NodeDesired`] with an [`Observed`] and returns
//! operations. An operation carries every value that its execution needs. An executor runs them in order and decides
//! nothing. [`pod`] plans one pod for the plugin. [`outcome`] interprets the kernel's error numbers for every
//! executor.
//!
//! Ownership comes first: an object is removed only if it is provably ours (see `plan/orphans.rs`). Start reading at
//! `plan.rs`; `tests/laws.rs` tests the laws of every plan.

mod branch;
mod desired;
pub mod egress;
mod kernel;
mod mac;
pub mod nat;
mod op;
mod plan;
pub mod pod;
mod rules;

pub use branch::{Branch, Carrier, Enforcing, Obstacle, carry, disconnect};
pub use desired::{BranchDesired, EniDesired, NodeDesired, PodDesired, PrimaryDesired};
pub use kernel::{
    Family, IfIndex, Ipv4Conf, Ipv6Conf, Link, LinkAddr, LinkKind, Neighbor, Observed, Peer, Route,
    Rule, Scope, Selector, SysctlName, addresses_in_use,
};
pub use op::{
    Action, Applied, Errno, Execution, LinkRef, Op, Outcome, Refused, RulePattern, Subject,
    VlanLink, outcome,
};
pub use plan::{Note, Plan, plan};
