//! Findings of `lint` compared with verdicts.

use policy_core::{
    Aside, Check, Direction, Finding, Half, PolicyKey, Reason, RuleName, WhyNot, decide, lint,
    verdict,
};
use proptest::{collection::vec, prelude::*};
use tests_policy::{
    cases, compare,
    scenario::{sketch, world},
};

/// Rules that decided or passed on.
fn acted(half: &Half) -> impl Iterator<Item = &RuleName> {
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
    #![proptest_config(cases(1000))]

    #[test]
    fn a_rule_that_lint_reports_as_shadowed_or_matching_nothing_never_decides(
        scenario in world(),
        sketches in vec(sketch(), 1..24),
    ) {
        let world = compare::world(&scenario);
        let findings = lint(&world, &Aside::default());
        for packet in sketches.iter().filter_map(|sketch| sketch.packet(&scenario)) {
            let packet = compare::packet(&packet);
            let verdict = verdict(&world, &packet);
            prop_assert_eq!(decide(&world, &packet), verdict.decision);
            for half in verdict.halves() {
                for finding in findings.iter().filter(|finding| finding.check == Check::Shadowed) {
                    let contradiction = acted(half).find(|rule| is_about(finding, rule));
                    prop_assert!(contradiction.is_none(), "{finding}\nbut {packet}:\n{half}");
                }
                let selects_no_pod = |finding: &&Finding| {
                    finding.check == Check::MatchesNothing && finding.field.is_empty()
                };
                for finding in findings.iter().filter(selects_no_pod) {
                    let isolates = match &half.reason {
                        Reason::Isolation { policies } => policies.as_slice(),
                        Reason::Rule { .. }
                        | Reason::NotUnderstood { .. }
                        | Reason::Exemption { .. }
                        | Reason::Default => &[],
                    };
                    let mut policies = acted(half).map(|rule| &rule.policy).chain(isolates);
                    let contradiction = policies.any(|policy| is_of(finding, policy));
                    prop_assert!(!contradiction, "{finding}\nbut {packet}:\n{half}");
                }
            }
        }
    }
}
