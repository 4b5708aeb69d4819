//! The explanations of `service-core` against the naive evaluator.

use proptest::prelude::*;
use service_core::OutReason;
use std::collections::BTreeSet;
use tests_service::{
    judge::{WORLDS, cases},
    reasons::check,
    scenario::{Scenario, random, world},
};

proptest! {
    #![proptest_config(cases(WORLDS))]

    #[test]
    fn an_endpoint_that_is_in_is_a_backend_and_each_reason_holds(Scenario(world) in world()) {
        check(&world).map_err(TestCaseError::fail)?;
    }
}

/// The check of a reason that no world has would be empty. `limits.rs` has the last one.
#[test]
fn each_reason_is_in_some_world() {
    let mut found = BTreeSet::new();
    for seed in 0..u64::from(WORLDS) {
        found.extend(check(&random(seed).0).unwrap_or_else(|why| panic!("{why}")));
    }
    let expected = [
        OutReason::OtherProxy,
        OutReason::Headless,
        OutReason::OtherFamily,
        OutReason::NoSuchPort,
        OutReason::OtherPort,
        OutReason::NotReady,
        OutReason::Terminating,
        OutReason::Draining,
        OutReason::OtherNode,
        OutReason::NodeHint,
        OutReason::ZoneHint,
    ];
    assert_eq!(found, BTreeSet::from(expected));
}
