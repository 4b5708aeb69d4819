//! Degree of one policy's enforcement.

use std::fmt;

/// Maximum number of named nodes; the rest are counted.
pub const NAMED: usize = 10;

/// Degree of a policy's enforcement, by nodes that have pods to which it applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Realization {
    /// Of the policy's spec.
    pub generation: i64,
    /// Number of nodes that need the policy.
    pub desired: u32,
    /// Number of these nodes that enforce it at this generation.
    pub realized: u32,
    /// Number of these nodes that cannot enforce it.
    pub failing: u32,
    /// The first of these.
    pub failures: Vec<Failing>,
    /// Number of nodes without a report since the reports started.
    pub silent: u32,
    /// The first of these.
    pub silence: Vec<String>,
}

/// A node that cannot enforce a policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failing {
    pub node: String,
    /// Reason from the node's report; empty if it is no longer known.
    pub why: String,
}

/// In one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// On all nodes.
    Realized,
    /// Not on all nodes yet.
    Realizing,
    /// Not on all nodes, and those that lack it cannot.
    Failed,
}

impl Realization {
    /// In one word.
    pub fn phase(&self) -> Phase {
        match self.desired {
            desired if self.realized == desired => Phase::Realized,
            desired if self.failing > 0 && self.realized + self.failing == desired => Phase::Failed,
            _ => Phase::Realizing,
        }
    }
}

impl Phase {
    /// As statuses have it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Realized => "Realized",
            Self::Realizing => "Realizing",
            Self::Failed => "Failed",
        }
    }
}

/// For people.
impl fmt::Display for Realization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "in force on {} of {} nodes", self.realized, self.desired)?;
        if self.failing > 0 {
            write!(f, "; {} cannot enforce it: ", self.failing)?;
            for (at, Failing { node, why }) in self.failures.iter().enumerate() {
                let comma = if at > 0 { ", " } else { "" };
                let why = if why.is_empty() { String::new() } else { format!(" ({why})") };
                write!(f, "{comma}{node}{why}")?;
            }
            more(f, self.failing, self.failures.len())?;
        }
        if self.silent > 0 {
            write!(f, "; {} have not reported: {}", self.silent, self.silence.join(", "))?;
            more(f, self.silent, self.silence.len())?;
        }
        Ok(())
    }
}

fn more(f: &mut fmt::Formatter<'_>, all: u32, named: usize) -> fmt::Result {
    match (all as usize).saturating_sub(named) {
        0 => Ok(()),
        more => write!(f, " and {more} more"),
    }
}
