//! `verdict` beside an evaluator written apart.

use policy_core::verdict;
use proptest::{collection::vec, prelude::*, test_runner::TestCaseError};
use tests_policy::{
    beside::{self, difference},
    made::{Made, Sketch, baselines, sketch, world},
    naive::Naive,
    tries,
};

/// Whether both say the same of each packet, and why.
fn agree(made: &Made, sketches: &[Sketch]) -> Result<(), TestCaseError> {
    let model = beside::world(made);
    let naive = Naive { objects: &made.objects, names: &made.names };
    for packet in sketches.iter().filter_map(|sketch| sketch.packet(made)) {
        let answer = naive.answer(&packet);
        let verdict = verdict(&model, &beside::packet(&packet));
        if let Some(difference) = difference(&answer, &verdict) {
            return Err(TestCaseError::fail(format!("{packet:?}\n{difference}")));
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(tries(1000))]

    #[test]
    fn the_model_and_an_evaluator_written_apart_agree(
        made in world(),
        sketches in vec(sketch(), 8..64),
    ) {
        agree(&made, &sketches)?;
    }

    #[test]
    fn they_agree_on_tiers_after_network_policies(
        made in baselines(),
        sketches in vec(sketch(), 8..32),
    ) {
        agree(&made, &sketches)?;
    }
}
