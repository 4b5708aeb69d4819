//! The policies that apply to a pod.

use super::Naive;
use crate::scenario::{Id, id};
use policy_objects::{Object, Phase, Pod};
use std::collections::BTreeSet;

impl Naive<'_> {
    /// The policies that isolate a pod or have a rule for it, whatever the rule's action.
    pub fn policies_of(&self, pod: &Pod) -> BTreeSet<Id> {
        if pod.host_network || pod.phase == Phase::Ended {
            return BTreeSet::new();
        }
        self.objects.iter().filter(|object| self.applies_to(object, pod)).map(id).collect()
    }

    /// True if one rule of a policy applies to a pod.
    pub fn rule_applies_to(&self, policy: &Object, egress: bool, index: usize, pod: &Pod) -> bool {
        let Object::AntreaPolicy(antrea) = policy else { return self.applies_to(policy, pod) };
        let entries = if egress { &antrea.egress } else { &antrea.ingress };
        entries.get(index).is_some_and(|entry| self.entry_applies_to(antrea, entry, pod))
    }

    fn applies_to(&self, object: &Object, pod: &Pod) -> bool {
        match object {
            Object::NetworkPolicy(policy) => self.isolates(policy, pod),
            Object::ClusterPolicy(policy) => {
                let is_empty = policy.ingress.is_empty() && policy.egress.is_empty();
                !is_empty && self.namespaced(&policy.subject.selects, pod)
            }
            Object::AntreaPolicy(policy) => {
                let mut entries = policy.ingress.iter().chain(&policy.egress);
                entries.any(|entry| self.entry_applies_to(policy, entry, pod))
            }
            Object::Pod(_)
            | Object::Namespace(_)
            | Object::Node(_)
            | Object::Service(_)
            | Object::Tier(_)
            | Object::Group(_) => false,
        }
    }
}
