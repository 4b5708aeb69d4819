//! The policies that we hand out, against what simulated nodes ask of EC2.

use config_iam::{Mode as Needs, Seen, grants};
use std::collections::{BTreeMap, BTreeSet};
use tests_sim::{Asked, Law, Mode, Plan, Scope, Violation, Watching, run};

/// So many lives of each mode.
const EACH: u64 = 4;

/// What lives with a policy asked, and the laws that they broke.
fn lives(mode: Mode, scope: Scope) -> (Asked, Vec<Violation>) {
    let mut asked = Asked::default();
    let mut broken = Vec::new();
    for seed in 1..=EACH {
        let watching = Watching { iam: Some(scope), ..Watching::default() };
        let outcome = run(&Plan::of(seed, Some(mode)), watching);
        asked.actions.extend(outcome.asked.actions);
        asked.refused.extend(outcome.asked.refused);
        broken.extend(outcome.violation);
    }
    (asked, broken)
}

#[test]
fn the_policy_of_a_mode_allows_all_that_its_lives_ask_and_nothing_more() {
    let mut called: BTreeMap<Needs, BTreeSet<String>> = BTreeMap::new();
    for mode in Mode::ALL {
        let (asked, broken) = lives(*mode, Scope::Account);
        assert!(asked.refused.is_empty(), "{mode}: {:?}", asked.refused);
        assert!(broken.is_empty(), "{mode}: {broken:?}");
        called.entry(mode.needs()).or_default().extend(asked.actions);
    }
    for (needs, actions) in called {
        for grant in grants() {
            let expected = grant.modes.contains(&needs) && grant.seen == Seen::InLives;
            let seen = actions.contains(grant.action);
            assert_eq!(seen, expected, "{} of {needs:?}: {:?}", grant.action, grant.seen);
        }
    }
}

/// What others made has no tag of the cluster until the daemon has given it one; until then it may
/// not be changed, so some pods are served later. All other laws hold, and what is tagged is never
/// refused.
#[test]
fn within_a_cluster_only_what_is_not_tagged_yet_is_refused() {
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
