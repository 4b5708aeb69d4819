//! Rules of Antrea policies.

use super::{
    Effect, FlowDirection, Naive, Segment, Side, group::in_block, lookup::selects_pod,
    port::contains_port,
};
use policy_objects::{
    AntreaAction, AntreaAppliedTo, AntreaEntry, AntreaPeer, AntreaPolicy, AntreaPort, AntreaRule,
    Named, NamespaceMatch, Pod, Read, Selector, Subject,
};

impl Naive<'_> {
    /// The effect of each rule. Of a packet that a Service leads back to its sender, only rules about Services decide.
    pub(super) fn antrea(
        &self,
        policy: &AntreaPolicy,
        side: Side<'_>,
        hairpin: bool,
    ) -> Vec<(usize, Option<Effect>)> {
        let rules = match side.direction {
            FlowDirection::In => &policy.ingress,
            FlowDirection::Out => &policy.egress,
        };
        // A rule that is not understood may be about Services.
        let may_name_services = |entry: &AntreaEntry| {
            let mut to = applied(policy, entry).iter();
            side.direction == FlowDirection::Out
                && match &entry.rule {
                    Read::Unknown(_) => true,
                    Read::Known(rule) => {
                        let is_pass = matches!(rule.action, AntreaAction::Pass);
                        !rule.services.is_empty()
                            || to.any(|to| {
                                matches!(to.selects, AntreaAppliedTo::Service(_))
                                    || is_pass && to.doubt.is_some()
                            })
                    }
                }
        };
        let effect = |entry: &AntreaEntry| match hairpin && !may_name_services(entry) {
            true => None,
            false => self.antrea_entry(policy, entry, side),
        };
        rules.iter().map(effect).enumerate().collect()
    }

    fn antrea_entry(
        &self,
        policy: &AntreaPolicy,
        entry: &AntreaEntry,
        side: Side<'_>,
    ) -> Option<Effect> {
        if !self.entry_applies_to(policy, entry, side.pod) {
            return None;
        }
        let own = &policy.meta.namespace;
        let applied = applied(policy, entry);
        let doubt = applied.iter().any(|to| {
            to.doubt.is_some()
                || matches!(&to.selects, AntreaAppliedTo::Group(name) if self.is_doubtful(own, name))
        });
        let unfit = applied.iter().any(|to| matches!(to.selects, AntreaAppliedTo::Service(_)));
        let rule = match &entry.rule {
            Read::Unknown(unknown) if unknown.action.as_deref() == Some("Allow") => return None,
            Read::Unknown(_) => return Some(Effect::Drop),
            Read::Known(rule) => rule,
        };
        let broken = rule
            .peers
            .iter()
            .any(|peer| matches!(peer, AntreaPeer::Group(name) if self.is_broken(own, name)));
        let unknown =
            broken || unfit || rule.services.iter().any(|s| self.has_unknown_addresses(s));
        match rule.action {
            AntreaAction::Allow if doubt || unknown => None,
            AntreaAction::Pass if doubt => Some(Effect::Drop),
            _ if unknown => Some(Effect::Drop),
            _ if !self.antrea_rule(policy, rule, side) => None,
            AntreaAction::Allow => Some(Effect::Allow),
            AntreaAction::Drop => Some(Effect::Drop),
            AntreaAction::Reject => Some(Effect::Reject),
            AntreaAction::Pass => Some(Effect::Pass),
        }
    }

    /// True if a rule applies to a pod.
    pub(super) fn entry_applies_to(
        &self,
        policy: &AntreaPolicy,
        entry: &AntreaEntry,
        pod: &Pod,
    ) -> bool {
        applied(policy, entry).iter().any(|to| self.applies(policy, &to.selects, pod))
    }

    /// True if a policy applies to a pod, or may apply to it because a part is not understood.
    fn applies(&self, policy: &AntreaPolicy, to: &AntreaAppliedTo, pod: &Pod) -> bool {
        let namespace = policy.meta.namespace.as_str();
        if !namespace.is_empty() && pod.meta.namespace != namespace {
            return false;
        }
        match to {
            AntreaAppliedTo::Pods { namespaces, pods } => {
                self.antrea_pods(namespace, namespaces.as_ref(), pods.as_ref(), pod)
            }
            AntreaAppliedTo::Group(name) => self.may_contain(namespace, name, pod),
            AntreaAppliedTo::ServiceAccount(account) => has_account(pod, account),
            AntreaAppliedTo::Service(None) => true,
            AntreaAppliedTo::Service(Some(service)) => self.may_select(service, pod),
            AntreaAppliedTo::Nodes | AntreaAppliedTo::External => false,
        }
    }

    fn antrea_pods(
        &self,
        namespace: &str,
        namespaces: Option<&Selector>,
        pods: Option<&Selector>,
        pod: &Pod,
    ) -> bool {
        let within = match namespaces {
            Some(namespaces) => self.in_namespaces(pod, namespaces),
            None if namespace.is_empty() => pods.is_some(),
            None => pod.meta.namespace == namespace,
        };
        within && selects_pod(pods, pod)
    }

    fn antrea_rule(&self, policy: &AntreaPolicy, rule: &AntreaRule, side: Side<'_>) -> bool {
        if !rule.services.is_empty() {
            return side.packet.service.is_some_and(|address| {
                rule.services.iter().any(|service| self.is_service(service, address))
            });
        }
        let peer = rule.peers.iter().any(|peer| self.antrea_peer(policy, peer, side));
        let port = rule.ports.iter().any(|port| self.antrea_port(port, side));
        (rule.peers.is_empty() || peer) && (rule.ports.is_empty() || port)
    }

    fn antrea_peer(&self, policy: &AntreaPolicy, peer: &AntreaPeer, side: Side<'_>) -> bool {
        let namespace = policy.meta.namespace.as_str();
        let far = self.owner(side.far);
        match peer {
            AntreaPeer::Pods { namespaces, pods } => far.is_some_and(|pod| {
                self.antrea_pods(namespace, namespaces.as_ref(), pods.as_ref(), pod)
            }),
            AntreaPeer::Matching { namespaces, pods } => far.is_some_and(|pod| {
                self.is_alike(namespaces, pod, side.pod) && selects_pod(pods.as_ref(), pod)
            }),
            AntreaPeer::Block(block) => in_block(block, side.far),
            AntreaPeer::Group(name) => {
                far.is_some_and(|pod| self.has_pod(namespace, name, pod))
                    || self.has_address(namespace, name, side.far)
            }
            AntreaPeer::ServiceAccount(account) => far.is_some_and(|pod| has_account(pod, account)),
            AntreaPeer::Nodes(nodes) => self.is_node(side.far, nodes),
            AntreaPeer::Fqdn(pattern) => {
                self.any_name(side.far, |name| matches_pattern(&pattern.0, name))
            }
        }
    }

    fn is_alike(&self, how: &NamespaceMatch, peer: &Pod, subject: &Pod) -> bool {
        match how {
            NamespaceMatch::Same => peer.meta.namespace == subject.meta.namespace,
            NamespaceMatch::SameLabels(keys) => {
                let its = self.namespace_labels(&peer.meta.namespace);
                let own = self.namespace_labels(&subject.meta.namespace);
                keys.iter().all(|key| own.contains_key(key) && its.get(key) == own.get(key))
            }
        }
    }

    fn antrea_port(&self, port: &AntreaPort, side: Side<'_>) -> bool {
        match (port, side.packet.segment) {
            (AntreaPort::Transport { protocol, port, source }, Segment::Ports(_, from, _)) => {
                self.is_to_port(side.packet, *protocol, port.as_ref())
                    && source.is_none_or(|range| contains_port(range, from))
            }
            (AntreaPort::Icmp(wanted), Segment::Icmp(kind, code)) => {
                wanted.kind.is_none_or(|k| k == kind) && wanted.code.is_none_or(|c| c == code)
            }
            (AntreaPort::Transport { .. } | AntreaPort::Icmp(_), _) => false,
        }
    }
}

fn applied<'a>(policy: &'a AntreaPolicy, entry: &'a AntreaEntry) -> &'a [Subject<AntreaAppliedTo>] {
    if entry.applied_to.is_empty() { &policy.applied_to } else { &entry.applied_to }
}

fn has_account(pod: &Pod, account: &Named) -> bool {
    pod.meta.namespace == account.namespace && pod.service_account == account.name
}

/// True if a name matches a pattern, in which `*` matches any text.
pub(crate) fn matches_pattern(pattern: &str, name: &str) -> bool {
    match pattern.chars().next() {
        None => name.is_empty(),
        Some('*') => {
            let rest = &pattern[1..];
            (0..=name.len())
                .any(|from| name.get(from..).is_some_and(|tail| matches_pattern(rest, tail)))
        }
        Some(first) => name
            .strip_prefix(first)
            .is_some_and(|tail| matches_pattern(&pattern[first.len_utf8()..], tail)),
    }
}
