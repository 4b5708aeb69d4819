//! State of policies, for the view API.

use super::PolicySource;
use control_wire::model;
use policy_core::index::PolicyState;
use std::ops::Bound::{Excluded, Unbounded};

/// A policy, and the nodes that need it.
#[derive(Clone, Debug, PartialEq)]
pub struct PolicyReport {
    /// The form that nodes receive.
    pub policy: model::Policy,
    /// Its groups, and the nodes that need it.
    pub state: PolicyState,
}

impl PolicySource {
    pub(crate) fn policies_behind(&self, uid: &str, most: usize) -> Vec<PolicyReport> {
        let behind = self.policies.range::<str, _>((Excluded(uid), Unbounded));
        behind.filter_map(|(uid, _)| self.policy_report(uid)).take(most).collect()
    }

    pub(crate) fn policy_report(&self, uid: &str) -> Option<PolicyReport> {
        let policy = self.policies.get(uid)?.entry.policy()?;
        let state = self.index.policy_state(&policy.key)?;
        Some(PolicyReport { policy, state })
    }
}
