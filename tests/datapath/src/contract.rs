//! The parts of the contract, each as one function over a subject.

use crate::{
    Subject,
    agent::Agent,
    world::{Series, entry, policy, uid, whole},
};
use config_model::{EnforcingMode, Span};
use control_wire::{
    ObjectId,
    proto::{Change, change},
};
use datapath_backend::{Backend, BackendError};
use datapath_node::{Answer, Applied, BackendEvent, Desired, Retire, Trace, Tuple, WAIT};
use std::{collections::BTreeSet, time::Duration};
use tokio::time::timeout;

fn removed(object: &ObjectId) -> Change {
    Change { of: Some(change::Of::Removed(object.to_proto())) }
}

/// States of a node whose pods and policies change.
fn states() -> Vec<Desired> {
    let mut series = Series::new();
    vec![
        series.next(vec![entry(1)], &[1]),
        series.next([policy(1, &[1]), vec![entry(2)]].concat(), &[1, 2]),
        series.next(Vec::new(), &[1, 2, 3]),
        series.next([policy(1, &[1, 2]), policy(2, &[2])].concat(), &[1, 2]),
        series.next(vec![removed(&ObjectId::policy("policy-1"))], &[2]),
        series.next(vec![removed(&ObjectId::pod(&uid(1)))], &[2, 4]),
    ]
}

fn uids(desired: &Desired) -> BTreeSet<String> {
    desired.endpoints.keys().cloned().collect()
}

async fn observed(backend: &mut impl Backend) -> BTreeSet<String> {
    let observed = backend.observe().await.expect("the state can be read");
    assert_eq!(observed.drift, Vec::<String>::new());
    observed.endpoints
}

/// Every endpoint of every state has a result, and the endpoints are observed, also by the next process.
pub async fn a_whole_state_is_in_force_and_observed<S: Subject>(subject: impl Fn() -> S) {
    let subject = subject();
    let mut backend = subject.start();
    for state in states() {
        assert_eq!(backend.apply(&state).await, Applied::complete(&state));
        assert_eq!(observed(&mut backend).await, uids(&state));
    }
    if backend.enforces() {
        let last = uids(&states()[5]);
        assert_eq!(observed(&mut subject.start()).await, last, "the state is not kept");
    }
}

/// A state that is older than the last one changes nothing.
pub async fn an_older_revision_is_refused<S: Subject>(subject: impl Fn() -> S) {
    let subject = subject();
    let mut backend = subject.start();
    let states = states();
    backend.apply(&whole(&states[3])).await;
    let before = subject.in_force();
    let outcome = backend.apply(&whole(&states[1])).await;
    let why = outcome.in_force.expect_err("it is older");
    assert!(why.contains("older"), "{why}");
    assert_eq!(subject.in_force(), before);
    assert_eq!(observed(&mut backend).await, uids(&states[3]));
    // The same revision is applied again, for example after drift.
    assert_eq!(backend.apply(&whole(&states[3])).await.in_force, Ok(()));
}

/// A state that is applied by its changes is the same as one that is applied by a full pass.
pub async fn a_set_of_changes_has_the_effect_of_a_full_pass<S: Subject>(subject: impl Fn() -> S) {
    let (by_changes, by_passes) = (subject(), subject());
    let (mut changes, mut passes) = (by_changes.start(), by_passes.start());
    for state in states() {
        let (first, second) = (changes.apply(&state).await, passes.apply(&whole(&state)).await);
        assert_eq!(first, second);
        assert_eq!(by_changes.in_force(), by_passes.in_force());
        assert_eq!(observed(&mut changes).await, observed(&mut passes).await);
    }
}

/// A full pass over a state that is in force has no effect, also in the next process.
pub async fn a_state_that_is_in_force_needs_no_effect<S: Subject>(subject: impl Fn() -> S) {
    let subject = subject();
    let Some(faults) = subject.faults() else { return };
    let state = whole(&states()[3]);
    subject.start().apply(&state).await;
    let effects = faults.effects();
    assert!(effects > 0, "a state without any effect shows nothing");
    assert_eq!(subject.start().apply(&state).await, Applied::complete(&state));
    assert_eq!(faults.effects(), effects);
}

/// A pod whose own endpoint is not in force waits, and then fails or starts open by its mode. Other pods start.
pub async fn a_failing_endpoint_holds_its_own_pod_only<S: Subject>(subject: impl Fn() -> S) {
    let subject = subject();
    let mut agent = Agent::start(subject.start()).await;
    agent.send([policy(1, &[1, 2, 3]), (1..=4).map(entry).collect()].concat()).await;
    if let Some(faults) = subject.faults() {
        faults.refuse_endpoint(&uid(1), true);
        faults.refuse_endpoint(&uid(2), true);
    }
    agent.admit(1, EnforcingMode::Strict).await;
    agent.admit(2, EnforcingMode::Standard).await;
    agent.admit(3, EnforcingMode::Strict).await;
    assert_eq!(agent.answers.get(&3), Some(&Answer::Enforced));
    let Some(faults) = subject.faults() else {
        assert_eq!(agent.answers.len(), 3, "a backend that enforces nothing holds no pod");
        return;
    };
    assert_eq!(agent.answers.len(), 1, "{:?}", agent.answers);
    agent.pass(WAIT).await;
    let why = |answer: Option<&Answer>| match answer {
        Some(Answer::Open(why)) => ("open", why.clone()),
        Some(Answer::Refused(why)) => ("refused", why.clone()),
        Some(Answer::Enforced) | None => panic!("{answer:?}"),
    };
    for (pod, expected) in [(1, "refused"), (2, "open")] {
        let (answer, why) = why(agent.answers.get(&pod));
        assert_eq!(answer, expected);
        assert!(why.contains(&uid(pod)), "{why}");
    }
    let failing = agent.node.overview().failing_endpoints;
    assert_eq!(failing.len(), 2, "{failing:?}");
    // The runtime retries the pod, which starts once the kernel accepts it.
    faults.refuse_endpoint(&uid(1), false);
    faults.refuse_endpoint(&uid(2), false);
    agent.answers.clear();
    agent.admit(1, EnforcingMode::Strict).await;
    agent.pass(Span::millis(500)).await;
    assert_eq!(agent.answers.get(&1), Some(&Answer::Enforced));
    assert!(agent.node.overview().failing_endpoints.is_empty());
}

