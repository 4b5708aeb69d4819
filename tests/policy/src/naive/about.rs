//! Which policies are about a pod.

use super::Naive;
use crate::made::{Id, id};
use policy_objects::{Object, Phase, Pod};
use std::collections::BTreeSet;

impl Naive<'_> {
    /// The policies with a rule about a pod, whatever it says, or that isolate it.
    pub fn policies_of(&self, pod: &Pod) -> BTreeSet<Id> {
        if pod.host_network || pod.phase == Phase::Ended {
            return BTreeSet::new();
        }
        self.objects.iter().filter(|object| self.is_about(object, pod)).map(id).collect()
    }

    /// Whether one rule of a policy is about a pod.
    pub fn is_rule_about(&self, policy: &Object, egress: bool, index: usize, pod: &Pod) -> bool {
        let Object::AntreaPolicy(antrea) = policy else { return self.is_about(policy, pod) };
        let entries = if egress { &antrea.egress } else { &antrea.ingress };
        entries.get(index).is_some_and(|entry| self.is_entry_about(antrea, entry, pod))
    }

    fn is_about(&self, object: &Object, pod: &Pod) -> bool {
        match object {
            Object::NetworkPolicy(policy) => self.isolates(policy, pod),
            Object::ClusterPolicy(policy) => {
                let silent = policy.ingress.is_empty() && policy.egress.is_empty();
                !silent && self.namespaced(&policy.subject.selects, pod)
            }
            Object::AntreaPolicy(policy) => {
                let mut entries = policy.ingress.iter().chain(&policy.egress);
                entries.any(|entry| self.is_entry_about(policy, entry, pod))
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
