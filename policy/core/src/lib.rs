//! Who may talk to whom, and why.
//!
//! [`compile`] brings every kind of policy into one form, a [`World`] holds all objects, and [`verdict`]
//! answers for one packet: the decision, the rule that decided, and why each earlier one did not. It is
//! the model that all that enforces policy is tested against, so it is written to be read; it looks at
//! whole policies, and only [`index`] keeps an index of selectors. It must never know how something is
//! enforced. Start at [`verdict`]; who is in a group says `world/groups`. [`lint`] says what of a world
//! is not as its authors will have meant it.

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
    Action, Direction, Family, Isolation, Log, NameMatch, Peer, Peers, Place, Pods, Policy,
    PolicyKey, Priority, Rule, Scope, Standing, Tier, Traffic, Transport,
};
pub use lint::{Aside, Check, Finding, Foreign, ObjectName, lint};
pub use packet::{Origin, Packet, Segment, State};
pub use verdict::{
    Decision, Earlier, Exemption, Half, PeerMiss, Reason, RuleName, Unasked, Verdict, WhyNot,
    Wider, decide, verdict,
};
pub use world::{GroupScope, Members, Rank, Stage, Subjects, Walk, World};
