use super::*;
use proptest::{collection::vec, prelude::*};

fn fault(code: &str, remedy: Remedy) -> CloudFault {
    CloudFault { code: code.into(), message: "the test's".into(), remedy }
}

fn throttled() -> CloudFault {
    fault("RequestLimitExceeded", Remedy::RetryAfter { wait: None })
}

fn internal() -> CloudFault {
    fault("InternalError", Remedy::RetryAfter { wait: None })
}

/// Takes every allowed token from `now` to `end` and returns the times.
fn take_all(budgets: &mut Budgets, action: Action, mut now: Time, end: Time) -> Vec<Time> {
    let mut taken = Vec::new();
    while now <= end {
        match budgets.next(action, now) {
            Some(next) => {
                assert!(next > now, "the time of the next call is in the past");
                now = next;
            }
            None => {
                budgets.take(action, now);
                taken.push(now);
            }
        }
    }
    taken
}

#[test]
fn a_burst_is_allowed_at_once_and_then_the_rate() {
    let mut budgets = Budgets::new(CallLimits::default(), 1);
    let taken = take_all(&mut budgets, Action::Create, Time(1000), Time(11_000));
    assert_eq!(taken.iter().filter(|at| at.0 == 1000).count(), 20);
    assert_eq!(taken.len(), 20 + 20, "{taken:?}");
}

#[test]
fn an_operator_may_allow_more_or_less() {
    let limits = CallLimits { burst: 50, changes_per_second: 10, reads_per_second: 1 };
    let taken = |action| {
        let mut budgets = Budgets::new(limits, 1);
        let taken = take_all(&mut budgets, action, Time(0), Time(10_000)).len();
        let view = budgets.views(Time(10_000)).pop();
        (taken, view.map(|view| (view.burst, view.rate_milli_per_second)))
    };
    assert_eq!(taken(Action::Attach), (50 + 100, Some((50, 10_000))));
    assert_eq!(taken(Action::Describe), (50 + 10, Some((50, 1000))));
}

#[test]
fn one_throttled_call_halves_the_rate_and_empties_the_bucket_of_its_action_alone() {
    let mut budgets = Budgets::new(CallLimits::default(), 1);
    budgets.take(Action::Assign, Time(0));
    let lesson = budgets.failed(Action::Assign, &throttled(), Time(0), Time(100));
    assert_eq!(lesson, BudgetChange::Halved { rate_milli: 1000 });
    let next = budgets.next(Action::Assign, Time(100));
    assert!(next.is_some_and(|at| at.0 >= 600 && at.0 <= 1600), "{next:?}");
    assert_eq!(budgets.next(Action::Create, Time(100)), None);
}

#[test]
fn an_abandoned_wait_does_not_count_for_the_next_call() {
    let mut budgets = Budgets::new(CallLimits::default(), 1);
    budgets.failed(Action::Create, &internal(), Time(0), Time(100));
    let next = budgets.next(Action::Create, Time(100)).unwrap_or_default();
    assert_eq!(budgets.take(Action::Create, Time(3_600_000)), next.since(Time(100)));
    budgets.failed(Action::Create, &internal(), Time(0), Time(4_000_000));
    budgets.next(Action::Create, Time(4_000_000));
    budgets.failed(Action::Create, &internal(), Time(0), Time(8_000_000));
    let next = budgets.next(Action::Create, Time(8_000_000)).unwrap_or_default();
    assert_eq!(budgets.take(Action::Create, next), next.since(Time(8_000_000)));
}

#[test]
fn no_answer_stops_an_action_forever() {
    for code in ["RequestLimitExceeded", "InternalError"] {
        let mut budgets = Budgets::new(CallLimits::default(), 1);
        let wait = Some(Span(u64::MAX));
        let asked = fault(code, Remedy::RetryAfter { wait });
        budgets.failed(Action::Create, &asked, Time(0), Time(100));
        let next = budgets.next(Action::Create, Time(100));
        assert!(next.is_some_and(|at| at < Time(0) + Span::seconds(400)), "{code}: {next:?}");
    }
}

#[test]
fn calls_under_way_together_reduce_the_rate_once() {
    let mut budgets = Budgets::new(CallLimits::default(), 1);
    for done in 100..110 {
        budgets.failed(Action::Create, &throttled(), Time(50), Time(done));
    }
    let lesson = budgets.failed(Action::Create, &throttled(), Time(50), Time(110));
    assert_eq!(lesson, BudgetChange::Halved { rate_milli: 1000 });
    let lesson = budgets.failed(Action::Create, &throttled(), Time(200), Time(300));
    assert_eq!(lesson, BudgetChange::Halved { rate_milli: 500 });
}

