//! Antrea's ClusterNetworkPolicy and NetworkPolicy.

use super::{Body, Head, Subjects, key, known, unknown};
use crate::{
    Action, Direction, Log, NameMatch, Peer, Peers, Pods, Policy, Precedence, Priority, Rule,
    Scope, Tier, Traffic, Transport,
};
use policy_objects::{
    AntreaAction, AntreaAppliedTo, AntreaEntry, AntreaPeer, AntreaPolicy, AntreaPort, AntreaRule,
    Kind, Named, NamespaceMatch, Read, Selector, Subject,
};

pub(super) fn compile(policy: &AntreaPolicy) -> Policy {
    let own = policy.meta.namespace.as_str();
    let kind = match own {
        "" => Kind::AntreaClusterNetworkPolicy,
        _ => Kind::AntreaNetworkPolicy,
    };
    let subjects = subjects(&policy.applied_to, own);
    let mut rules = rules_of(Direction::Ingress, &policy.ingress, &subjects, own);
    rules.extend(rules_of(Direction::Egress, &policy.egress, &subjects, own));
    Policy {
        key: key(kind, &policy.meta),
        uid: policy.meta.uid.clone(),
        place: Precedence {
            tier: Tier::Antrea(policy.tier.clone()),
            priority: Priority::new(policy.priority),
        },
        isolation: None,
        rules,
    }
}

fn rules_of(
    direction: Direction,
    entries: &[AntreaEntry],
    policys: &Subjects,
    own: &str,
) -> Vec<Rule> {
    let rule = |(index, entry): (usize, &AntreaEntry)| {
        let subjects = match entry.applied_to.as_slice() {
            [] => policys.clone(),
            items => subjects(items, own),
        };
        match &entry.rule {
            Read::Known(rule) => {
                let head = Head { direction, index, name: rule.name.clone() };
                known(head, &subjects, body(rule, own))
            }
            Read::Unknown(what) => {
                let head = Head { direction, index, name: what.name.clone() };
                unknown(head, &subjects, what, "Allow")
            }
        }
    };
    entries.iter().enumerate().map(rule).collect()
}

fn subjects(items: &[Subject<AntreaAppliedTo>], own: &str) -> Subjects {
    let mut subjects = Subjects::default();
    for item in items {
        let pods = match &item.selects {
            AntreaAppliedTo::Pods { namespaces, pods } => labeled(namespaces, pods, own),
            AntreaAppliedTo::Group(name) => Some(group(name, own)),
            AntreaAppliedTo::ServiceAccount(account) => Some(Pods::ServiceAccount(account.clone())),
            AntreaAppliedTo::Service(name) => {
                subjects.unfit.get_or_insert_with(|| UNFIT.to_owned());
                let all = Some(Selector::default());
                let any = || labeled(&all.clone().filter(|_| own.is_empty()), &all, own);
                name.clone().map(Pods::Service).or_else(any)
            }
            AntreaAppliedTo::Nodes | AntreaAppliedTo::External => None,
        };
        subjects.pods.extend(pods);
        subjects.doubt = subjects.doubt.or_else(|| item.doubt.clone());
    }
    subjects
}

fn body(rule: &AntreaRule, own: &str) -> Body {
    let action = match rule.action {
        AntreaAction::Allow => Action::Allow,
        AntreaAction::Drop => Action::Drop,
        AntreaAction::Reject => Action::Reject,
        AntreaAction::Pass => Action::Pass,
    };
    let peers = rule.peers.iter().filter_map(|peer| peer_of(peer, own));
    let services = rule.services.iter().cloned().map(Peer::Service);
    let peers = match rule.peers.is_empty() && rule.services.is_empty() {
        true => Peers::Any,
        false => Peers::Of(peers.chain(services).collect()),
    };
    let traffic = match rule.ports.as_slice() {
        [] => Traffic::Any,
        ports => Traffic::Of(ports.iter().map(transport).collect()),
    };
    let log = rule.logging.as_ref().map(|logging| Log { label: logging.label.clone() });
    Body { action, peers, traffic, log }
}

/// `None`: an empty item in a ClusterNetworkPolicy, which is nothing.
fn peer_of(peer: &AntreaPeer, own: &str) -> Option<Peer> {
    Some(match peer {
        AntreaPeer::Pods { namespaces, pods } => Peer::Pods(labeled(namespaces, pods, own)?),
        AntreaPeer::Matching { namespaces, pods } => {
            let scope = match namespaces {
                NamespaceMatch::Same => Scope::SameNamespace,
                NamespaceMatch::SameLabels(keys) => Scope::SameLabels(keys.clone()),
            };
            let pods = pods.clone().unwrap_or_default();
            Peer::Pods(Pods::Labeled { scope, pods })
        }
        AntreaPeer::Block(block) => Peer::Block(block.clone()),
        AntreaPeer::Group(name) => Peer::Pods(group(name, own)),
        AntreaPeer::ServiceAccount(account) => Peer::Pods(Pods::ServiceAccount(account.clone())),
        AntreaPeer::Nodes(selector) => Peer::Nodes(selector.clone()),
        AntreaPeer::Fqdn(pattern) => Peer::Name(NameMatch::Pattern(pattern.clone())),
    })
}

fn labeled(namespaces: &Option<Selector>, pods: &Option<Selector>, own: &str) -> Option<Pods> {
    let scope = match (namespaces, own) {
        (Some(selector), _) => Scope::Namespaces(selector.clone()),
        (None, "") if pods.is_none() => return None,
        (None, "") => Scope::Namespaces(Selector::default()),
        (None, own) => Scope::Namespace(own.to_owned()),
    };
    Some(Pods::Labeled { scope, pods: pods.clone().unwrap_or_default() })
}

fn group(name: &str, own: &str) -> Pods {
    Pods::Group(Named { namespace: own.to_owned(), name: name.to_owned() })
}

fn transport(port: &AntreaPort) -> Transport {
    match port {
        AntreaPort::Transport { protocol, port, source } => {
            Transport::Ports { protocol: *protocol, port: port.clone(), source: *source }
        }
        AntreaPort::Icmp(icmp) => Transport::Icmp { kind: icmp.kind, code: icmp.code },
    }
}

/// External traffic to a Service has the Service's address and port only until it is directed to a pod.
const UNFIT: &str = "a Service in appliedTo is not supported";
