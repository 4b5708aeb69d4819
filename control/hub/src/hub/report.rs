//! What there is, for people who ask.

use super::Hub;
use control_wire::model;
use policy_core::index::PolicyState;

/// A node that has, or lately had, a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentReport {
    /// The node.
    pub node: String,
    /// It has a stream now.
    pub follows: bool,
    /// The generation as of which it was told everything but what it is owed.
    pub told: u64,
    /// The same for what it says it holds.
    pub holds: u64,
    /// How many objects it is owed, or was told and has not acknowledged.
    pub owed: usize,
}

/// A policy, and where it is needed.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyReport {
    /// As nodes are told of it.
    pub told: model::Policy,
    /// Its groups, and the nodes that need it.
    pub state: PolicyState,
}

impl Hub {
    /// The nodes with streams, and those whose stream ended lately, in the order of their names.
    pub fn agents(&self) -> Vec<AgentReport> {
        self.nodes.keys().filter_map(|node| self.agent(node)).collect()
    }

    /// One of them.
    pub fn agent(&self, node: &str) -> Option<AgentReport> {
        let outbox = self.nodes.get(node)?;
        Some(AgentReport {
            node: node.to_owned(),
            follows: outbox.alone_since.is_none(),
            told: outbox.last(),
            holds: outbox.holds(),
            owed: outbox.len(),
        })
    }

    /// As many policies behind this UID, in the order of their UIDs.
    pub fn policies_behind(&self, uid: &str, most: usize) -> Vec<PolicyReport> {
        use std::ops::Bound::{Excluded, Unbounded};
        let behind = self.policies.range::<str, _>((Excluded(uid), Unbounded));
        behind.filter_map(|(uid, _)| self.policy_report(uid)).take(most).collect()
    }

    /// The policy of this UID.
    pub fn policy_report(&self, uid: &str) -> Option<PolicyReport> {
        let told = self.policies.get(uid)?.entry.policy()?;
        let state = self.index.policy_state(&told.key)?;
        Some(PolicyReport { told, state })
    }
}
