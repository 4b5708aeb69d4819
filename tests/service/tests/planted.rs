//! The judge finds each planted fault, and shrinks the world that shows it to a few objects.

use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use service_core::{Index, Packet, Route, World};
use std::cell::RefCell;
use tests_service::{
    judge::{WORLDS, cases, judge},
    naive,
    planted::Fault,
    scenario::{Scenario, world},
    text::{Vector, read, show_route},
};

/// The answer of the index of `service-core`. Each packet of a world asks the same index.
fn indexed(world: &World, packet: &Packet) -> Route {
    thread_local! {
        static LAST: RefCell<Index> = RefCell::default();
    }
    LAST.with_borrow_mut(|index| {
        if index.world() != world {
            *index = Index::of(world.clone());
            index.take_changes();
        }
        index.route(packet)
    })
}

/// The shrunk world that shows a fault of the index, and its first packet with the right route.
fn found(fault: Fault) -> Option<Vector> {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(cases(WORLDS), rng);
    let run = runner.run(&world(), |Scenario(world)| {
        judge(&world, |packet| fault.answer(&world, packet, indexed)).map_err(TestCaseError::fail)
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
        let wrong = show_route(&fault.answer(&world, packet, indexed));
        assert_ne!(&wrong, right);
        let objects = world.services.len() + world.slices.len();
        assert!(objects <= 4, "{fault:?}: {:?}", Scenario(world));
    }
}
