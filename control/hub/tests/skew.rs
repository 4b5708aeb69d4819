//! Agents and replicas of different versions on one stream.
//!
//! The newer version has two more kinds of object and one more match field. A newer replica is a hub with more
//! [`Capabilities`]; its match field is one that prost drops on an older agent. A newer agent names more kinds and
//! features, and holds objects of these kinds.

use control_hub::{Capabilities, ClientState, Handshake, Hub, Stream};
use control_wire::{
    Changed, Digest, Entry, Features, KINDS, NodeSnapshot, ObjectId, ObjectKind, Progress, parts,
    proto::{self, change},
};
use policy_core::{Action, Rule, Standing, compile, index::Event};
use policy_objects::Object;
use proptest::{collection::vec, prelude::*, test_runner::TestCaseError};
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};

const NEWER_KINDS: [ObjectKind; 2] = [ObjectKind(60), ObjectKind(61)];
const NEWER_FEATURE: u32 = 1;
const NODES: [&str; 2] = ["n1", "n2"];

fn newer() -> Capabilities {
    // Rules that a name marks use the newer match field.
    let requires = |rule: &Rule| match rule.name.as_deref() {
        Some("newer") => vec![NEWER_FEATURE],
        Some(_) | None => Vec::new(),
    };
    Capabilities { kinds: all_kinds(), features: [NEWER_FEATURE].into_iter().collect(), requires }
}

fn all_kinds() -> BTreeSet<ObjectKind> {
    KINDS.into_iter().chain(NEWER_KINDS).collect()
}

/// A change of a kind that no message of this version has.
fn newer_entry(content: u8) -> Entry {
    // Field 100, length-delimited, one byte.
    Entry::encoded(&[0xa2, 0x06, 0x01, content])
}

fn newer_id(kind: usize, key: u8) -> ObjectId {
    ObjectId::new(NEWER_KINDS[kind % NEWER_KINDS.len()], &[key])
}

fn read(object: &serde_json::Value) -> Object {
    Object::read_value(object).expect("an object").object
}

/// An event of the cluster, or of the newer source.
#[derive(Clone, Debug)]
enum Happening {
    Policy { name: u8, action: &'static str, is_newer: bool },
    Pod { name: u8, node: usize },
    Object { kind: usize, key: u8, content: u8, span: Vec<usize> },
    Gone { kind: usize, key: u8 },
}

fn happening() -> impl Strategy<Value = Happening> {
    let action = prop::sample::select(vec!["Allow", "Drop", "Reject", "Pass"]);
    prop_oneof![
        4 => (0_u8..3, action, any::<bool>())
            .prop_map(|(name, action, is_newer)| Happening::Policy { name, action, is_newer }),
        3 => (0_u8..3, 0_usize..2).prop_map(|(name, node)| Happening::Pod { name, node }),
        4 => (0_usize..2, 0_u8..3, 0_u8..3, vec(0_usize..2, 0..3))
            .prop_map(|(kind, key, content, span)| Happening::Object { kind, key, content, span }),
        1 => (0_usize..2, 0_u8..3).prop_map(|(kind, key)| Happening::Gone { kind, key }),
    ]
}

fn feed(hub: &mut Hub, happening: &Happening) {
    match happening {
        Happening::Policy { name, action, is_newer } => {
            let name = format!("p{name}");
            let rule = if *is_newer { "newer" } else { "known" };
            let object = read(&serde_json::json!({
                "apiVersion": "crd.antrea.io/v1beta1", "kind": "ClusterNetworkPolicy",
                "metadata": {"name": name, "uid": name},
                "spec": {"priority": 1, "tier": "application", "appliedTo": [{"podSelector": {}}],
                    "ingress": [{"name": rule, "action": action, "from": [{"ipBlock": {"cidr": "192.0.2.0/24"}}]}]},
            }));
            hub.policy(&compile(&object).expect("a policy"), 1);
        }
        Happening::Pod { name, node } => {
            let (uid, address) = (format!("pod-{name}-{node}"), format!("10.0.{node}.{name}"));
            let object = read(&serde_json::json!({
                "apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": NODES[*node]},
                "metadata": {"namespace": "shop", "name": uid, "uid": uid},
                "status": {"phase": "Running", "podIPs": [{"ip": address}]},
            }));
            let Object::Pod(pod) = object else { panic!("a pod") };
            hub.apply(Event::Pod(&pod));
        }
        Happening::Object { kind, key, content, span } => {
            let span = span.iter().map(|node| NODES[*node].to_owned()).collect();
            hub.put_object(&newer_id(*kind, *key), newer_entry(*content), span);
        }
        Happening::Gone { kind, key } => hub.remove_object(&newer_id(*kind, *key)),
    }
}

