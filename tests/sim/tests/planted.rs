//! The simulation finds planted faults within a thousand lives.

use tests_sim::{Law, Mode, Plan, Planted, RunOptions, run, shrink};

/// The first life that finds the fault, and the broken law.
fn found(planted: Planted) -> (u64, Law) {
    found_in(Mode::Secondary, planted)
}

fn found_in(mode: Mode, planted: Planted) -> (u64, Law) {
    let watching = RunOptions { planted: Some(planted), ..RunOptions::default() };
    let broken = (1..=1000).find_map(|seed| {
        let plan = Plan::of(seed, Some(mode));
        Some((seed, run(&plan, watching).violation?.law))
    });
    broken.unwrap_or_else(|| panic!("{planted} is not found in a thousand lives"))
}

#[test]
fn a_cooldown_that_is_not_counted_is_found() {
    assert_eq!(found(Planted::CooldownNotCounted).1, Law::NotCooled);
}

#[test]
fn imds_trusted_alone_is_found() {
    let law = found(Planted::ImdsTrustedAlone).1;
    assert!(matches!(law, Law::AboveLimits | Law::NotOnEni | Law::Returned), "{law:?}");
}

#[test]
fn a_reply_before_the_checkpoint_is_found() {
    assert_eq!(found(Planted::CheckpointAfterReply).1, Law::AheadOfDisk);
}

#[test]
fn a_release_before_the_kernel_is_clean_is_found() {
    let law = found(Planted::ReleasedBeforeClean).1;
    assert!(matches!(law, Law::KernelDirty | Law::Returned), "{law:?}");
}

#[test]
fn a_late_del_that_frees_the_next_pods_address_is_found() {
    let law = found(Planted::LateDelFreesNext).1;
    assert!(matches!(law, Law::CutOff | Law::OnTwoPods | Law::Returned), "{law:?}");
}

#[test]
fn a_branch_that_is_looked_up_by_its_pods_name_alone_is_found() {
    assert_eq!(found_in(Mode::Trunk, Planted::BranchByName).1, Law::BranchOfAnother);
}

#[test]
fn a_link_that_is_deleted_by_its_name_alone_is_found() {
    let law = found(Planted::VethByName).1;
    assert!(matches!(law, Law::CutOff | Law::LinkOfAnother), "{law:?}");
}

#[test]
fn a_found_fault_is_shrunk_to_few_steps() {
    let planted = Planted::LateDelFreesNext;
    let (seed, law) = found(planted);
    let plan = Plan::of(seed, Some(Mode::Secondary));
    let shortest = shrink(&plan, law, Some(planted), 200);
    assert!(shortest.steps.len() <= 5, "{:#?}", shortest.steps);
    assert!(shortest.steps.len() < plan.steps.len());
}
