//! What a verdict says of the rules that did not decide.

use policy_core::{Direction, Half, PolicyKey, Reason, WhyNot, World, verdict};
use policy_objects::{Object, Pod};
use proptest::{collection::vec, prelude::*};
use tests_policy::{
    beside,
    made::{Made, id, sketch, world},
    naive::Naive,
    tries,
};

/// A rule of a direction.
type Name = (PolicyKey, usize);

/// All rules of a direction, in the one order.
fn in_order(world: &World, direction: Direction) -> Vec<Name> {
    let rules = world.policies().flat_map(|policy| {
        let mine = policy.rules.iter().filter(move |rule| rule.direction == direction);
        mine.map(|rule| (policy.key.clone(), rule.index))
    });
    rules.collect()
}

fn decider(half: &Half) -> Option<Name> {
    match &half.reason {
        Reason::Rule { rule } | Reason::NotUnderstood { rule, .. } => {
            Some((rule.policy.clone(), rule.index))
        }
        Reason::Isolation { .. } | Reason::Exemption { .. } | Reason::Default => None,
    }
}

fn pod<'a>(made: &'a Made, half: &Half) -> &'a Pod {
    let mut pods = made
        .objects
        .iter()
        .filter_map(|object| if let Object::Pod(pod) = object { Some(pod) } else { None });
    let (namespace, name) = (&half.pod.namespace, &half.pod.name);
    let pod = pods.find(|pod| pod.meta.namespace == *namespace && pod.meta.name == *name);
    pod.expect("a verdict is about pods that there are")
}

proptest! {
    #![proptest_config(tries(500))]

    #[test]
    fn all_rules_before_the_one_that_decides_are_told_in_order(
        made in world(),
        sketches in vec(sketch(), 1..16),
    ) {
        let world = beside::world(&made);
        for packet in sketches.iter().filter_map(|sketch| sketch.packet(&made)) {
            for half in verdict(&world, &beside::packet(&packet)).halves() {
                let told = half.earlier.iter().map(|e| (e.rule.policy.clone(), e.rule.index));
                let told = told.collect::<Vec<_>>();
                let all = in_order(&world, half.direction);
                prop_assert!(all.starts_with(&told), "{half:#?}\nof {all:?}");
                match &half.reason {
                    Reason::Rule { .. } | Reason::NotUnderstood { .. } => {
                        prop_assert_eq!(all.get(told.len()).cloned(), decider(half));
                    }
                    Reason::Default => prop_assert_eq!(all, told),
                    Reason::Isolation { .. } | Reason::Exemption { .. } => {}
                }
            }
        }
    }

    #[test]
    fn a_rule_is_said_to_be_about_others_if_it_is(
        made in world(),
        sketches in vec(sketch(), 1..16),
    ) {
        let world = beside::world(&made);
        let naive = Naive { objects: &made.objects, names: &made.names };
        for packet in sketches.iter().filter_map(|sketch| sketch.packet(&made)) {
            for half in verdict(&world, &beside::packet(&packet)).halves() {
                let pod = pod(&made, half);
                for earlier in &half.earlier {
                    let PolicyKey { kind, namespace, name } = earlier.rule.policy.clone();
                    let name = (kind, namespace, name);
                    let policy = made.objects.iter().find(|object| id(object) == name);
                    let policy = policy.expect("rules are of policies that there are");
                    let egress = half.direction == Direction::Egress;
                    let about = naive.is_rule_about(policy, egress, earlier.rule.index, pod);
                    let said = match &earlier.why {
                        WhyNot::Subject => Some(false),
                        WhyNot::Skipped { .. } | WhyNot::Exempt { .. } => None,
                        WhyNot::NotUnderstood { .. }
                        | WhyNot::Peer { .. }
                        | WhyNot::Protocol { .. }
                        | WhyNot::Port { .. }
                        | WhyNot::PassesOn => Some(true),
                    };
                    prop_assert!(said.is_none_or(|said| said == about), "{earlier:?}, {:?}", half.pod);
                }
            }
        }
    }
}
