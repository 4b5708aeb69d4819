//! The index beside an evaluation of all objects, while they come and go.

use policy_core::{index::Deltas, verdict};
use policy_objects::{
    ClusterAction, ClusterPeer, ClusterPolicy, ClusterRule, ClusterTier, Dialect, Meta,
    NamespacedPods, Object, Operator, Phase, Pod, Protocol, Read, Requirement, Selector, Subject,
};
use proptest::{collection::vec, prelude::*, test_runner::TestCaseError};
use tests_policy::{
    beside::{self, difference},
    lived::Lived,
    made::{Made, Sketch, events, sketch, world},
    naive::{Decision, Origin, Packet, Segment, State},
    tries,
};

/// What the index knows gives the same answers as all objects do, at each node from what it is told alone.
fn agrees(lived: &Lived, sketches: &[Sketch]) -> Result<(), TestCaseError> {
    let (naive, expanded) = (lived.naive(), lived.expanded());
    let everywhere = lived.indexed(&expanded, false);
    let at_its_node = lived.indexed(&expanded, true);
    for packet in sketches.iter().filter_map(|sketch| sketch.packet(&lived.made)) {
        let answer = naive.answer(&packet);
        prop_assert_eq!(&everywhere.answer(&packet), &answer, "{:?}", packet);
        prop_assert_eq!(&at_its_node.answer(&packet), &answer, "told to nodes: {:?}", packet);
        let verdict = verdict(&lived.world, &beside::packet(&packet));
        if let Some(difference) = difference(&answer, &verdict) {
            return Err(TestCaseError::fail(format!("{packet:?}\n{difference}")));
        }
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
    let expanded = lived.expanded();
    assert_eq!(lived.indexed(&expanded, true).answer(&packet).decision, Decision::Drop);

    let before = lived.snapshot.clone();
    let deltas = lived.insert(pod("p", "10.0.0.1", "b"));
    assert_eq!(lived.indexed(&expanded, true).answer(&packet).decision, Decision::Drop);

    let between = deltas.groups.iter().map(|only| {
        lived.snapshot = before.clone();
        lived.snapshot.fold(&Deltas { groups: vec![only.clone()], policies: Vec::new() });
        lived.indexed(&expanded, true).answer(&packet).decision
    });
    let between = between.collect::<Vec<_>>();
    assert!(between.contains(&Decision::Allow), "{between:?} of {deltas:?}");
}

proptest! {
    #![proptest_config(tries(300))]

    #[test]
    fn verdicts_from_the_index_are_those_from_all_objects_at_every_event(
        made in world(),
        events in events(),
        sketches in vec(sketch(), 1..16),
    ) {
        let mut lived = Lived::new(made);
        agrees(&lived, &sketches)?;
        knows_whose(&lived)?;
        for event in events {
            let told = event.told(&lived.made);
            event.befall(&mut lived);
            let after = |fault: TestCaseError| {
                TestCaseError::fail(format!("after {told}\nin {:?}\n{fault}", lived.made))
            };
            prop_assert!(lived.snapshot == lived.index.snapshot(), "deltas fall short: {told}");
            agrees(&lived, &sketches).map_err(after)?;
            knows_whose(&lived).map_err(after)?;
        }
    }
}
