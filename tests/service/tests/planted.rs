//! The judge finds each planted fault, and shrinks the world that shows it to a few objects.

use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use tests_service::{
    judge::{WORLDS, cases, judge},
    naive,
    planted::Fault,
    scenario::{Scenario, world},
    text::{Vector, read, show_route},
};

/// The shrunk world that shows a fault, and its first packet with the right route.
fn found(fault: Fault) -> Option<Vector> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(cases(WORLDS), rng);
    let run = runner.run(&world(), |Scenario(world)| {
        judge(&world, |packet| fault.answer(&world, packet, naive::route))
            .map_err(TestCaseError::fail)
    });
    let Err(TestError::Fail(text, Scenario(world))) = run else { return None };
    let text = format!("== {fault:?}\n{}", text.message());
    let (vector, _) = text.split_once("\n  but the answer is: ").expect("both answers");
    let vector = read(vector).expect("a vector").remove(0);
    assert_eq!(vector.world, world);
    Some(vector)
}

#[test]
fn each_planted_fault_is_found_and_shrunk() {
    for fault in Fault::ALL {
        let Some(Vector { world, expected, .. }) = found(fault) else {
            panic!("{fault:?} is not found in {WORLDS} worlds");
        };
        let (packet, right) = &expected[0];
        assert_eq!(&show_route(&naive::route(&world, packet)), right);
        let wrong = show_route(&fault.answer(&world, packet, naive::route));
        assert_ne!(&wrong, right);
        let objects = world.services.len() + world.slices.len();
        assert!(objects <= 4, "{fault:?}: {:?}", Scenario(world));
    }
}
