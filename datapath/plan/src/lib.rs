//! Compiles a node's policies into tables that a kernel looks up.
//!
//! Userspace decides and the kernel looks up. [`compile`] turns a [`NodeSnapshot`](control_wire::NodeSnapshot) into
//! [`Tables`]:
//!
//! - Each address has a *class*: the set of all peers of rules that match it ([`ClassId`]).
//! - Each pod has one *policy set* for a direction: the rules that apply to it, in the order in which they are tried
//!   ([`SetId`]).
//! - A set and a class lead to an interval table ([`IntervalTable`]). Its key is the protocol and the destination port,
//!   or the ICMP type and code ([`TrafficKey`]). Its value is a [`Verdict`], or a second table over the source port.
//!
//! A [`Compilation`] follows the snapshots of a node: a change costs what it affects ([`Delta`]).
//!
//! The numbers of classes and sets are digests of their contents. So a row of a set never changes its meaning.
//!
//! No priority, selector, tier or exception remains. Rows that equal the default of their set are left out.
//! [`Tables::judge`] is the reference for the kernel's lookups.

mod class;
mod compile;
mod cut;
mod delta;
mod digest;
mod judge;
mod names;
mod peers;
mod rows;
mod rules;
mod set;
mod sets;
mod subject;
mod tables;
mod traffic;

#[cfg(test)]
mod tests;

pub use compile::{Compilation, compile};
pub use cut::{Address, Prefix};
pub use delta::Delta;
pub use judge::{Half, Side};
pub use names::{Names, matches};
pub use rules::{Reason, RuleId, RuleName, Verdict};
pub use tables::{ClassId, PodSets, SetId, SetRows, TableId, Tables};
pub use traffic::{Entry, IntervalTable, TrafficKey};
