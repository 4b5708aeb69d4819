//! The union of NetworkPolicies and ApplicationNetworkPolicies.

use super::{
    By, Decision, FlowDirection, Half, Naive, RuleId, Side,
    cluster::is_in_domain,
    group::in_block,
    lookup::{selects, selects_pod},
};
use policy_objects::{
    Flavor, Kind, NetworkPeer, NetworkPolicy, NetworkRule, Object, Pod, PolicyType, Read,
};
use std::collections::BTreeSet;

impl Naive<'_> {
    /// The decision of all of them together. `None` if none isolates the pod in this direction.
    pub(super) fn network_policies(&self, side: Side<'_>) -> Option<Half> {
        let mut isolated = false;
        let mut allowing = BTreeSet::new();
        for object in self.objects {
            let Object::NetworkPolicy(policy) = object else { continue };
            let (this, rules) = match side.direction {
                FlowDirection::In => (PolicyType::Ingress, &policy.ingress),
                FlowDirection::Out => (PolicyType::Egress, &policy.egress),
            };
            if !policy.types.contains(&this) || !self.isolates(policy, side.pod) {
                continue;
            }
            isolated = true;
            for (index, rule) in rules.iter().enumerate() {
                if let Read::Known(rule) = rule
                    && policy.subject.doubt.is_none()
                    && self.network_rule(policy, rule, side)
                {
                    allowing.insert(rule_id(policy, index));
                }
            }
        }
        match (isolated, allowing.is_empty()) {
            (false, _) => None,
            (true, true) => Some(Half { decision: Decision::Drop, by: By::Isolation }),
            (true, false) => Some(Half::allowed(By::Rules(allowing))),
        }
    }

    /// True if a NetworkPolicy applies to a pod.
    pub(super) fn isolates(&self, policy: &NetworkPolicy, pod: &Pod) -> bool {
        policy.meta.namespace == pod.meta.namespace
            && selects(&policy.subject.selects, &pod.meta.labels)
    }

    fn network_rule(&self, policy: &NetworkPolicy, rule: &NetworkRule, side: Side<'_>) -> bool {
        let peer = rule.peers.iter().any(|peer| self.network_peer(policy, peer, side));
        let port = |port: &policy_objects::NetworkPort| {
            self.is_to_port(side.packet, port.protocol, port.port.as_ref())
        };
        (rule.peers.is_empty() || peer) && (rule.ports.is_empty() || rule.ports.iter().any(port))
    }

    fn network_peer(&self, policy: &NetworkPolicy, peer: &NetworkPeer, side: Side<'_>) -> bool {
        match peer {
            NetworkPeer::Pods { namespaces, pods } => self.owner(side.far).is_some_and(|pod| {
                let within = match namespaces {
                    Some(namespaces) => self.in_namespaces(pod, namespaces),
                    None => pod.meta.namespace == policy.meta.namespace,
                };
                within && selects_pod(pods.as_ref(), pod)
            }),
            NetworkPeer::Block(block) => in_block(block, side.far),
            NetworkPeer::Domains(domains) => {
                side.direction == FlowDirection::Out
                    && domains.iter().any(|d| self.any_name(side.far, |name| is_in_domain(d, name)))
            }
        }
    }
}

fn rule_id(policy: &NetworkPolicy, index: usize) -> RuleId {
    let kind = match policy.flavor {
        Flavor::Kubernetes => Kind::NetworkPolicy,
        Flavor::Aws => Kind::AwsApplicationNetworkPolicy,
    };
    let (namespace, name) = (policy.meta.namespace.clone(), policy.meta.name.clone());
    RuleId { kind, namespace, name, index }
}
