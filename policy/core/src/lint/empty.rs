//! Finds parts that match nothing now.

use super::{Check, Finding};
use crate::{
    Peer, Peers, Pods, Policy, Rule, Scope, Traffic, Transport,
    world::{World, is_known},
};
use policy_objects::{Pod, Protocol, Severity, TargetPort};
use std::collections::BTreeMap;

pub(super) fn look(world: &World, findings: &mut Vec<Finding>) {
    let mut empty = Empty { world, pods: BTreeMap::new() };
    for policy in world.policies() {
        if policy.rules.is_empty() && policy.isolation.is_none() {
            let text = "it has no rule and does nothing: give it one, or delete it".to_owned();
            findings.push(Finding::of(policy, Severity::Warning, Check::MatchesNothing, text));
            continue;
        }
        // Without any pod, as in a directory of policies alone, the finding would apply to each policy.
        if world.pods().next().is_some() {
            empty.policy(policy, findings);
        }
    }
}

/// Cached results for parts that many rules share.
struct Empty<'a> {
    world: &'a World,
    pods: BTreeMap<&'a Pods, bool>,
}

impl<'a> Empty<'a> {
    fn policy(&mut self, policy: &'a Policy, findings: &mut Vec<Finding>) {
        let isolated = policy.isolation.iter().map(|isolation| &isolation.subject);
        let subjects: Vec<&Pods> =
            policy.rules.iter().map(|rule| &rule.subject).chain(isolated).flatten().collect();
        if subjects.is_empty() {
            // The notes of reading the object report it already.
            return;
        }
        let is_empty = subjects.iter().all(|pods| self.selects_no_pod(pods));
        if is_empty {
            let text =
                "it selects no pod now: compare its selector with the pods' labels".to_owned();
            findings.push(Finding::of(policy, Severity::Warning, Check::MatchesNothing, text));
            return;
        }
        for rule in &policy.rules {
            let texts = self.peers(rule).into_iter().chain(self.ports(rule));
            let of_rule = |text| Finding::of_rule(policy, rule, Check::MatchesNothing, text);
            findings.extend(texts.map(of_rule));
        }
    }

    fn peers(&mut self, rule: &'a Rule) -> Vec<String> {
        let Peers::Of(peers) = &rule.peers else { return Vec::new() };
        let mut texts = Vec::new();
        for peer in peers {
            let is_empty = match peer {
                // Other checks report missing objects.
                Peer::Pods(Pods::Group(_)) | Peer::Block(_) | Peer::Name(_) | Peer::Service(_) => {
                    false
                }
                Peer::Pods(pods) => self.selects_no_pod(pods),
                Peer::Nodes(selector) => {
                    let mut nodes = self.world.nodes();
                    !nodes.any(|node| selector.matches(&node.meta.labels))
                }
            };
            if is_empty {
                texts.push(format!(
                    "no pod is in {peer} now: compare the selector with the pods' labels"
                ));
            }
        }
        texts
    }

    fn ports(&self, rule: &Rule) -> Vec<String> {
        let Traffic::Of(transports) = &rule.traffic else { return Vec::new() };
        let named = transports.iter().filter_map(|transport| match transport {
            Transport::Ports { protocol, port: Some(TargetPort::Named(name)), .. } => {
                Some((transport, name, Some(*protocol)))
            }
            Transport::Named(name) => Some((transport, name, None)),
            Transport::Ports { .. } | Transport::Icmp { .. } => None,
        });
        let unknown = named.filter(|(_, name, protocol)| !self.has_port(name, *protocol));
        let text = |(transport, _, _): (&Transport, _, _)| {
            format!("no pod has a {transport} now: compare it with the containers' ports")
        };
        unknown.map(text).collect()
    }

    fn has_port(&self, name: &str, protocol: Option<Protocol>) -> bool {
        self.world.pods().any(|pod| {
            pod.ports.iter().any(|port| {
                port.name == name && protocol.is_none_or(|protocol| port.protocol == protocol)
            })
        })
    }

    /// True if the selector has no pod. If it depends on the subject, true if it has none for any subject.
    fn selects_no_pod(&mut self, pods: &'a Pods) -> bool {
        if let Some(known) = self.pods.get(pods) {
            return *known;
        }
        let world = self.world;
        let mut in_scope: Box<dyn Iterator<Item = &Pod>> = match pods {
            Pods::Labeled { scope: Scope::Namespace(name), .. } => Box::new(world.pods_of(name)),
            Pods::Service(of) | Pods::ServiceAccount(of) => Box::new(world.pods_of(&of.namespace)),
            Pods::Labeled { .. } | Pods::Group(_) => Box::new(world.pods()),
        };
        let meant = |pod: &Pod| match pods {
            Pods::Labeled {
                scope: Scope::SameNamespace | Scope::SameLabels(_),
                pods: selector,
            } => is_known(pod) && selector.matches(&pod.meta.labels),
            Pods::Labeled { .. } | Pods::Group(_) | Pods::Service(_) | Pods::ServiceAccount(_) => {
                world.is_named(pod, pods)
            }
        };
        let is_empty = !in_scope.any(meant);
        self.pods.insert(pods, is_empty);
        is_empty
    }
}
