//! Policy decisions: the traffic that may pass between pods, and the reason.
//!
//! [`compile`] converts every kind of policy to one form, a [`World`] holds all objects, and [`verdict`]
//! answers for one packet. The answer has the decision, the rule that decided, and the reason why each earlier one
//! did not. This model is the reference in tests of all enforcement, so it is written to be read. It reads
//! whole policies; only [`index`] keeps an index of selectors. It must never depend on the way of
//! enforcement. Start at [`verdict`]; `world/groups` defines the members of groups. [`lint`] finds the parts of a
//! world that their authors probably did not intend.

mod compile;
mod form;
pub mod index;
mod lint;
mod packet;
pub mod show;
#[cfg(test)]
mod stage;
mod text;
mod verdict;
mod world;

pub use compile::compile;
pub use form::{
    Action, Direction, Family, Isolation, Log, NameMatch, Peer, Peers, Pods, Policy, PolicyKey,
    Precedence, Priority, Rule, Scope, Standing, Tier, Traffic, Transport,
};
pub use lint::{Aside, Check, Finding, Foreign, ObjectName, lint};
pub use packet::{Origin, Packet, Segment, State};
pub use verdict::{
    Decision, Earlier, Exemption, Half, PeerMiss, Reason, RuleName, Unasked, Verdict, WhyNot,
    Wider, decide, verdict,
};
pub use world::{GroupScope, Members, Rank, Stage, Subjects, Walk, World};