fn hub(capabilities: Capabilities) -> Hub {
    let mut hub = Hub::new([1; 16], 1).with_capabilities(capabilities);
    for name in NODES {
        let object = read(&serde_json::json!({
            "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "uid": name},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.9.0.1"}]},
        }));
        let Object::Node(node) = object else { panic!("a node") };
        hub.apply(Event::Node(&node));
    }
    hub.loaded();
    hub
}

/// An agent: the snapshot of this version, and the objects that a newer version holds beside it.
#[derive(Default)]
struct Agent {
    snapshot: NodeSnapshot,
    newer: BTreeMap<ObjectId, Digest>,
    is_newer: bool,
    stream: Option<Stream>,
}

impl Agent {
    fn state(&self) -> ClientState {
        let holds = self.snapshot.digests().into_iter().chain(self.newer.clone()).collect();
        let (epoch, generation) = (self.snapshot.epoch.clone(), self.snapshot.generation);
        let state = ClientState { epoch, generation, holds, ..ClientState::default() };
        if !self.is_newer {
            return state;
        }
        ClientState {
            kinds: all_kinds(),
            features: [NEWER_FEATURE, 9].into_iter().collect(),
            ..state
        }
    }

    /// Opens a stream; `compares`: by digests.
    fn open(&mut self, node: &str, hub: &mut Hub, compares: bool) -> Result<(), TestCaseError> {
        let epoch = if compares { Vec::new() } else { self.snapshot.epoch.clone() };
        let handshake = hub.open_stream(node, &ClientState { epoch, ..self.state() });
        let (Handshake::Resumed(stream) | Handshake::Compared(stream)) = handshake else {
            return Err(TestCaseError::fail(format!("{handshake:?}")));
        };
        self.snapshot.start_stream(&hub.epoch());
        self.stream = Some(stream);
        Ok(())
    }

    /// Receives everything; returns the number of changes, of which this version ignored none.
    fn follow(&mut self, hub: &mut Hub) -> Result<usize, TestCaseError> {
        let stream = self.stream.clone().expect("a stream");
        let mut received = 0;
        while let Some(update) = hub.next_update(&stream) {
            received += update.changes.len();
            for part in parts(update.generation, &update.changes) {
                let part = proto::Part::decode(&*part).expect("a part");
                let taken = self.snapshot.receive(part);
                match taken.map_err(|fault| TestCaseError::fail(fault.to_string()))? {
                    Progress::Applied(changed) => {
                        prop_assert_eq!(changed.ignored, 0, "objects of unknown kinds were sent");
                        hub.acknowledge(&stream, self.snapshot.generation);
                    }
                    Progress::Incomplete => {}
                }
            }
        }
        Ok(received)
    }
}

