//! Rules of ClusterNetworkPolicies, of both dialects: upstream and AWS.

use super::{Effect, FlowDirection, Naive, Segment, Side, lookup::selects, port::contains_port};
use policy_objects::{
    ClusterAction, ClusterPeer, ClusterPolicy, ClusterRule, DomainName, NamespacedPods, Pod,
    ProtocolMatch, Read,
};

impl Naive<'_> {
    pub(super) fn cluster(
        &self,
        policy: &ClusterPolicy,
        side: Side<'_>,
    ) -> Vec<(usize, Option<Effect>)> {
        let rules = match side.direction {
            FlowDirection::In => &policy.ingress,
            FlowDirection::Out => &policy.egress,
        };
        let about = self.namespaced(&policy.subject.selects, side.pod);
        let doubt = policy.subject.doubt.is_some();
        let one = |rule: &Read<ClusterRule>| match rule {
            _ if !about => None,
            Read::Unknown(unknown) if unknown.action.as_deref() == Some("Accept") => None,
            Read::Unknown(_) => Some(Effect::Drop),
            Read::Known(rule) => match rule.action {
                ClusterAction::Accept if doubt => None,
                ClusterAction::Pass if doubt => Some(Effect::Drop),
                _ if !self.cluster_rule(rule, side) => None,
                ClusterAction::Accept => Some(Effect::Allow),
                ClusterAction::Deny => Some(Effect::Drop),
                ClusterAction::Pass => Some(Effect::Pass),
            },
        };
        rules.iter().map(one).enumerate().collect()
    }

    pub(super) fn namespaced(&self, which: &NamespacedPods, pod: &Pod) -> bool {
        self.in_namespaces(pod, &which.namespaces) && selects(&which.pods, &pod.meta.labels)
    }

    fn cluster_rule(&self, rule: &ClusterRule, side: Side<'_>) -> bool {
        let protocol = |protocol: &ProtocolMatch| match (protocol, side.packet.segment) {
            (ProtocolMatch::Ports(wanted, range), Segment::Ports(its, _, port)) => {
                *wanted == its && range.is_none_or(|range| contains_port(range, port))
            }
            (ProtocolMatch::Ports(..), Segment::Icmp(..) | Segment::Other(_)) => false,
            (ProtocolMatch::Named(name), _) => self.is_to_named_port(side.packet, name),
        };
        rule.peers.iter().any(|peer| self.cluster_peer(peer, side))
            && (rule.protocols.is_empty() || rule.protocols.iter().any(protocol))
    }

    fn cluster_peer(&self, peer: &ClusterPeer, side: Side<'_>) -> bool {
        match peer {
            ClusterPeer::Pods(which) => {
                self.owner(side.far).is_some_and(|pod| self.namespaced(which, pod))
            }
            ClusterPeer::Networks(networks) => networks.iter().any(|net| net.contains(&side.far)),
            ClusterPeer::Nodes(nodes) => self.is_node(side.far, nodes),
            ClusterPeer::Domains(domains) => {
                domains.iter().any(|d| self.any_name(side.far, |name| is_in_domain(d, name)))
            }
        }
    }
}

/// True if a domain of a rule contains a name.
pub(crate) fn is_in_domain(domain: &DomainName, name: &str) -> bool {
    match domain {
        DomainName::Exact(exact) => name == exact,
        DomainName::Below(parent) => {
            let above = name.split('.').skip(1).collect::<Vec<_>>();
            (0..above.len()).any(|from| above[from..].join(".") == *parent)
        }
    }
}
