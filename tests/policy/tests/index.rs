//! The index beside an evaluation of all objects, while they come and go.

use policy_core::{
    Rank,
    index::{Deltas, Snapshot},
    verdict,
};
use policy_objects::{
    ClusterAction, ClusterPeer, ClusterPolicy, ClusterRule, ClusterTier, Dialect, Meta,
    NamespacedPods, Object, Operator, Phase, Pod, Protocol, Read, Requirement, Selector, Subject,
};
use proptest::{collection::vec, prelude::*, test_runner::TestCaseError};
use serde_json::json;
use tests_policy::{
    beside::{self, difference},
    lived::Lived,
    made::{Event, Made, Sketch, asking, events, sketch, turns, world},
    naive::{By, Decision, Half, Origin, Packet, Segment, State},
    tries,
};

/// What the index tells gives the same answers as all objects do, and at each node what that one is told.
fn agrees(lived: &Lived, sketches: &[Sketch]) -> Result<(), TestCaseError> {
    let naive = lived.naive();
    for packet in sketches.iter().filter_map(|sketch| sketch.packet(&lived.made)) {
        let answer = naive.answer(&packet);
        let seen = lived.seen(&packet);
        let told = lived.everywhere().answer(&seen);
        prop_assert_eq!(told.decision, answer.decision, "{:?}", packet);
        let ends = naive.ends(&packet);
        for (node, snapshot) in [("", &lived.snapshot)].into_iter().chain(every_node(lived)) {
            let told = lived.told(snapshot).answer(&seen);
            let halves = [(&told.out, &answer.out, ends.0), (&told.into, &answer.into, ends.1)];
            for (told, answer, pod) in halves {
                let agrees = is_same(told.as_ref(), answer.as_ref(), pod, node);
                let says = format!("told {node:?}: {told:#?}, all objects: {answer:#?}");
                prop_assert!(agrees, "{:?}\n{}", packet, says);
            }
        }
        let verdict = verdict(&lived.world, &beside::packet(&packet));
        if let Some(difference) = difference(&answer, &verdict) {
            return Err(TestCaseError::fail(format!("{packet:?}\n{difference}")));
        }
    }
    Ok(())
}

fn every_node(lived: &Lived) -> impl Iterator<Item = (&str, &Snapshot)> {
    lived.nodes.iter().map(|(node, snapshot)| (*node, snapshot))
}

/// Whether a node (empty: all) says of a pod what all objects do. It speaks of its own pods and of no others;
/// of one without policies that is on no node yet nobody has been told.
fn is_same(told: Option<&Half>, all: Option<&Half>, pod: Option<&Pod>, node: &str) -> bool {
    let Some(pod) = pod else { return told.is_none() && all.is_none() };
    match (told, all) {
        (told, _) if !node.is_empty() && pod.node != node => told.is_none(),
        (None, Some(all)) => pod.node.is_empty() && matches!(all.by, By::Default | By::Exemption),
        (told, all) => told == all,
    }
}

/// Each policy stands where its form and the number that is told say, and each node has been told its part.
fn stands(lived: &Lived) -> Result<(), TestCaseError> {
    prop_assert_eq!(lived.snapshot.policies.len(), lived.policies.len());
    for (id, state) in &lived.snapshot.policies {
        let policy = &lived.policies[id];
        let rank = Rank::of(policy, state.tier);
        prop_assert_eq!(lived.world.rank(&policy.key), Some(&rank), "of {}", policy.key);
    }
    for (node, snapshot) in every_node(lived) {
        prop_assert_eq!(snapshot, &lived.index.snapshot_for(node), "of node {}", node);
    }
    Ok(())
}

/// The policies of each pod, by the index and by looking at all of them.
fn knows_whose(lived: &Lived) -> Result<(), TestCaseError> {
    for object in &lived.made.objects {
        let Object::Pod(pod) = object else { continue };
        let found = lived.index.policies_of(&pod.meta.namespace, &pod.meta.name);
        let found = found.into_iter().map(|key| (key.kind, key.namespace, key.name)).collect();
        let scanned = lived.naive().policies_of(pod);
        prop_assert_eq!(scanned, found, "of pod {}/{}", pod.meta.namespace, pod.meta.name);
    }
    Ok(())
}

