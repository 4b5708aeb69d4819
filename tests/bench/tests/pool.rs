//! What `cargo xtask bench pool` promises, held on smaller traces. Simulated time: nothing here
//! depends on how fast the machine is.

use std::sync::LazyLock;
use tests_bench::pool::{
    Bound, Contest, DaemonKind, PoolSetting, Scale, Search, SearchEffort, Trace, Tuned, cheapest,
    run,
};

const MODES: [bool; 2] = [false, true];

/// A trace, and what it came to with the default settings.
struct Held {
    trace: Trace,
    prefixes: bool,
    contest: Contest,
}

static CONTESTS: LazyLock<Vec<Held>> = LazyLock::new(|| {
    let traces = MODES.into_iter().flat_map(|prefixes| {
        Trace::all(Scale::Small, prefixes).into_iter().map(move |trace| (trace, prefixes))
    });
    traces
        .map(|(trace, prefixes)| {
            let contest = Contest::hold(&trace, PoolSetting::defaults(prefixes), 1);
            Held { contest: contest.expect("a cloud for the trace"), trace, prefixes }
        })
        .collect()
});

impl Held {
    fn name(&self) -> String {
        format!("{}, prefixes: {}", self.trace.name, self.prefixes)
    }
}

#[test]
fn no_add_of_ours_fails_and_no_pod_goes_without_an_address() {
    for held in CONTESTS.iter() {
        let Contest { ours, announced, .. } = &held.contest;
        for tally in [ours, announced] {
            assert_eq!((tally.failed_adds, tally.unserved), (0, 0), "{}", held.name());
        }
    }
}

#[test]
fn the_rival_fails_where_it_is_known_to() {
    for held in CONTESTS.iter() {
        let known = ["burst", "churn", "rolling"].contains(&held.trace.name);
        let failed = held.contest.rival.failed_adds;
        assert_eq!(failed > 0, known, "{}: {failed} ADDs", held.name());
    }
}

/// The churn is the one trace in which the rival leaves pods without any address: of single
/// addresses it attaches two ENIs where the pods need seven.
#[test]
fn we_make_no_more_calls_than_the_rival_and_fewer_for_each_pod_that_is_served() {
    let mut not_compared = Vec::new();
    for held in CONTESTS.iter() {
        let Contest { ours, announced, rival } = &held.contest;
        for tally in [ours, announced] {
            let (each, rivals) = (tally.calls_per_thousand_pods(), rival.calls_per_thousand_pods());
            assert!(each <= rivals, "{}: {each} to {rivals} {:#?}", held.name(), tally.calls);
            let (calls, rivals) = (tally.all_calls(), rival.all_calls());
            if held.contest.rival_serves_all() {
                assert!(calls <= rivals, "{}: {:#?}", held.name(), tally.calls);
            } else if calls > rivals {
                not_compared.push((held.trace.name, held.prefixes));
            }
        }
    }
    assert_eq!(not_compared, [("churn", false); 2]);
}

/// Announced pods find their addresses ready, as far as one or two seconds suffice.
#[test]
fn nobody_waits_longer_for_having_been_announced() {
    for held in CONTESTS.iter() {
        let Contest { ours, announced, .. } = &held.contest;
        let sum = |tally: &tests_bench::pool::Tally| -> u64 {
            tally.waits.iter().map(|wait| wait.0).sum()
        };
        let (announced, ours) = (sum(announced), sum(ours));
        assert!(announced <= ours, "{}: {announced} ms to {ours} ms", held.name());
        if held.trace.name == "burst" {
            assert!(announced * 2 < ours, "{}: {announced} ms to {ours} ms", held.name());
        }
    }
}

/// Twenty nodes share a bucket of two and one in ten seconds: 180 s after its start the bucket has
/// given each of them the one call that shows it its ENIs.
#[test]
fn the_last_node_to_join_waits_little_longer_than_the_bucket_takes() {
    let joins = CONTESTS.iter().filter(|held| held.trace.name == "join");
    for held in joins {
        let last = held.contest.ours.first_pod(100);
        assert!(last <= 1.5 * 180.0, "{}: {last} s", held.name());
    }
}

/// Each at the cheapest targets of the same grid at which its ADDs fail as seldom as can be; and
/// ours at the cheapest with no more calls than the rival then makes.
#[test]
fn tuned_to_equal_failures_we_hold_fewer_idle_addresses() {
    for held in CONTESTS.iter() {
        let (trace, prefixes, name) = (&held.trace, held.prefixes, held.name());
        let all = |who| -> Vec<Tuned> {
            let search = Search { who, trace, prefixes, seed: 1, effort: SearchEffort::Little };
            search.grid().expect("a cloud for the trace")
        };
        let (ours, rival) = (all(DaemonKind::Ours), all(DaemonKind::Rival));
        let any_calls = Bound { failed_adds: 0, calls: u64::MAX };
        let rival = cheapest(&rival, any_calls).expect("a setting");
        let tuned = cheapest(&ours, any_calls).expect("a setting");
        let no_more_calls = Bound { failed_adds: 0, calls: rival.tally.all_calls() };
        let thrifty = cheapest(&ours, no_more_calls).expect("a setting");
        assert!(thrifty.tally.all_calls() <= rival.tally.all_calls(), "{name}");
        for ours in [tuned, thrifty] {
            assert_eq!((ours.tally.failed_adds, ours.tally.unserved), (0, 0), "{name}");
            // The same pool where both need it, had up to five seconds sooner.
            let (ours, rival) = (ours.tally.idle_share(), rival.tally.idle_share());
            assert!(ours <= rival * 1.01, "{name}: {ours} to {rival}");
        }
    }
}

#[test]
fn the_same_seed_is_the_same_story() {
    let trace = Trace::all(Scale::Small, false).swap_remove(1);
    for who in [DaemonKind::Ours, DaemonKind::Rival] {
        let once = |seed| run(who, &trace, PoolSetting::defaults(false), seed).expect("a cloud");
        assert_eq!(once(1), once(1));
    }
}
