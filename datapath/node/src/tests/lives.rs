//! Events in any order. A pod is enforced only by a state in force that has its own entry and endpoint.

use super::{entry, group, name, part, policy, removed, uid};
use crate::{
    Answer, Applied, BackendEvent, Desired, Effect, LocalPod, Node, Observed, PodId, Results,
    Ticket, WAIT, desired::policies_of, store,
};
use config_model::{EnforcingMode, Span, Time};
use control_wire::{ObjectId, proto};
use proptest::{collection::vec, prelude::*};
use std::{
    collections::{BTreeMap, BTreeSet},
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

#[derive(Clone, Debug)]
enum Step {
    /// A replica sends a bound pod, a policy, or a removal.
    Bound(u8),
    Unbound(u8),
    Policy(u8, Vec<u8>),
    PolicyGone(u8),
    /// A part of a generation that stays incomplete or is invalid.
    Torn(u8),
    /// A generation in two parts; in between the replicas cannot be listed, or the stream ends.
    Halves(u8, u8, bool),
    Wrong,
    /// The stream is from another replica.
    Moved(u8),
    Disconnected,
    /// Pods of this node start and end.
    Start(u8, bool, u8),
    End(u8, bool, u8),
    /// The backend has put the state into force: whole, without a policy, without a pod, or not at all.
    InForce,
    ButFor(u8),
    ButForPod(u8),
    NotAtAll,
    /// Another process removes what is in force on a pod; the backend reports it, or it is observed.
    Removed(u8, bool),
    Passes(u16),
    /// The agent is killed and starts from its disk.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let (pod, of) = (0_u8..4, 0_u8..3);
    prop_oneof![
        4 => pod.clone().prop_map(Step::Bound),
        1 => pod.clone().prop_map(Step::Unbound),
        2 => (of.clone(), vec(pod.clone(), 0..3)).prop_map(|(of, pods)| Step::Policy(of, pods)),
        1 => of.clone().prop_map(Step::PolicyGone),
        1 => pod.clone().prop_map(Step::Torn),
        2 => (pod.clone(), pod.clone(), any::<bool>()).prop_map(|(a, b, over)| Step::Halves(a, b, over)),
        1 => Just(Step::Wrong),
        1 => (1_u8..4).prop_map(Step::Moved),
        1 => Just(Step::Disconnected),
        4 => (pod.clone(), any::<bool>(), 0_u8..2).prop_map(|(p, s, a)| Step::Start(p, s, a)),
        1 => (pod, any::<bool>(), 0_u8..3).prop_map(|(pod, named, c)| Step::End(pod, named, c)),
        4 => Just(Step::InForce),
        1 => of.prop_map(Step::ButFor),
        1 => (0_u8..4).prop_map(Step::ButForPod),
        1 => Just(Step::NotAtAll),
        1 => (0_u8..4, any::<bool>()).prop_map(|(pod, event)| Step::Removed(pod, event)),
        2 => (0_u16..2500).prop_map(Step::Passes),
        1 => Just(Step::Restart),
    ]
}

/// A container ID; the third is empty.
fn sandbox(number: u8) -> String {
    if number < 2 { format!("c-{number}") } else { String::new() }
}

struct Life {
    node: Node,
    now: Time,
    generation: u64,
    /// The state that the backend is applying.
    given: Option<Desired>,
    in_force: Option<(Desired, Applied)>,
    /// The last results. The backend returns them again if they are the same.
    results: Arc<Results>,
    /// The admissions without an answer.
    asked: BTreeMap<Ticket, (PodId, EnforcingMode, Time)>,
    disk: Vec<store::Record>,
    enforced: usize,
}

fn at(number: u8) -> std::net::SocketAddr {
    (Ipv4Addr::new(10, 9, 9, number), 1).into()
}

impl Life {
    fn begin() -> Self {
        let node = Node::new(Default::default(), BTreeMap::new(), &BTreeMap::new());
        let mut life = Self {
            node,
            now: Time(1_000_000),
            generation: 0,
            given: None,
            in_force: None,
            results: Arc::default(),
            asked: BTreeMap::new(),
            disk: Vec::new(),
            enforced: 0,
        };
        life.moved(1);
        life
    }

    fn moved(&mut self, replica: u8) {
        self.node.began(at(replica), &[replica; 16], false);
        self.generation += 1;
    }

    fn send(&mut self, changes: Vec<proto::Change>) {
        self.generation += 1;
        self.node.part(part(self.generation, changes), self.now);
    }

    fn does(&mut self, step: Step) {
        match step {
            Step::Bound(pod) => self.send(vec![entry(pod)]),
            Step::Unbound(pod) => self.send(vec![removed(&ObjectId::pod(&uid(pod)))]),
            Step::Policy(of, pods) => self.send(policy(of, &pods)),
            Step::PolicyGone(of) => {
                let policy = ObjectId::policy(&format!("policy-{of}"));
                self.send(vec![removed(&policy), removed(&ObjectId::applied(group(of)))]);
            }
            Step::Torn(pod) => {
                self.generation += 1;
                let torn = proto::Part { last: false, ..part(self.generation, vec![entry(pod)]) };
                self.node.part(torn, self.now);
                self.node.disconnected("it broke off".to_owned());
                self.moved(1);
            }
            Step::Halves(one, other, over) => {
                self.generation += 1;
                let last = part(self.generation, vec![entry(other)]);
                let first = proto::Part { last: false, ..part(self.generation, vec![entry(one)]) };
                self.node.part(first, self.now);
                match over {
                    true => self.node.disconnected("it broke off".to_owned()),
                    false => self.node.not_listed("no API server".to_owned()),
                }
                self.node.part(last, self.now);
            }
            Step::Wrong => {
                self.send(vec![proto::Change { of: None }]);
                self.send(vec![entry(0)]);
                self.carry_out();
                self.moved(1);
            }
            Step::Moved(replica) => self.moved(replica),
            Step::Disconnected => self.node.disconnected("none answers".to_owned()),
            Step::Start(pod, strict, address) => self.start(pod, strict, address),
            Step::End(pod, named, container) => {
                let id = if named { uid(pod) } else { String::new() };
                let gone = PodId { uid: id, namespace: "shop".into(), name: name(pod) };
                self.node.forget(&gone, &sandbox(container), self.now);
            }
            Step::InForce => self.finish_apply(Applied::complete),
            Step::ButFor(of) => self.finish_apply(|desired| {
                let failing = (format!("policy-{of}"), "no room".to_owned());
                Applied { policies: [failing].into(), ..Applied::complete(desired) }
            }),
            Step::ButForPod(pod) => self.finish_apply(|desired| {
                let mut outcome = Applied::complete(desired);
                if let Some(result) = Arc::make_mut(&mut outcome.endpoints).get_mut(&uid(pod)) {
                    *result = Err("no such link".to_owned());
                }
                outcome
            }),
            Step::NotAtAll => self.finish_apply(|_| Applied::failed("no such kernel")),
            Step::Removed(pod, reported) => self.removed(pod, reported),
            Step::Passes(millis) => {
                self.now = self.now + Span(u64::from(millis));
                self.node.tick(self.now);
            }
            Step::Restart => self.restart(),
        }
        self.carry_out();
    }

    fn start(&mut self, pod: u8, strict: bool, address: u8) {
        let id = PodId { uid: uid(pod), namespace: "shop".into(), name: name(pod) };
        let mode = if strict { EnforcingMode::Strict } else { EnforcingMode::Standard };
        let addresses: BTreeSet<IpAddr> = [Ipv4Addr::new(10, 0, 0, address).into()].into();
        // Each pod has two sandboxes, with one address each.
        let local = LocalPod { pod: id.clone(), container: sandbox(address), addresses };
        let ticket = self.node.admit(local, Vec::new(), mode, self.now);
        self.asked.insert(ticket, (id, mode, self.now));
    }

    fn finish_apply(&mut self, outcome: impl FnOnce(&Desired) -> Applied) {
        let Some(desired) = self.given.take() else { return };
        let (revision, mut outcome) = (desired.revision, outcome(&desired));
        if outcome.endpoints == self.results {
            outcome.endpoints = Arc::clone(&self.results);
        }
        self.results = Arc::clone(&outcome.endpoints);
        if outcome.in_force.is_ok() {
            self.in_force = Some((desired, outcome.clone()));
        }
        self.node.applied(revision, outcome, self.now);
    }

    fn removed(&mut self, pod: u8, reported: bool) {
        let Some((_, outcome)) = &mut self.in_force else { return };
        Arc::make_mut(&mut outcome.endpoints).remove(&uid(pod));
        if reported {
            let event = BackendEvent::Drift(format!("the filter of pod {pod} is gone"));
            self.node.backend_event(&event, self.now);
        } else {
            self.observe();
        }
    }

    /// The endpoints that are in force now.
    fn observe(&mut self) {
        let results = self.in_force.iter().flat_map(|(_, outcome)| outcome.endpoints.iter());
        let endpoints = results.filter(|(_, is)| is.is_ok()).map(|(uid, _)| uid.clone());
        let observed = Observed { endpoints: endpoints.collect(), drift: Vec::new() };
        self.node.observed(Ok(observed), self.now);
    }

    /// The state in force stays. The runtime repeats the admissions.
    fn restart(&mut self) {
        self.carry_out();
        let (held, local) = self.node.image();
        let replayed = store::replay(self.disk.clone());
        assert_eq!(replayed.stopped, None);
        let objects = |held: &control_wire::NodeSnapshot| held.objects().collect::<Vec<_>>();
        assert_eq!(objects(&replayed.held), objects(&held));
        assert_eq!(
            (&replayed.held.epoch, replayed.held.generation),
            (&held.epoch, held.generation)
        );
        assert_eq!(replayed.local, *local);
        self.node = Node::new(replayed.held, replayed.local, &BTreeMap::new());
        self.given = None;
        self.in_force = None;
        self.asked.clear();
        self.moved(1);
    }

    fn carry_out(&mut self) {
        loop {
            let effects = self.node.take_effects();
            if effects.is_empty() {
                break;
            }
            self.carry_out_all(effects);
        }
        for (pod, _, since) in self.asked.values() {
            assert!(
                self.now.since(*since) <= WAIT || self.node.wake_at() <= Some(self.now),
                "{pod}"
            );
        }
    }

    fn carry_out_all(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Observe => self.observe(),
                Effect::Apply(desired) => {
                    assert!(self.given.is_none(), "two at a time");
                    self.given = Some(desired);
                }
                Effect::Answer { ticket, answer } => self.answered(ticket, answer),
                Effect::Persist(records) => self.disk.extend(records),
                Effect::Announce(_)
                | Effect::Acknowledge(_)
                | Effect::Resync(_)
                | Effect::Report(_) => {}
            }
        }
    }

    fn answered(&mut self, ticket: Ticket, answer: Answer) {
        let (pod, mode, since) = self.asked.remove(&ticket).unwrap();
        match answer {
            Answer::Enforced => self.let_through(&pod),
            Answer::Open(why) => {
                assert_eq!(mode, EnforcingMode::Standard);
                assert!(self.now >= since + WAIT && why.contains(&pod.uid), "{why}");
            }
            Answer::Refused(why) => {
                assert_eq!(mode, EnforcingMode::Strict);
                assert!(self.now >= since + WAIT && why.contains(&pod.uid), "{why}");
            }
        }
    }

    fn let_through(&mut self, pod: &PodId) {
        self.enforced += 1;
        let (desired, outcome) = self.in_force.as_ref().unwrap();
        let endpoint = outcome.endpoints.get(&pod.uid);
        assert_eq!(endpoint, Some(&Ok(())), "its own endpoint is not in force");
        let entry = desired.state.pods.get(&pod.uid).unwrap();
        assert_eq!((&entry.namespace, &entry.name), (&pod.namespace, &pod.name));
        // A policy may fail only if it no longer applies to the pod.
        let (wanted, _) = self.node.image();
        for policy in policies_of(&desired.state, &pod.uid) {
            let still = policies_of(&wanted, &pod.uid).iter().any(|is| is.uid == policy.uid);
            assert!(!still || !outcome.policies.contains_key(&policy.uid), "{} fails", policy.key);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_pod_is_enforced_only_if_a_state_is_in_force_on_its_own_endpoint(steps in vec(step(), 0..60)) {
        let mut life = Life::begin();
        steps.into_iter().for_each(|step| life.does(step));
        // Every pod has an answer at the end.
        life.does(Step::Passes(2500));
        prop_assert!(life.asked.is_empty());
    }
}

#[test]
fn a_pod_waits_for_its_entry_and_for_the_backend() {
    let mut life = Life::begin();
    life.does(Step::Start(0, true, 1));
    life.does(Step::InForce);
    assert_eq!(life.enforced, 0, "it has no entry");
    // The other pod of that name.
    life.does(Step::Bound(2));
    life.does(Step::InForce);
    assert_eq!(life.enforced, 0, "it is another's entry");
    life.does(Step::Bound(0));
    assert_eq!(life.enforced, 0, "nothing of it is in force");
    life.does(Step::InForce);
    assert_eq!(life.enforced, 1);
}

#[test]
fn a_pod_waits_until_its_policy_is_in_force() {
    let mut life = Life::begin();
    life.does(Step::Policy(1, vec![0]));
    life.does(Step::Bound(0));
    life.does(Step::Bound(1));
    life.does(Step::Start(0, true, 1));
    life.does(Step::Start(1, true, 2));
    for _ in 0..3 {
        life.does(Step::ButFor(1));
    }
    assert_eq!(life.enforced, 1, "no policy is about the other");
    // The state is applied again without an event.
    life.does(Step::Passes(1500));
    life.does(Step::InForce);
    assert_eq!(life.enforced, 2);
}

#[test]
fn a_change_that_does_not_fit_leads_to_a_full_comparison() {
    let mut life = Life::begin();
    life.does(Step::Bound(0));
    let hello = life.node.hello(false);
    assert_eq!((hello.epoch.len(), hello.generation > 0, hello.holds.len()), (16, true, 1));
    let resync = |effect: &Effect| matches!(effect, Effect::Resync(_));
    // A change of an unknown kind is skipped.
    life.send(vec![proto::Change { of: None }]);
    assert!(!life.node.take_effects().iter().any(resync));
    let unknown = proto::AppliedChange { id: vec![7; 16], ..proto::AppliedChange::default() };
    let of = Some(proto::change::Of::AppliedChange(unknown));
    life.send(vec![proto::Change { of }]);
    assert!(life.node.take_effects().iter().any(resync));
    let hello = life.node.hello(false);
    assert_eq!((hello.epoch.len(), hello.generation, hello.holds.len()), (0, 0, 1));
    // Further messages of that stream are ignored.
    life.send(vec![entry(1)]);
    assert_eq!(life.node.overview().counts[3], 1);
    life.moved(2);
    life.send(vec![entry(1)]);
    assert_eq!(life.node.overview().counts[3], 2);
    assert_eq!(life.node.hello(false).epoch, [2; 16]);
}

#[test]
fn the_end_of_an_earlier_sandbox_does_not_end_a_later_one() {
    let mut life = Life::begin();
    life.does(Step::Bound(0));
    life.does(Step::Start(0, true, 0));
    life.does(Step::Start(0, true, 1));
    for named in [true, false] {
        life.does(Step::End(0, named, 0));
        assert_eq!(life.node.overview().local, 1, "it runs in another sandbox");
    }
    life.does(Step::InForce);
    life.does(Step::InForce);
    assert_eq!(life.enforced, 2);
    life.does(Step::End(0, true, 1));
    assert_eq!(life.node.overview().local, 0);
    life.does(Step::Restart);
}

#[test]
fn no_state_is_applied_before_a_replica_has_sent_a_snapshot() {
    let mut life = Life::begin();
    life.does(Step::Start(0, true, 0));
    assert!(life.given.is_none(), "the backend may have a newer state from before");
    life.does(Step::Restart);
    life.does(Step::Start(1, true, 1));
    assert!(life.given.is_none(), "the disk has pods, and no snapshot");
    // A snapshot of an empty cluster is a snapshot.
    life.send(Vec::new());
    life.carry_out();
    assert_eq!(life.given.as_ref().map(|given| given.endpoints.len()), Some(2));
    life.does(Step::Restart);
    assert!(life.given.is_some());
}

#[test]
fn a_pod_that_starts_shortens_the_pause_before_a_retry() {
    let mut life = Life::begin();
    life.does(Step::Bound(0));
    for _ in 0..10 {
        life.does(Step::NotAtAll);
        life.does(Step::Passes(u16::MAX));
    }
    life.does(Step::NotAtAll);
    life.does(Step::Passes(1000));
    assert!(life.given.is_none(), "it has failed for long");
    life.does(Step::Start(0, true, 0));
    life.does(Step::Passes(250));
    life.does(Step::InForce);
    assert_eq!(life.enforced, 1);
}

#[test]
fn a_pod_with_a_failing_endpoint_waits_or_starts_by_its_mode() {
    let mut life = Life::begin();
    for pod in 0..3 {
        life.does(Step::Bound(pod));
    }
    life.does(Step::Policy(1, vec![0, 1]));
    life.does(Step::InForce);
    for (pod, strict) in [(0, true), (1, true)] {
        life.does(Step::Start(pod, strict, pod));
    }
    for _ in 0..3 {
        life.does(Step::ButForPod(0));
    }
    assert_eq!(life.enforced, 1, "only the other pod starts");
    let overview = life.node.overview();
    let [(pod, why)] = overview.failing_endpoints.as_slice() else { panic!("{overview:?}") };
    assert_eq!((pod.uid.as_str(), why.as_str()), ("u-0", "no such link"));
    let [(policy, _, why)] = overview.failing.as_slice() else { panic!("{overview:?}") };
    assert_eq!(policy, "policy-1");
    assert_eq!(why, "not in force on pod shop/web-0: no such link");
    // It is retried, and the retry is a full pass.
    life.does(Step::Passes(1500));
    assert_eq!(life.given.as_ref().map(|given| given.changed.is_none()), Some(true));
    life.does(Step::InForce);
    assert_eq!(life.enforced, 2);
    assert!(life.node.overview().failing_endpoints.is_empty());
}

#[test]
fn a_state_is_handed_over_with_its_changes_and_after_a_failure_whole() {
    let mut life = Life::begin();
    life.does(Step::Bound(0));
    let changed = |life: &Life| life.given.as_ref().unwrap().changed.clone();
    assert_eq!(changed(&life), None, "the first is a full pass");
    life.does(Step::InForce);
    life.does(Step::Bound(1));
    let given = changed(&life).unwrap();
    let objects =
        |of: &crate::Changed| of.objects.iter().map(|(id, _)| id.clone()).collect::<Vec<_>>();
    assert_eq!(objects(&given), [ObjectId::pod(&uid(1))]);
    assert!(given.endpoints.is_empty());
    // Changes during the apply are in the next state.
    life.does(Step::Start(1, true, 1));
    life.does(Step::Unbound(0));
    life.does(Step::InForce);
    let given = changed(&life).unwrap();
    assert_eq!((given.objects.len(), given.endpoints), (1, [uid(1)].into()));
    life.does(Step::NotAtAll);
    life.does(Step::Passes(1500));
    assert_eq!(changed(&life), None, "what is in force is not known");
}

#[test]
fn a_state_that_was_removed_externally_is_applied_again_whole() {
    for reported in [true, false] {
        let mut life = Life::begin();
        life.does(Step::Bound(0));
        life.does(Step::Start(0, true, 0));
        life.does(Step::InForce);
        life.does(Step::InForce);
        assert_eq!((life.enforced, life.given.is_none()), (1, true));
        life.does(Step::Removed(0, reported));
        let given = life.given.as_ref().unwrap();
        assert_eq!(given.changed, None);
        assert!(life.node.overview().drift.is_some(), "reported: {reported}");
        life.does(Step::InForce);
        // Seen at the next interval.
        life.does(Step::Passes(10_000));
        assert_eq!(life.node.overview().drift, None);
        assert!(life.given.is_none());
    }
}
