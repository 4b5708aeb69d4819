//! Verdicts, and the rules that they name.

use crate::digest::digest;
use policy_core::{Decision, Direction};

/// The answer of a table: a decision and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Verdict {
    pub decision: Decision,
    pub reason: Reason,
    /// The rule asks for a log of the packets that it decides.
    pub is_logged: bool,
}

/// Reason for a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// No rule decided.
    Default,
    /// A NetworkPolicy isolates the pod, and no rule allows the packet.
    Isolation,
    /// A rule decided: its number in [`Tables::rules`](crate::Tables::rules).
    Rule(RuleId),
}

/// The number of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleId(pub u32);

/// A rule as reports name it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RuleName {
    /// The UID of the policy.
    pub policy: String,
    pub direction: Direction,
    /// The position among the policy's rules of that direction, from 0.
    pub index: usize,
}

impl RuleName {
    /// A number that follows from the name.
    pub fn digest(&self) -> u64 {
        digest(self)
    }
}

impl Verdict {
    /// The verdict if no rule decides.
    pub const DEFAULT: Self =
        Self { decision: Decision::Allow, reason: Reason::Default, is_logged: false };
    pub(crate) const ISOLATION: Self =
        Self { decision: Decision::Drop, reason: Reason::Isolation, is_logged: false };
}
