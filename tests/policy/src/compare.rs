//! Comparison of the model's answer with that of the naive evaluator.

use crate::{
    naive::{self, Answer, By},
    scenario::Scenario,
};
use policy_core::{
    Decision, Direction, Exemption, Half, Origin, Packet, Reason, RuleName, Segment, State,
    Verdict, World,
};
use policy_objects::Named;

/// Converts a world for the model.
pub fn world(scenario: &Scenario) -> World {
    let mut world = World::new(scenario.objects.iter().cloned());
    for (address, name) in &scenario.names {
        world.name(*address, name);
    }
    world
}

/// Converts a packet for the model.
pub fn packet(packet: &naive::Packet) -> Packet {
    let origin = match &packet.origin {
        naive::Origin::Pod(namespace, name) => {
            Origin::Pod(Named { namespace: namespace.clone(), name: name.clone() })
        }
        naive::Origin::Node(node) => Origin::Node(node.clone()),
        naive::Origin::Forwarded => Origin::Forwarded,
    };
    let segment = match packet.segment {
        naive::Segment::Ports(protocol, source, destination) => {
            Segment::Ports { protocol, source, destination }
        }
        naive::Segment::Icmp(kind, code) => Segment::Icmp { kind, code },
        naive::Segment::Other(number) => Segment::Other(number),
    };
    let state = match packet.state {
        naive::State::New => State::New,
        naive::State::Established => State::Established,
        naive::State::Reply => State::Reply,
        naive::State::Related => State::Related,
    };
    let naive::Packet { source, destination, service, .. } = *packet;
    Packet { origin, source, destination, service, segment, state }
}

/// Describes the first difference of the model from the naive answer. `None` if they agree.
pub fn difference(naive: &Answer, verdict: &Verdict) -> Option<String> {
    let differs = |what: &str| Some(format!("{what}\nnaive: {naive:#?}\nmodel: {verdict:#?}"));
    if !is_same(naive.decision, verdict.decision) {
        return differs("decision");
    }
    let whole = naive.out.is_none() && naive.into.is_none();
    let halves = [
        ("egress", Direction::Egress, &naive.out, &verdict.egress),
        ("ingress", Direction::Ingress, &naive.into, &verdict.ingress),
    ];
    for (what, direction, naive, model) in halves {
        let agree = match (naive, model) {
            (None, None) => true,
            (None, Some(model)) => whole && is_exempt(model),
            (Some(_), None) => false,
            (Some(naive), Some(model)) => {
                is_same(naive.decision, model.decision) && is_by(&naive.by, model, direction)
            }
        };
        if !agree {
            return differs(what);
        }
    }
    None
}

fn is_same(naive: naive::Decision, model: Decision) -> bool {
    match naive {
        naive::Decision::Allow => model == Decision::Allow,
        naive::Decision::Drop => model == Decision::Drop,
        naive::Decision::Reject => model == Decision::Reject,
    }
}

fn is_exempt(half: &Half) -> bool {
    half.decision == Decision::Allow && matches!(half.reason, Reason::Exemption { .. })
}

fn is_by(by: &By, half: &Half, direction: Direction) -> bool {
    match (by, &half.reason) {
        (By::Rules(any), Reason::Rule { rule } | Reason::NotUnderstood { rule, .. }) => {
            rule.direction == direction && any.contains(&rule_id(rule))
        }
        (By::Isolation, Reason::Isolation { .. })
        | (By::Exemption, Reason::Exemption { exemption: Exemption::FromOwnNode })
        | (By::Default, Reason::Default)
        // An exemption from NetworkPolicies alone, and no other policy decided.
        | (
            By::Default,
            Reason::Exemption { exemption: Exemption::ToOwnNode | Exemption::Hairpin },
        ) => true,
        (By::Rules(_) | By::Isolation | By::Exemption | By::Default, _) => false,
    }
}

fn rule_id(rule: &RuleName) -> naive::RuleId {
    let policy_core::PolicyKey { kind, namespace, name } = rule.policy.clone();
    naive::RuleId { kind, namespace, name, index: rule.index }
}