#[test]
fn under_lasting_throttling_one_call_in_half_a_minute_remains() {
    let mut budgets = Budgets::new(CallLimits::default(), 7);
    let mut now = Time(0);
    let mut calls = 0;
    while now < Time(3_600_000) {
        now = budgets.next(Action::Create, now).unwrap_or(now);
        budgets.take(Action::Create, now);
        calls += 1;
        budgets.failed(Action::Create, &throttled(), now, now + Span(200));
        now = now + Span(200);
    }
    assert!((100..140).contains(&calls), "{calls} calls in an hour");
}

#[test]
fn under_pressure_one_call_in_eight_seconds_remains() {
    let mut budgets = Budgets::new(CallLimits::default(), 7);
    let throttle_for = |budgets: &mut Budgets, from: u64, to: u64| {
        let (mut now, mut calls) = (Time(from), 0);
        while now < Time(to) {
            now = budgets.next(Action::Assign, now).unwrap_or(now);
            budgets.take(Action::Assign, now);
            calls += 1;
            budgets.failed(Action::Assign, &throttled(), now, now + Span(200));
            now = now + Span(200);
        }
        calls
    };
    assert!((10..25).contains(&throttle_for(&mut budgets, 0, 300_000)));
    budgets.press(true);
    assert!((60..90).contains(&throttle_for(&mut budgets, 300_000, 900_000)));
    let views = budgets.views(Time(900_000));
    assert_eq!(views.first().map(|view| view.rate_milli_per_second), Some(125));
    budgets.press(false);
    assert!((10..25).contains(&throttle_for(&mut budgets, 900_000, 1_200_000)));
}

#[test]
fn after_a_throttled_call_refills_are_delayed() {
    let mut budgets = Budgets::new(CallLimits::default(), 1);
    assert_eq!(budgets.storm(CALM, Time(0)), None);
    budgets.failed(Action::Describe, &internal(), Time(0), Time(0));
    assert_eq!(budgets.storm(CALM, Time(0)), None);
    budgets.failed(Action::Describe, &throttled(), Time(0), Time(0));
    let until = budgets.storm(CALM, Time(1)).map_or(0, |until| until.0);
    assert!((45_000..=75_000).contains(&until), "{until}");
    assert_eq!(budgets.storm(CALM, Time(until)), None);
}

#[test]
fn the_wait_that_ec2_asks_for_is_kept() {
    let mut budgets = Budgets::new(CallLimits::default(), 1);
    let wait = Some(Span::seconds(70));
    let asked = fault("Throttling", Remedy::RetryAfter { wait });
    budgets.failed(Action::Describe, &asked, Time(0), Time(0));
    assert_eq!(budgets.next(Action::Describe, Time(1)), Some(Time(70_000)));
}

#[test]
fn other_faults_pause_longer_each_time_at_the_same_rate_until_a_success() {
    let mut budgets = Budgets::new(CallLimits::default(), 7);
    let mut pauses = Vec::new();
    for _ in 0..12 {
        assert_eq!(
            budgets.failed(Action::Assign, &internal(), Time(0), Time(0)),
            BudgetChange::Rests
        );
        pauses.push(budgets.next(Action::Assign, Time(0)).map_or(0, |until| until.0));
    }
    assert!(pauses[0] >= 375 && pauses[0] <= 625, "{pauses:?}");
    assert!(pauses[11] >= 22_500 && pauses[11] <= 37_500, "{pauses:?}");
    budgets.succeeded(Action::Assign, Time(60_000));
    assert_eq!(budgets.next(Action::Assign, Time(60_000)), None);
    budgets.failed(Action::Assign, &internal(), Time(60_000), Time(60_000));
    assert!(budgets.next(Action::Assign, Time(60_000)).is_some_and(|at| at.0 < 61_000));
}

#[test]
fn a_call_reports_the_time_since_its_first_request() {
    let mut budgets = Budgets::new(CallLimits::default(), 1);
    assert_eq!(budgets.take(Action::Create, Time(0)), Span(0));
    budgets.failed(Action::Create, &throttled(), Time(0), Time(10));
    assert!(budgets.next(Action::Create, Time(20)).is_some());
    let next = budgets.next(Action::Create, Time(200)).unwrap_or_default();
    assert_eq!(budgets.take(Action::Create, next), next.since(Time(20)));
}

#[test]
fn throttling_codes_reduce_the_rate() {
    let again = Remedy::RetryAfter { wait: None };
    for (code, remedy, wanted) in [
        ("RequestLimitExceeded", again, true),
        ("Throttling", again, true),
        ("ThrottlingException", again, true),
        ("EC2ThrottledException", again, true),
        ("RequestThrottledException", again, true),
        ("HTTP429", again, true),
        ("InternalError", again, false),
        ("Timeout", Remedy::Unknown, false),
        ("NetworkInterfaceLimitExceeded", Remedy::LimitReached, false),
    ] {
        assert_eq!(is_throttling(&fault(code, remedy)), wanted, "{code}");
    }
}

#[derive(Clone, Debug)]
enum Step {
    Wait(u64),
    Take,
    Succeed,
    Throttle,
    Fail,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..20_000_u64).prop_map(Step::Wait),
        8 => Just(Step::Take),
        3 => Just(Step::Succeed),
        2 => Just(Step::Throttle),
        1 => Just(Step::Fail),
    ]
}