/// A rule with the newer match field allows nothing and passes nothing on an older agent.
fn is_not_widened(snapshot: &NodeSnapshot) -> Result<(), TestCaseError> {
    for rule in snapshot.policies.values().flat_map(|policy| &policy.rules) {
        prop_assert!(rule.requires.is_empty(), "{:?}", rule);
        let closed = match (&rule.standing, rule.action) {
            (Standing::MatchesNothing { .. }, Action::Allow)
            | (Standing::DeniesAll { .. }, Action::Drop) => true,
            (Standing::Understood, _)
            | (Standing::MatchesNothing { .. } | Standing::DeniesAll { .. }, _) => false,
        };
        prop_assert_eq!(closed, rule.name.as_deref() == Some("newer"), "{:?}", rule);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn an_older_agent_follows_a_newer_replica_without_loop_refusal_or_wider_rules(
        happens in vec((happening(), 0_usize..2, 0_u8..4), 1..30),
    ) {
        let mut hub = hub(newer());
        let mut agents = [Agent::default(), Agent::default()];
        for (agent, node) in agents.iter_mut().zip(NODES) {
            agent.open(node, &mut hub, false)?;
        }
        for (happening, which, deed) in &happens {
            feed(&mut hub, happening);
            let (agent, node) = (&mut agents[*which], NODES[*which]);
            match deed {
                0 => continue,
                1 => agent.open(node, &mut hub, false)?,
                2 => agent.open(node, &mut hub, true)?,
                _ => {}
            }
            agent.follow(&mut hub)?;
            is_not_widened(&agent.snapshot)?;
        }
        for (agent, node) in agents.iter_mut().zip(NODES) {
            agent.follow(&mut hub)?;
            is_not_widened(&agent.snapshot)?;
            // A resync finds nothing that differs: otherwise each one would send the same again.
            agent.open(node, &mut hub, true)?;
            prop_assert_eq!(agent.follow(&mut hub)?, 0);
        }
    }

    #[test]
    fn a_newer_agent_follows_an_older_replica_and_keeps_its_other_objects(
        happens in vec((happening(), 0_u8..4), 1..30),
        newer in vec((0_usize..2, any::<u8>()), 0..6),
    ) {
        let mut hub = hub(Capabilities::default());
        let newer: BTreeMap<_, _> =
            newer.into_iter().map(|(kind, key)| (newer_id(kind, key), Digest([key; 32]))).collect();
        let mut agent = Agent { newer, is_newer: true, ..Agent::default() };
        agent.open("n1", &mut hub, false)?;
        let kinds = hub.kinds(agent.stream.as_ref().expect("a stream"));
        prop_assert_eq!(kinds, Capabilities::default().kinds);
        for (happening, deed) in &happens {
            feed(&mut hub, happening);
            match deed {
                0 => continue,
                1 => agent.open("n1", &mut hub, false)?,
                2 => agent.open("n1", &mut hub, true)?,
                _ => {}
            }
            // A removal of an object that the replica does not know would be counted as ignored.
            agent.follow(&mut hub)?;
        }
        agent.open("n1", &mut hub, true)?;
        agent.follow(&mut hub)?;
        agent.open("n1", &mut hub, true)?;
        prop_assert_eq!(agent.follow(&mut hub)?, 0);
    }
}

/// All changes that a new agent of the newer version receives, undecoded.
fn first_update(hub: &mut Hub, state: &ClientState) -> usize {
    let Handshake::Compared(stream) = hub.open_stream("n1", state) else { panic!("a comparison") };
    hub.next_update(&stream).expect("an update").changes.len()
}

#[test]
fn objects_of_another_source_reach_the_nodes_in_their_span_that_know_the_kind() {
    let mut hub = hub(newer());
    let older = ClientState::default();
    let newer = ClientState { kinds: all_kinds(), ..ClientState::default() };
    let before = first_update(&mut hub, &older);
    hub.put_object(&newer_id(0, 1), newer_entry(1), ["n1".to_owned()].into());
    hub.put_object(&newer_id(1, 1), newer_entry(2), ["n2".to_owned()].into());
    assert_eq!(first_update(&mut hub, &older), before);
    assert_eq!(first_update(&mut hub, &newer), before + 1);

    let held = newer_entry(1).digest();
    let holds = [(newer_id(0, 1), held), (newer_id(1, 9), held)].into();
    // The first is the same, the second is to be removed.
    assert_eq!(first_update(&mut hub, &ClientState { holds, ..newer.clone() }), before + 1);

    let Handshake::Compared(stream) = hub.open_stream("n1", &newer) else { panic!("a comparison") };
    let next = |hub: &mut Hub| {
        let update = hub.next_update(&stream)?;
        hub.acknowledge(&stream, update.generation);
        Some(update.changes)
    };
    assert!(next(&mut hub).is_some());
    hub.put_object(&newer_id(0, 1), newer_entry(1), ["n1".to_owned(), "n2".to_owned()].into());
    assert_eq!(next(&mut hub), None, "neither its content nor this node's need has changed");
    hub.put_object(&newer_id(0, 1), newer_entry(3), ["n1".to_owned()].into());
    assert_eq!(next(&mut hub), Some(vec![newer_entry(3)]));
    hub.remove_object(&newer_id(0, 1));
    let removed = change::Of::Removed(newer_id(0, 1).to_proto()).into();
    assert_eq!(next(&mut hub), Some(vec![control_wire::entry(&removed)]));
}

#[test]
fn an_agent_that_knows_more_than_before_its_restart_does_not_resume() {
    let mut hub = hub(newer());
    let mut agent = Agent::default();
    agent.open("n1", &mut hub, false).expect("a stream");
    agent.follow(&mut hub).expect("all objects");
    let same = agent.state();
    assert!(matches!(hub.open_stream("n1", &same), Handshake::Resumed(_)));
    agent.is_newer = true;
    assert!(matches!(hub.open_stream("n1", &agent.state()), Handshake::Compared(_)));
}

#[test]
fn an_agent_counts_and_skips_changes_of_unknown_kinds_and_applies_the_rest() {
    let removed = change::Of::Removed(newer_id(0, 1).to_proto()).into();
    let pod = proto::Pod { uid: "u".to_owned(), ..proto::Pod::default() };
    let entries = [
        newer_entry(1),
        control_wire::entry(&removed),
        control_wire::entry(&change::Of::Pod(pod).into()),
    ];
    let mut snapshot = NodeSnapshot::default();
    for part in parts(1, &entries) {
        let progress = snapshot.receive(proto::Part::decode(&*part).expect("a part"));
        let Ok(Progress::Applied(changed)) = progress else { panic!("{progress:?}") };
        assert_eq!((changed.ignored, changed.len()), (2, 1));
    }
    assert!(snapshot.pods.contains_key("u"));
}

#[test]
fn the_sets_of_changes_of_two_generations_add_up() {
    use control_wire::Difference::{Added, Changed as Other, Removed};
    let of = |all: &[(&str, control_wire::Difference)]| {
        let mut changed = Changed::default();
        all.iter().for_each(|(uid, difference)| changed.insert(ObjectId::pod(uid), *difference));
        changed
    };
    let mut first = of(&[("a", Added), ("b", Other), ("c", Removed), ("d", Added), ("e", Other)]);
    first.merge(of(&[("a", Other), ("b", Removed), ("c", Added), ("d", Removed), ("f", Added)]));
    let sum =
        [("a", Added), ("b", Removed), ("c", Other), ("d", Removed), ("e", Other), ("f", Added)];
    assert_eq!(first, of(&sum));
}

#[test]
fn an_agent_fails_a_rule_closed_by_its_required_features_alone() {
    let mut hub = hub(newer());
    feed(&mut hub, &Happening::Pod { name: 1, node: 0 });
    for (name, action) in (0..).zip(["Allow", "Drop", "Reject", "Pass"]) {
        feed(&mut hub, &Happening::Policy { name, action, is_newer: true });
    }
    // The replica takes the agent for a newer one, and sends the rules as they are.
    let features: Features = [NEWER_FEATURE].into_iter().collect();
    let state = ClientState { features, ..ClientState::default() };
    let Handshake::Compared(stream) = hub.open_stream("n1", &state) else { panic!("a comparison") };
    let update = hub.next_update(&stream).expect("an update");
    let mut snapshot = NodeSnapshot::default();
    for part in parts(update.generation, &update.changes) {
        snapshot.receive(proto::Part::decode(&*part).expect("a part")).expect("it can be applied");
    }
    assert_eq!(snapshot.policies.len(), 4);
    is_not_widened(&snapshot).expect("closed");
}