/// A doubtful group of which a node has no pod is told to it with the policy, and so is the end of the doubt.
#[test]
fn what_is_doubted_is_told_also_where_nobody_is_in_it() {
    let read = |object: serde_json::Value| Object::read_value(&object).expect("an object").object;
    let space = |name: &str| {
        let labels = json!({"kubernetes.io/metadata.name": name});
        let metadata = json!({"name": name, "labels": labels});
        read(json!({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}))
    };
    let pod = |namespace: &str, node: &str, address: &str| {
        read(json!({"apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node},
            "metadata": {"namespace": namespace, "name": "p", "uid": namespace},
            "status": {"phase": "Running", "podIPs": [{"ip": address}]}}))
    };
    let service = |selector: serde_json::Value| {
        read(json!({"apiVersion": "v1", "kind": "Service", "spec": {"selector": selector},
            "metadata": {"namespace": "x", "name": "s"}}))
    };
    let of_y = json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "y"}}});
    let objects = vec![
        space("x"),
        space("y"),
        pod("x", "n2", "10.0.0.1"),
        pod("y", "n1", "10.0.0.2"),
        service(json!({"app": "a"})),
        read(json!({"apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterGroup",
            "metadata": {"name": "g"},
            "spec": {"serviceReference": {"namespace": "x", "name": "s"}}})),
        read(json!({"apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
            "metadata": {"name": "k"}, "spec": {"priority": 1, "ingress": [
                {"action": "Allow", "appliedTo": [{"group": "g"}, of_y]},
                {"action": "Drop", "appliedTo": [of_y]}]}})),
    ];
    let mut lived = Lived::new(Made { objects, names: Vec::new() });
    let packet = Packet {
        origin: Origin::Forwarded,
        source: "192.0.2.1".parse().expect("an address"),
        destination: "10.0.0.2".parse().expect("an address"),
        service: None,
        segment: Segment::Ports(Protocol::Tcp, 5000, 80),
        state: State::New,
    };
    let answers = |lived: &Lived| {
        let all = lived.naive().answer(&packet).decision;
        [all, lived.everywhere().answer(&packet).decision, lived.at("n1").answer(&packet).decision]
    };
    assert_eq!(answers(&lived), [Decision::Allow; 3]);
    let _ = lived.insert(service(json!({"app": 1})));
    assert_eq!(answers(&lived), [Decision::Drop; 3]);
    let _ = lived.insert(service(json!({"app": "a"})));
    assert_eq!(answers(&lived), [Decision::Allow; 3]);
}

/// Why deltas are for whole events: a part of them is neither the world before nor the one after.
#[test]
fn a_part_of_an_events_deltas_lets_pass_what_neither_world_does() {
    let pod = |name: &str, address: &str, app: &str| {
        let meta = Meta {
            namespace: "x".to_owned(),
            name: name.to_owned(),
            uid: name.to_owned(),
            labels: [("app".to_owned(), app.to_owned())].into(),
            ..Meta::default()
        };
        let addresses = vec![address.parse().expect("an address")];
        let (node, service_account, ports) = ("n".to_owned(), String::new(), Vec::new());
        let (host_network, phase) = (false, Phase::Live);
        let pod = Pod { meta, node, host_network, service_account, phase, addresses, ports };
        Object::Pod(pod)
    };
    let deny = |app: &str| {
        let operator = Operator::In([app.to_owned()].into());
        let requirement = Requirement { key: "app".to_owned(), operator };
        let pods = Selector { requirements: [requirement].into() };
        let peers = vec![ClusterPeer::Pods(NamespacedPods { pods, ..NamespacedPods::default() })];
        let (name, protocols) = (None, Vec::new());
        Read::Known(ClusterRule { name, action: ClusterAction::Deny, peers, protocols })
    };
    let policy = Object::ClusterPolicy(ClusterPolicy {
        meta: Meta { name: "k".to_owned(), ..Meta::default() },
        dialect: Dialect::Upstream,
        tier: ClusterTier::Admin,
        priority: 0,
        subject: Subject { selects: NamespacedPods::default(), doubt: None },
        ingress: vec![deny("a"), deny("b")],
        egress: Vec::new(),
    });
    let objects = vec![pod("p", "10.0.0.1", "a"), pod("q", "10.0.0.2", "c"), policy];
    let mut lived = Lived::new(Made { objects, names: Vec::new() });
    let packet = Packet {
        origin: Origin::Pod("x".to_owned(), "p".to_owned()),
        source: "10.0.0.1".parse().expect("an address"),
        destination: "10.0.0.2".parse().expect("an address"),
        service: None,
        segment: Segment::Ports(Protocol::Tcp, 5000, 80),
        state: State::New,
    };
    assert_eq!(lived.everywhere().answer(&packet).decision, Decision::Drop);

    let before = lived.snapshot.clone();
    let deltas = lived.insert(pod("p", "10.0.0.1", "b"));
    assert_eq!(lived.everywhere().answer(&packet).decision, Decision::Drop);

    let between = deltas.groups.iter().map(|only| {
        let mut part = before.clone();
        part.fold(&Deltas { groups: vec![only.clone()], ..Deltas::default() });
        lived.told(&part).answer(&packet).decision
    });
    let between = between.collect::<Vec<_>>();
    assert!(between.contains(&Decision::Allow), "{between:?} of {deltas:?}");
}

/// After each of the events what is told says what all objects do.
fn lives(made: Made, events: Vec<Event>, sketches: &[Sketch]) -> Result<(), TestCaseError> {
    let mut lived = Lived::new(made);
    agrees(&lived, sketches)?;
    stands(&lived)?;
    knows_whose(&lived)?;
    for event in events {
        let told = event.told(&lived.made);
        event.befall(&mut lived);
        let after = |fault: TestCaseError| {
            TestCaseError::fail(format!("after {told}\nin {:?}\n{fault}", lived.made))
        };
        prop_assert!(lived.snapshot == lived.index.snapshot(), "deltas fall short: {told}");
        agrees(&lived, sketches).map_err(after)?;
        stands(&lived).map_err(after)?;
        knows_whose(&lived).map_err(after)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(tries(300))]

    #[test]
    fn verdicts_from_the_index_are_those_from_all_objects_at_every_event(
        made in world(),
        events in events(),
        sketches in vec(sketch(), 1..16),
    ) {
        lives(made, events, &sketches)?;
    }

    #[test]
    fn services_and_tiers_that_come_change_and_go_are_told(
        made in asking(),
        events in turns(),
        sketches in vec(sketch(), 8..16),
    ) {
        lives(made, events, &sketches)?;
    }
}