/// Runs the steps and returns the times of the calls and the end.
fn play(budgets: &mut Budgets, steps: &[Step]) -> (Vec<u64>, Time) {
    let (mut now, mut taken) = (Time(5000), Vec::new());
    for step in steps {
        match step {
            Step::Wait(millis) => now = now + Span(*millis),
            Step::Take => {
                if budgets.next(Action::Create, now).is_none() {
                    budgets.take(Action::Create, now);
                    taken.push(now.0);
                }
            }
            Step::Succeed => budgets.succeeded(Action::Create, now),
            Step::Throttle => {
                budgets.failed(Action::Create, &throttled(), now, now);
            }
            Step::Fail => {
                budgets.failed(Action::Create, &internal(), now, now);
            }
        }
    }
    (taken, now)
}

proptest! {
    #[test]
    fn no_window_holds_more_calls_than_burst_and_rate_allow(steps in vec(step(), 1..300)) {
        let (taken, _) = play(&mut Budgets::new(CallLimits::default(), 3), &steps);
        let Ceiling { burst, rate } = Ceiling::of(Action::Create, CallLimits::default());
        for (first, from) in taken.iter().enumerate() {
            for (last, to) in taken.iter().enumerate().skip(first) {
                let calls = u64::try_from(last - first + 1).unwrap_or(u64::MAX);
                let allowed = u64::from(burst) * 1_000_000 + rate * (to - from);
                prop_assert!(calls * 1_000_000 <= allowed, "{calls} calls from {from} to {to}");
            }
        }
    }

    #[test]
    fn after_a_throttling_there_is_no_call_before_half_a_calls_time(steps in vec(step(), 1..100)) {
        let mut budgets = Budgets::new(CallLimits::default(), 3);
        let (_, end) = play(&mut budgets, &steps);
        // Started after the last halving, so it counts.
        let now = end + Span(1);
        let BudgetChange::Halved { rate_milli } = budgets.failed(Action::Create, &throttled(), now, now)
        else { return Err(TestCaseError::fail("throttling is not seen as such")) };
        let next = budgets.next(Action::Create, now).map(|at| at.since(now).0);
        prop_assert!(next.is_some_and(|wait| wait >= 500_000 / rate_milli), "{next:?}");
    }

    #[test]
    fn whatever_happened_peace_brings_it_all_back(steps in vec(step(), 1..100)) {
        let mut budgets = Budgets::new(CallLimits::default(), 3);
        let (_, end) = play(&mut budgets, &steps);
        let later = end + Span::seconds(20 * 60);
        let taken = take_all(&mut budgets, Action::Create, later, later);
        prop_assert_eq!(taken.len(), 20);
    }

    #[test]
    fn calls_that_go_through_bring_the_rate_back(steps in vec(step(), 1..100)) {
        let mut budgets = Budgets::new(CallLimits::default(), 3);
        let (_, end) = play(&mut budgets, &steps);
        for call in 0..16 {
            budgets.succeeded(Action::Create, end + Span(call));
        }
        let BudgetChange::Halved { rate_milli } =
            budgets.failed(Action::Create, &throttled(), end + Span(17), end + Span(17))
        else { return Err(TestCaseError::fail("throttling is not seen as such")) };
        prop_assert_eq!(rate_milli, Ceiling::of(Action::Create, CallLimits::default()).rate / 2);
    }

    #[test]
    fn the_same_seed_gives_the_same_times(steps in vec(step(), 1..100), seed: u64) {
        let times = |seed| play(&mut Budgets::new(CallLimits::default(), seed), &steps).0;
        prop_assert_eq!(times(seed), times(seed));
    }
}

#[test]
fn nodes_that_were_throttled_together_retry_at_different_times() {
    let next = |seed| {
        let mut budgets = Budgets::new(CallLimits::default(), seed);
        budgets.failed(Action::Create, &throttled(), Time(0), Time(0));
        budgets.next(Action::Create, Time(0)).map_or(0, |at| at.0)
    };
    let apart: std::collections::BTreeSet<u64> = (0..100).map(next).collect();
    assert!(apart.len() > 50, "{apart:?}");
}

#[test]
fn the_last_fault_of_ec2_is_kept_until_a_call_succeeds() {
    let mut budgets = Budgets::new(CallLimits::default(), 1);
    assert_eq!(budgets.fault(Action::Assign), None);
    let refused = fault("UnauthorizedOperation", Remedy::NotifyOperator);
    budgets.failed(Action::Assign, &refused, Time(0), Time(1));
    let said = budgets.fault(Action::Assign);
    assert!(said.is_some_and(|said| said.contains("UnauthorizedOperation")));
    assert_eq!(budgets.fault(Action::Create), None);
    budgets.succeeded(Action::Assign, Time(2));
    assert_eq!(budgets.fault(Action::Assign), None);
}
