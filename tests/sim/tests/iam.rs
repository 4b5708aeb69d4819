//! The published IAM policies against the calls of simulated nodes.

use config_iam::{Coverage, Mode as Needs, grants};
use std::collections::{BTreeMap, BTreeSet};
use tests_sim::{Law, Mode, Plan, RecordedCalls, RunOptions, Scope, Violation, run};

/// The number of lives per mode.
const EACH: u64 = 4;

/// Runs lives with a policy, and returns their calls and broken laws.
fn lives(mode: Mode, scope: Scope) -> (RecordedCalls, Vec<Violation>) {
    let mut asked = RecordedCalls::default();
    let mut broken = Vec::new();
    for seed in 1..=EACH {
        let watching = RunOptions { iam: Some(scope), ..RunOptions::default() };
        let outcome = run(&Plan::of(seed, Some(mode)), watching);
        asked.actions.extend(outcome.calls.actions);
        asked.refused.extend(outcome.calls.refused);
        broken.extend(outcome.violation);
    }
    (asked, broken)
}

#[test]
fn the_policy_of_a_mode_allows_exactly_the_calls_of_its_lives() {
    let mut called: BTreeMap<Needs, BTreeSet<String>> = BTreeMap::new();
    for mode in Mode::ALL {
        let (asked, broken) = lives(*mode, Scope::Account);
        assert!(asked.refused.is_empty(), "{mode}: {:?}", asked.refused);
        assert!(broken.is_empty(), "{mode}: {broken:?}");
        called.entry(mode.needs()).or_default().extend(asked.actions);
    }
    for (needs, actions) in called {
        for grant in grants() {
            let expected = grant.modes.contains(&needs) && grant.coverage == Coverage::Simulation;
            let seen = actions.contains(grant.action);
            assert_eq!(seen, expected, "{} of {needs:?}: {:?}", grant.action, grant.coverage);
        }
    }
}

/// ENIs of other programs have no cluster tag until the daemon adds it. They may not be changed before that, so some
/// pods are served later. All other laws hold, and no call on a tagged ENI is refused.
#[test]
fn within_a_cluster_only_calls_on_untagged_enis_are_refused() {
    for mode in Mode::ALL {
        for scope in [Scope::Cluster, Scope::Session] {
            let (asked, mut broken) = lives(*mode, scope);
            broken.retain(|it| it.law != Law::NotServed);
            assert!(broken.is_empty(), "{mode} {scope:?}: {broken:?}");
            let tagged = asked.refused.iter().find(|refusal| refusal.tagged != Some(false));
            assert!(tagged.is_none(), "{mode} {scope:?}: {tagged:?}");
        }
    }
}
