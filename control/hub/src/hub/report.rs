//! State of nodes and policies, for people who ask.

use super::Hub;
use control_wire::model;
use policy_core::index::PolicyState;

/// A node that has, or lately had, a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentReport {
    pub node: String,
    /// The node has a stream now.
    pub follows: bool,
    /// Last generation of which the node was sent everything except pending objects.
    pub told: u64,
    /// Last generation that the node acknowledged.
    pub holds: u64,
    /// Number of objects that are pending, or sent and not acknowledged.
    pub owed: usize,
}

/// A policy, and where it is needed.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyReport {
    /// The form that nodes receive.
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
