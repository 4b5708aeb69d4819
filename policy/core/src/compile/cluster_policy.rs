//! ClusterNetworkPolicy, upstream's and AWS's.

use super::{Body, Head, Subjects, key, known, unknown};
use crate::{
    Action, Direction, NameMatch, Peer, Peers, Pods, Policy, Precedence, Priority, Rule, Scope,
    Tier, Traffic, Transport,
};
use policy_objects::{
    Block, ClusterAction, ClusterPeer, ClusterPolicy, ClusterRule, ClusterTier, Dialect, Kind,
    NamespacedPods, ProtocolMatch, Read, TargetPort,
};

pub(super) fn compile(policy: &ClusterPolicy) -> Policy {
    let kind = match policy.dialect {
        Dialect::Upstream => Kind::ClusterNetworkPolicy,
        Dialect::Aws => Kind::AwsClusterNetworkPolicy,
    };
    let tier = match policy.tier {
        ClusterTier::Admin => Tier::Admin,
        ClusterTier::Baseline => Tier::Baseline,
    };
    let doubt = policy.subject.doubt.clone();
    let subjects = Subjects { pods: vec![pods(&policy.subject.selects)], doubt, unfit: None };
    let mut rules = rules_of(Direction::Ingress, &policy.ingress, &subjects);
    rules.extend(rules_of(Direction::Egress, &policy.egress, &subjects));
    Policy {
        key: key(kind, &policy.meta),
        uid: policy.meta.uid.clone(),
        place: Precedence { tier, priority: Priority::new(policy.priority.into()) },
        isolation: None,
        rules,
    }
}

fn rules_of(direction: Direction, rules: &[Read<ClusterRule>], subjects: &Subjects) -> Vec<Rule> {
    let rule = |(index, rule): (usize, &Read<ClusterRule>)| match rule {
        Read::Known(rule) => {
            known(Head { direction, index, name: rule.name.clone() }, subjects, body(rule))
        }
        Read::Unknown(what) => {
            let head = Head { direction, index, name: what.name.clone() };
            unknown(head, subjects, what, "Accept")
        }
    };
    rules.iter().enumerate().map(rule).collect()
}

fn body(rule: &ClusterRule) -> Body {
    let action = match rule.action {
        ClusterAction::Accept => Action::Allow,
        ClusterAction::Deny => Action::Drop,
        ClusterAction::Pass => Action::Pass,
    };
    let traffic = match rule.protocols.as_slice() {
        [] => Traffic::Any,
        protocols => Traffic::Of(protocols.iter().map(transport).collect()),
    };
    let peers = Peers::Of(rule.peers.iter().flat_map(peers_of).collect());
    Body { action, peers, traffic, log: None }
}

fn pods(selects: &NamespacedPods) -> Pods {
    Pods::Labeled {
        scope: Scope::Namespaces(selects.namespaces.clone()),
        pods: selects.pods.clone(),
    }
}

fn peers_of(peer: &ClusterPeer) -> Vec<Peer> {
    match peer {
        ClusterPeer::Pods(selects) => vec![Peer::Pods(pods(selects))],
        ClusterPeer::Networks(ranges) => {
            let block = |cidr| Peer::Block(Block { cidr, except: Vec::new() });
            ranges.iter().copied().map(block).collect()
        }
        ClusterPeer::Nodes(selector) => vec![Peer::Nodes(selector.clone())],
        ClusterPeer::Domains(names) => {
            names.iter().cloned().map(NameMatch::Domain).map(Peer::Name).collect()
        }
    }
}

fn transport(protocol: &ProtocolMatch) -> Transport {
    match protocol {
        ProtocolMatch::Ports(protocol, range) => Transport::Ports {
            protocol: *protocol,
            port: range.map(TargetPort::Numbers),
            source: None,
        },
        ProtocolMatch::Named(name) => Transport::Named(name.clone()),
    }
}
