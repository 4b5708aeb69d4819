//! `verdict` compared with the naive evaluator, which was written independently.

use policy_core::verdict;
use proptest::{collection::vec, prelude::*, test_runner::TestCaseError};
use tests_policy::{
    cases,
    compare::{self, difference},
    naive::Naive,
    scenario::{Scenario, Sketch, baselines, sketch, world},
};

/// Both evaluators decide each packet alike, for the same reason.
fn agree(scenario: &Scenario, sketches: &[Sketch]) -> Result<(), TestCaseError> {
    let model = compare::world(scenario);
    let naive = Naive { objects: &scenario.objects, names: &scenario.names };
    for packet in sketches.iter().filter_map(|sketch| sketch.packet(scenario)) {
        let answer = naive.answer(&packet);
        let verdict = verdict(&model, &compare::packet(&packet));
        if let Some(difference) = difference(&answer, &verdict) {
            return Err(TestCaseError::fail(format!("{packet:?}\n{difference}")));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(1000))]

    #[test]
    fn the_model_and_the_naive_evaluator_agree(
        scenario in world(),
        sketches in vec(sketch(), 8..64),
    ) {
        agree(&scenario, &sketches)?;
    }

    #[test]
    fn the_evaluators_agree_on_tiers_after_network_policies(
        scenario in baselines(),
        sketches in vec(sketch(), 8..32),
    ) {
        agree(&scenario, &sketches)?;
    }
}