/// A state that another process removed is observed, or reported by an event, and applied again.
pub async fn a_state_that_is_removed_externally_is_repaired<S: Subject>(subject: impl Fn() -> S) {
    for noticed in [false, true] {
        let subject = subject();
        let Some(faults) = subject.faults() else { return };
        let mut agent = Agent::start(subject.start()).await;
        agent.send([policy(1, &[1]), vec![entry(1), entry(2)]].concat()).await;
        for pod in [1, 2] {
            agent.admit(pod, EnforcingMode::Strict).await;
        }
        let before = subject.in_force();
        faults.remove_endpoint(&uid(1), noticed);
        assert_ne!(subject.in_force(), before);
        match noticed {
            true => agent.take_events().await,
            false => agent.pass(Span::seconds(10)).await,
        }
        assert_eq!(subject.in_force(), before, "noticed by the backend: {noticed}");
        let (drift, times) = agent.node.drift();
        assert!(drift.is_some(), "it is reported");
        assert_eq!(times, 1);
        agent.pass(Span::seconds(10)).await;
        assert_eq!(agent.node.drift(), (None, 1));
        assert_eq!(subject.in_force(), before);
        // The end of a pod removes only its own state.
        agent.forget(1).await;
        assert_ne!(subject.in_force(), before);
        assert!(agent.node.overview().failing_endpoints.is_empty());
    }
}

/// The next process completes the state by a full pass, at whatever effect the previous one was killed.
pub async fn a_process_that_is_killed_at_any_effect_is_completed_by_the_next<S: Subject>(
    subject: impl Fn() -> S,
) {
    let states = states();
    for (from, to) in states.iter().zip(&states[1..]) {
        let reference = subject();
        let mut process = reference.start();
        process.apply(&whole(from)).await;
        process.apply(to).await;
        for cut in 0.. {
            let subject = subject();
            let Some(faults) = subject.faults() else { return };
            let mut killed = subject.start();
            killed.apply(&whole(from)).await;
            faults.cut_after(cut);
            let is_whole = killed.apply(to).await.in_force.is_ok();
            drop(killed);
            let mut next = subject.start();
            let outcome = next.apply(&whole(to)).await;
            assert_eq!(outcome, Applied::complete(to));
            assert_eq!(subject.in_force(), reference.in_force(), "cut after {cut} effects");
            assert_eq!(observed(&mut next).await, uids(to));
            if is_whole {
                break;
            }
        }
    }
}

/// A backend that retires keeps its state for the next process, or removes all of it.
pub async fn a_backend_that_retires_keeps_or_removes_its_state<S: Subject>(
    subject: impl Fn() -> S,
) {
    let subject = subject();
    let state = whole(&states()[3]);
    let mut backend = subject.start();
    backend.apply(&state).await;
    let before = subject.in_force();
    backend.retire(Retire::Keep).await.expect("keeping cannot fail");
    drop(backend);
    assert_eq!(subject.in_force(), before);
    let mut backend = subject.start();
    backend.apply(&state).await;
    backend.retire(Retire::Remove).await.expect("the state can be removed");
    assert_eq!(observed(&mut backend).await, BTreeSet::new());
    assert!(subject.in_force().is_none_or(|state| state.is_empty()));
    backend.retire(Retire::Remove).await.expect("nothing is left");
}

/// A backend that traces reports the steps as events, and loses none if the wait is dropped. Others refuse the trace.
pub async fn a_trace_is_followed_or_refused<S: Subject>(subject: impl Fn() -> S) {
    let subject = subject();
    let mut backend = subject.start();
    let tuple = Tuple {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 0, 2].into(),
        protocol: 6,
        source_port: None,
        destination_port: Some(80),
    };
    let moment = Duration::from_millis(10);
    assert!(timeout(moment, backend.event()).await.is_err(), "no event is there yet");
    match backend.trace(&Trace { id: 7, tuple }).await {
        Ok(()) => {
            let event = timeout(Duration::from_secs(20), backend.event()).await;
            let event = event.expect("the trace has a step");
            assert!(matches!(&event, BackendEvent::Trace(step) if step.id == 7), "{event:?}");
        }
        Err(BackendError::Unsupported { backend: name, .. }) => assert_eq!(name, backend.name()),
        Err(error) => panic!("{error}"),
    }
}
