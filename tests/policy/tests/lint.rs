//! What `lint` says holds in the world that it says it of.

use policy_core::{
    Aside, Check, Direction, Finding, Half, PolicyKey, Reason, RuleName, WhyNot, decide, lint,
    verdict,
};
use proptest::{collection::vec, prelude::*};
use tests_policy::{
    beside,
    made::{sketch, world},
    tries,
};

/// Rules that decided, or passed on.
fn spoke(half: &Half) -> impl Iterator<Item = &RuleName> {
    let decided = match &half.reason {
        Reason::Rule { rule } | Reason::NotUnderstood { rule, .. } => Some(rule),
        Reason::Isolation { .. } | Reason::Exemption { .. } | Reason::Default => None,
    };
    let passed = half.earlier.iter().filter(|earlier| earlier.why == WhyNot::PassesOn);
    decided.into_iter().chain(passed.map(|earlier| &earlier.rule))
}

fn is_of(finding: &Finding, policy: &PolicyKey) -> bool {
    let object = &finding.object;
    object.kind == policy.kind.text()
        && object.namespace == policy.namespace
        && object.name == policy.name
}

fn is_about(finding: &Finding, rule: &RuleName) -> bool {
    let direction = match rule.direction {
        Direction::Ingress => "ingress",
        Direction::Egress => "egress",
    };
    is_of(finding, &rule.policy) && finding.field == format!("spec.{direction}[{}]", rule.index)
}

proptest! {
    #![proptest_config(tries(1000))]

    #[test]
    fn what_is_said_to_be_shadowed_or_to_select_nobody_never_speaks(
        made in world(),
        sketches in vec(sketch(), 1..24),
    ) {
        let world = beside::world(&made);
        let findings = lint(&world, &Aside::default());
        for packet in sketches.iter().filter_map(|sketch| sketch.packet(&made)) {
            let packet = beside::packet(&packet);
            let verdict = verdict(&world, &packet);
            prop_assert_eq!(decide(&world, &packet), verdict.decision);
            for half in verdict.halves() {
                for finding in findings.iter().filter(|finding| finding.check == Check::Shadowed) {
                    let lie = spoke(half).find(|rule| is_about(finding, rule));
                    prop_assert!(lie.is_none(), "{finding}\nbut {packet}:\n{half}");
                }
                let nobody = |finding: &&Finding| {
                    finding.check == Check::MatchesNothing && finding.field.is_empty()
                };
                for finding in findings.iter().filter(nobody) {
                    let isolates = match &half.reason {
                        Reason::Isolation { policies } => policies.as_slice(),
                        Reason::Rule { .. }
                        | Reason::NotUnderstood { .. }
                        | Reason::Exemption { .. }
                        | Reason::Default => &[],
                    };
                    let mut policies = spoke(half).map(|rule| &rule.policy).chain(isolates);
                    let lie = policies.any(|policy| is_of(finding, policy));
                    prop_assert!(!lie, "{finding}\nbut {packet}:\n{half}");
                }
            }
        }
    }
}
