//! NetworkPolicy and ApplicationNetworkPolicy.

use super::{Body, Head, Subjects, key, known, matches_nothing};
use crate::{
    Action, Direction, Isolation, NameMatch, Peer, Peers, Pods, Policy, Precedence, Priority, Rule,
    Scope, Tier, Traffic, Transport,
};
use policy_objects::{
    Flavor, Kind, NetworkPeer, NetworkPolicy, NetworkPort, NetworkRule, PolicyType, Read,
};

pub(super) fn compile(policy: &NetworkPolicy) -> Policy {
    let kind = match policy.flavor {
        Flavor::Kubernetes => Kind::NetworkPolicy,
        Flavor::Aws => Kind::AwsApplicationNetworkPolicy,
    };
    let own = &policy.meta.namespace;
    let scope = Scope::Namespace(own.clone());
    let pods = Pods::Labeled { scope, pods: policy.subject.selects.clone() };
    let doubt = policy.subject.doubt.clone();
    let subjects = Subjects { pods: vec![pods], doubt, unfit: None };

    let ingress = policy.types.contains(&PolicyType::Ingress);
    let egress = policy.types.contains(&PolicyType::Egress);
    // Rules of a direction that the policy lacks are dead letters.
    let mut rules = Vec::new();
    if ingress {
        rules.extend(rules_of(Direction::Ingress, &policy.ingress, &subjects, own));
    }
    if egress {
        rules.extend(rules_of(Direction::Egress, &policy.egress, &subjects, own));
    }
    Policy {
        key: key(kind, &policy.meta),
        uid: policy.meta.uid.clone(),
        place: Precedence { tier: Tier::NetworkPolicy, priority: Priority::new(0.0) },
        isolation: Some(Isolation {
            subject: subjects.pods,
            doubt: subjects.doubt,
            ingress,
            egress,
        }),
        rules,
    }
}

fn rules_of(
    direction: Direction,
    rules: &[Read<NetworkRule>],
    subjects: &Subjects,
    own: &str,
) -> Vec<Rule> {
    let rule = |(index, rule): (usize, &Read<NetworkRule>)| {
        let head = Head { direction, index, name: None };
        match rule {
            Read::Known(rule) => known(head, subjects, body(rule, own)),
            Read::Unknown(unknown) => matches_nothing(head, subjects, &unknown.why),
        }
    };
    rules.iter().enumerate().map(rule).collect()
}

fn body(rule: &NetworkRule, own: &str) -> Body {
    let peers = match rule.peers.as_slice() {
        [] => Peers::Any,
        peers => Peers::Of(peers.iter().flat_map(|peer| peers_of(peer, own)).collect()),
    };
    let traffic = match rule.ports.as_slice() {
        [] => Traffic::Any,
        ports => Traffic::Of(ports.iter().map(transport).collect()),
    };
    Body { action: Action::Allow, peers, traffic, log: None }
}

fn peers_of(peer: &NetworkPeer, own: &str) -> Vec<Peer> {
    match peer {
        NetworkPeer::Pods { namespaces, pods } => {
            let scope = match namespaces {
                Some(selector) => Scope::Namespaces(selector.clone()),
                None => Scope::Namespace(own.to_owned()),
            };
            let pods = pods.clone().unwrap_or_default();
            vec![Peer::Pods(Pods::Labeled { scope, pods })]
        }
        NetworkPeer::Block(block) => vec![Peer::Block(block.clone())],
        NetworkPeer::Domains(names) => {
            names.iter().cloned().map(NameMatch::Domain).map(Peer::Name).collect()
        }
    }
}

fn transport(port: &NetworkPort) -> Transport {
    Transport::Ports { protocol: port.protocol, port: port.port.clone(), source: None }
}
