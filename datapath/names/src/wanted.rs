//! The names that rules name.

use control_wire::{NodeSnapshot, model::Peers};
use datapath_plan::matches;
use policy_core::{Direction, NameMatch};
use std::collections::BTreeSet;

/// The names of a node's egress rules, and the pods to which each rule applies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted(pub(crate) Vec<WantedRule>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WantedRule {
    /// The UID of the policy.
    pub(crate) policy: String,
    /// The UIDs of the pods' entries.
    pub(crate) pods: BTreeSet<String>,
    pub(crate) names: BTreeSet<NameMatch>,
}

impl Wanted {
    pub fn of(snapshot: &NodeSnapshot) -> Self {
        let mut wanted = Vec::new();
        for (uid, policy) in &snapshot.policies {
            for rule in &policy.rules {
                let Peers::Of(of) = &rule.peers else { continue };
                if rule.direction != Direction::Egress || of.names.is_empty() {
                    continue;
                }
                let groups = rule.applied.iter().filter_map(|id| snapshot.applied.get(id));
                let groups: Vec<_> = groups.collect();
                let pods = snapshot.pods.keys();
                let pods = pods.filter(|pod| groups.iter().any(|group| group.contains(*pod)));
                wanted.push(WantedRule {
                    policy: uid.clone(),
                    pods: pods.cloned().collect(),
                    names: of.names.iter().cloned().collect(),
                });
            }
        }
        Self(wanted)
    }

    /// The UIDs of the pods whose rules have names.
    pub fn pods(&self) -> BTreeSet<&str> {
        self.0.iter().flat_map(|rule| &rule.pods).map(String::as_str).collect()
    }

    /// The UIDs of the policies whose rules have names.
    pub fn policies(&self) -> BTreeSet<&str> {
        self.0.iter().map(|rule| rule.policy.as_str()).collect()
    }

    /// True if a rule of the pod has a name that matches.
    pub fn contains(&self, pod: &str, name: &str) -> bool {
        self.0.iter().any(|rule| {
            rule.pods.contains(pod) && rule.names.iter().any(|pattern| matches(pattern, name))
        })
    }
}
