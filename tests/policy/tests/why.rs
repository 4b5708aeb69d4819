//! Reasons of rules that did not decide.

use policy_core::{Direction, Half, Policy, PolicyKey, Reason, Tier, WhyNot, World, verdict};
use policy_objects::{Object, Pod};
use proptest::{collection::vec, prelude::*};
use tests_policy::{
    cases, compare,
    naive::Naive,
    scenario::{Scenario, id, sketch, world},
};

/// A policy and the index of a rule of one direction.
type Name = (PolicyKey, usize);

/// All rules of a direction in evaluation order. Of Antrea policies with one tier number and priority, the position of
/// a rule decides first.
fn in_order(world: &World, direction: Direction) -> Vec<Name> {
    let policies: Vec<&Policy> = world.policies().collect();
    let tied = |one: &&Policy, other: &&Policy| {
        let place = |policy: &Policy| (world.tier_number(policy), policy.place.priority);
        let is_antrea = |policy: &Policy| matches!(policy.place.tier, Tier::Antrea(_));
        is_antrea(one) && is_antrea(other) && place(one) == place(other)
    };
    let mut all = Vec::new();
    for together in policies.chunk_by(tied) {
        let rules = together.iter().flat_map(|policy| {
            let mine = policy.rules.iter().filter(move |rule| rule.direction == direction);
            mine.map(|rule| (policy.key.clone(), rule.index))
        });
        let mut rules: Vec<Name> = rules.collect();
        if together.len() > 1 {
            rules.sort_by_key(|(_, index)| *index);
        }
        all.extend(rules);
    }
    all
}

fn decider(half: &Half) -> Option<Name> {
    match &half.reason {
        Reason::Rule { rule } | Reason::NotUnderstood { rule, .. } => {
            Some((rule.policy.clone(), rule.index))
        }
        Reason::Isolation { .. } | Reason::Exemption { .. } | Reason::Default => None,
    }
}

fn pod<'a>(scenario: &'a Scenario, half: &Half) -> &'a Pod {
    let mut pods = scenario
        .objects
        .iter()
        .filter_map(|object| if let Object::Pod(pod) = object { Some(pod) } else { None });
    let (namespace, name) = (&half.pod.namespace, &half.pod.name);
    let pod = pods.find(|pod| pod.meta.namespace == *namespace && pod.meta.name == *name);
    pod.expect("the pod of a verdict exists")
}

proptest! {
    #![proptest_config(cases(500))]

    #[test]
    fn a_verdict_lists_all_rules_before_the_decider_in_order(
        scenario in world(),
        sketches in vec(sketch(), 1..16),
    ) {
        let world = compare::world(&scenario);
        for packet in sketches.iter().filter_map(|sketch| sketch.packet(&scenario)) {
            for half in verdict(&world, &compare::packet(&packet)).halves() {
                let listed = half.earlier.iter().map(|e| (e.rule.policy.clone(), e.rule.index));
                let listed = listed.collect::<Vec<_>>();
                let all = in_order(&world, half.direction);
                prop_assert!(all.starts_with(&listed), "{half:#?}\nof {all:?}");
                match &half.reason {
                    Reason::Rule { .. } | Reason::NotUnderstood { .. } => {
                        prop_assert_eq!(all.get(listed.len()).cloned(), decider(half));
                    }
                    Reason::Default => prop_assert_eq!(all, listed),
                    Reason::Isolation { .. } | Reason::Exemption { .. } => {}
                }
            }
        }
    }

    #[test]
    fn a_verdict_reports_a_foreign_subject_exactly_if_the_rule_does_not_apply(
        scenario in world(),
        sketches in vec(sketch(), 1..16),
    ) {
        let world = compare::world(&scenario);
        let naive = Naive { objects: &scenario.objects, names: &scenario.names };
        for packet in sketches.iter().filter_map(|sketch| sketch.packet(&scenario)) {
            for half in verdict(&world, &compare::packet(&packet)).halves() {
                let pod = pod(&scenario, half);
                for earlier in &half.earlier {
                    let PolicyKey { kind, namespace, name } = earlier.rule.policy.clone();
                    let name = (kind, namespace, name);
                    let policy = scenario.objects.iter().find(|object| id(object) == name);
                    let policy = policy.expect("the policy of a rule exists");
                    let egress = half.direction == Direction::Egress;
                    let about = naive.rule_applies_to(policy, egress, earlier.rule.index, pod);
                    let expected = match &earlier.why {
                        WhyNot::Subject => Some(false),
                        WhyNot::Skipped { .. } | WhyNot::Exempt { .. } => None,
                        WhyNot::NotUnderstood { .. }
                        | WhyNot::Peer { .. }
                        | WhyNot::Protocol { .. }
                        | WhyNot::Port { .. }
                        | WhyNot::PassesOn => Some(true),
                    };
                    prop_assert!(expected.is_none_or(|expected| expected == about), "{earlier:?}, {:?}", half.pod);
                }
            }
        }
    }
}
