//! The index compared with an evaluation of all objects, while objects change.

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
    cases,
    compare::{self, difference},
    live::{self, LiveWorld},
    naive::{By, Decision, Half, Origin, Packet, Segment, State},
    scenario::{Event, Scenario, Sketch, events, service_events, sketch, with_services, world},
};

/// The snapshots of the index give the same decisions as all objects, for all nodes and for each node.
fn agrees(live: &LiveWorld, sketches: &[Sketch]) -> Result<(), TestCaseError> {
    let naive = live.naive();
    for packet in sketches.iter().filter_map(|sketch| sketch.packet(&live.scenario)) {
        let answer = naive.answer(&packet);
        let packet_at_node = live.with_host_origin(&packet);
        let found = live.everywhere().answer(&packet_at_node);
        prop_assert_eq!(found.decision, answer.decision, "{:?}", packet);
        let ends = naive.ends(&packet);
        for (node, snapshot) in [("", &live.snapshot)].into_iter().chain(every_node(live)) {
            let found = live.evaluator(snapshot).answer(&packet_at_node);
            let halves = [(&found.out, &answer.out, ends.0), (&found.into, &answer.into, ends.1)];
            for (found, answer, pod) in halves {
                let agrees = is_same(found.as_ref(), answer.as_ref(), pod, node);
                let text = format!("node {node:?}: {found:#?}, all objects: {answer:#?}");
                prop_assert!(agrees, "{:?}\n{}", packet, text);
            }
        }
        let verdict = verdict(&live.world, &compare::packet(&packet));
        if let Some(difference) = difference(&answer, &verdict) {
            return Err(TestCaseError::fail(format!("{packet:?}\n{difference}")));
        }
    }
    Ok(())
}

fn every_node(live: &LiveWorld) -> impl Iterator<Item = (&str, &Snapshot)> {
    live.nodes.iter().map(|(node, snapshot)| (*node, snapshot))
}

/// True if a node (empty: all nodes) decides as all objects do. A node decides for its own pods only. A pod
/// without policies that is not scheduled yet is in no snapshot.
fn is_same(found: Option<&Half>, all: Option<&Half>, pod: Option<&Pod>, node: &str) -> bool {
    let Some(pod) = pod else { return found.is_none() && all.is_none() };
    match (found, all) {
        (found, _) if !node.is_empty() && pod.node != node => found.is_none(),
        (None, Some(all)) => pod.node.is_empty() && matches!(all.by, By::Default | By::Exemption),
        (found, all) => found == all,
    }
}

/// Each policy has the rank of its form and its tier, and each node has its part of the snapshot.
fn ranks_match(live: &LiveWorld) -> Result<(), TestCaseError> {
    prop_assert_eq!(live.snapshot.policies.len(), live.policies.len());
    for (id, state) in &live.snapshot.policies {
        let policy = &live.policies[id];
        let rank = Rank::of(policy, state.tier);
        prop_assert_eq!(live.world.rank(&policy.key), Some(&rank), "of {}", policy.key);
    }
    for (node, snapshot) in every_node(live) {
        prop_assert_eq!(snapshot, &live::part_of(&live.snapshot, node), "of node {}", node);
    }
    Ok(())
}

/// The policies of each pod are the same by the index and by a scan.
fn policies_match(live: &LiveWorld) -> Result<(), TestCaseError> {
    for object in &live.scenario.objects {
        let Object::Pod(pod) = object else { continue };
        let found = live.index.policies_of(&pod.meta.namespace, &pod.meta.name);
        let found = found.into_iter().map(|key| (key.kind, key.namespace, key.name)).collect();
        let scanned = live.naive().policies_of(pod);
        prop_assert_eq!(scanned, found, "of pod {}/{}", pod.meta.namespace, pod.meta.name);
    }
    Ok(())
}

/// A node that has a policy also has the doubtful groups of it, even if it has no pod of such a group. It
/// also receives the end of the doubt.
#[test]
fn a_node_receives_doubtful_groups_without_pods_of_its_own() {
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
    let mut live = LiveWorld::new(Scenario { objects, names: Vec::new() });
    let packet = Packet {
        origin: Origin::Forwarded,
        source: "192.0.2.1".parse().expect("an address"),
        destination: "10.0.0.2".parse().expect("an address"),
        service: None,
        segment: Segment::Ports(Protocol::Tcp, 5000, 80),
        state: State::New,
    };
    let answers = |live: &LiveWorld| {
        let all = live.naive().answer(&packet).decision;
        [all, live.everywhere().answer(&packet).decision, live.at("n1").answer(&packet).decision]
    };
    assert_eq!(answers(&live), [Decision::Allow; 3]);
    let _ = live.insert(service(json!({"app": 1})));
    assert_eq!(answers(&live), [Decision::Drop; 3]);
    let _ = live.insert(service(json!({"app": "a"})));
    assert_eq!(answers(&live), [Decision::Allow; 3]);
}

/// The reason for deltas of whole events: a part of them is neither the world before nor the one after.
#[test]
fn a_part_of_an_events_deltas_allows_a_packet_that_both_worlds_drop() {
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
    let mut live = LiveWorld::new(Scenario { objects, names: Vec::new() });
    let packet = Packet {
        origin: Origin::Pod("x".to_owned(), "p".to_owned()),
        source: "10.0.0.1".parse().expect("an address"),
        destination: "10.0.0.2".parse().expect("an address"),
        service: None,
        segment: Segment::Ports(Protocol::Tcp, 5000, 80),
        state: State::New,
    };
    assert_eq!(live.everywhere().answer(&packet).decision, Decision::Drop);

    let before = live.snapshot.clone();
    let deltas = live.insert(pod("p", "10.0.0.1", "b"));
    assert_eq!(live.everywhere().answer(&packet).decision, Decision::Drop);

    let between = deltas.groups.iter().map(|only| {
        let mut part = before.clone();
        part.fold(&Deltas { groups: vec![only.clone()], ..Deltas::default() });
        live.evaluator(&part).answer(&packet).decision
    });
    let between = between.collect::<Vec<_>>();
    assert!(between.contains(&Decision::Allow), "{between:?} of {deltas:?}");
}

/// Checks all of the above after each event.
fn check_events(
    scenario: Scenario,
    events: Vec<Event>,
    sketches: &[Sketch],
) -> Result<(), TestCaseError> {
    let mut live = LiveWorld::new(scenario);
    agrees(&live, sketches)?;
    ranks_match(&live)?;
    policies_match(&live)?;
    for event in events {
        let event_text = event.describe(&live.scenario);
        event.apply(&mut live);
        let after = |fault: TestCaseError| {
            TestCaseError::fail(format!("after {event_text}\nin {:?}\n{fault}", live.scenario))
        };
        prop_assert!(
            live.snapshot == live.index.snapshot(),
            "the deltas are incomplete after {event_text}"
        );
        agrees(&live, sketches).map_err(after)?;
        ranks_match(&live).map_err(after)?;
        policies_match(&live).map_err(after)?;
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(300))]

    #[test]
    fn verdicts_from_the_index_equal_verdicts_from_all_objects(
        scenario in world(),
        events in events(),
        sketches in vec(sketch(), 1..16),
    ) {
        check_events(scenario, events, &sketches)?;
    }

    #[test]
    fn changes_of_services_and_tiers_are_in_the_deltas(
        scenario in with_services(),
        events in service_events(),
        sketches in vec(sketch(), 8..16),
    ) {
        check_events(scenario, events, &sketches)?;
    }
}
