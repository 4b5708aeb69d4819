//! Desired and observed host networking to ordered kernel operations.
//!
//! Pure: no socket, file, clock or environment. [`plan`] compares a [`NodeDesired`] with what was
//! [`Observed`] and returns operations that carry every value their execution needs; an executor
//! carries them out in order and decides nothing. [`pod`] holds the same for one pod, for the
//! plugin. What an error number of the kernel means stands in [`outcome`], once for every executor.
//!
//! Ownership comes first: an object is removed only if it is provably ours (see `plan/orphans.rs`).
//! Start reading at `plan.rs`; `tests/laws.rs` holds the laws that every plan obeys.

mod branch;
mod desired;
pub mod egress;
mod kernel;
pub mod nat;
mod op;
mod plan;
pub mod pod;
mod rules;

pub use branch::{Branch, Carrier, Enforcing, Obstacle, carry, disconnect};
pub use desired::{BranchDesired, EniDesired, NodeDesired, PodDesired, PrimaryDesired};
pub use kernel::{
    Family, IfIndex, Ipv4Conf, Ipv6Conf, Link, LinkAddr, LinkKind, Neighbor, Observed, Peer,
    Route, Rule, Scope, Selector, SysctlName, addresses_in_use,
};
pub use op::{
    Action, Applied, Errno, Execution, LinkRef, Op, Outcome, Refused, RulePattern, Subject,
    VlanLink, outcome,
};
pub use plan::{Note, Plan, plan};
