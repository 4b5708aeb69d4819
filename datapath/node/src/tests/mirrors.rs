//! Static pods, which their node knows by a UID that is not the one in the API.

use super::{entry, part, policy, removed};
use crate::{Answer, Applied, Effect, LocalPod, Node, PodId, WAIT};
use config_model::{EnforcingMode, Time};
use control_wire::{ObjectId, model::Pod, proto::Change};
use std::collections::BTreeMap;

/// The mirror pod of a static pod. Its UID in the API is the one of [`policy`]'s first pod.
fn mirror(runtime_uid: &str) -> Change {
    let (namespace, name) = ("kube-system".to_owned(), "dns-n1".to_owned());
    let (uid, runtime_uid) = ("u-0".to_owned(), runtime_uid.to_owned());
    (&Pod { uid, namespace, name, runtime_uid, ..Pod::default() }).into()
}

fn local(uid: &str, namespace: &str, name: &str) -> LocalPod {
    let pod = PodId { uid: uid.into(), namespace: namespace.into(), name: name.into() };
    LocalPod { pod, container: "c".to_owned(), addresses: ["10.0.0.9".parse().unwrap()].into() }
}

/// The answer for a pod that starts, with a backend that cannot put these policies into force.
fn answer(node: &mut Node, pod: LocalPod, failing: &[&str]) -> Answer {
    let now = Time(1_000);
    node.admit(pod, Vec::new(), EnforcingMode::Strict, now);
    let mut ticks = 0;
    loop {
        for effect in node.take_effects() {
            match effect {
                Effect::Apply(desired) => {
                    let policies =
                        failing.iter().map(|uid| ((*uid).to_owned(), "no room".to_owned()));
                    let policies = policies.collect();
                    let outcome = Applied { policies, ..Applied::complete(&desired) };
                    node.applied(desired.revision, outcome, now);
                }
                Effect::Answer { answer, .. } => return answer,
                Effect::Announce(_)
                | Effect::Observe
                | Effect::Acknowledge(_)
                | Effect::Resync(_)
                | Effect::Persist(_)
                | Effect::Report(_) => {}
            }
        }
        // Once more at the end of the wait.
        node.tick(if ticks == 0 { now } else { now + WAIT });
        ticks += 1;
        assert!(ticks < 10, "it is not answered");
    }
}

fn node_with(changes: Vec<Change>) -> Node {
    let mut node = Node::new(Default::default(), BTreeMap::new(), &BTreeMap::new());
    node.began("10.9.9.1:1".parse().unwrap(), &[1; 16], false);
    node.part(part(1, changes), Time(0));
    node
}

#[test]
fn a_static_pod_has_the_entry_of_its_mirror_pod() {
    let all = [vec![mirror("of the kubelet"), entry(1)], policy(1, &[0])].concat();
    let mut node = node_with(all);
    let its = || local("of the kubelet", "kube-system", "dns-n1");
    assert_eq!(answer(&mut node, its(), &[]), Answer::Enforced);
    // The author of the object may write any UID: it belongs to no pod of another name.
    for other in [
        local("of the kubelet", "shop", "dns-n1"),
        local("of the kubelet", "kube-system", "web-1"),
        local("another", "kube-system", "dns-n1"),
    ] {
        assert!(matches!(answer(&mut node, other, &[]), Answer::Refused(_)));
    }
    assert!(node.image().1.contains_key("of the kubelet"));
}

#[test]
fn a_failing_policy_of_the_mirror_pod_holds_the_static_pod() {
    let mut node = node_with([vec![mirror("of the kubelet")], policy(1, &[0])].concat());
    let its = local("of the kubelet", "kube-system", "dns-n1");
    let Answer::Refused(why) = answer(&mut node, its, &["policy-1"]) else {
        panic!("it may start")
    };
    assert!(why.contains("no room"), "{why}");
}

#[test]
fn the_deletion_of_the_mirror_pod_does_not_end_the_static_pod() {
    let mut node = node_with(vec![mirror("of the kubelet")]);
    let its = local("of the kubelet", "kube-system", "dns-n1");
    assert_eq!(answer(&mut node, its, &[]), Answer::Enforced);
    node.part(part(2, vec![removed(&ObjectId::pod("u-0"))]), Time(2_000));
    assert!(node.image().1.contains_key("of the kubelet"), "it runs");
}

#[test]
fn an_empty_uid_has_no_entry() {
    let mut node = node_with(vec![mirror("")]);
    let nobody = local("", "kube-system", "dns-n1");
    let answered = answer(&mut node, nobody, &[]);
    assert!(matches!(answered, Answer::Refused(_)));
}
