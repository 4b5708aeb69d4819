//! A second source beside policy: the distributor delivers its objects without a line that knows them.

use control_hub::{
    ClientState, Distributor, Generation, Handshake, Pending, PolicySource, Recipient, Source,
    Stream,
};
use control_wire::{
    Digest, Entry, Features, KINDS, NodeSnapshot, ObjectId, ObjectKind, entry, parts,
    proto::{self, change},
};
use policy_core::{compile, index::Event};
use policy_objects::Object;
use proptest::{collection::vec, prelude::*, test_runner::TestCaseError};
use prost::Message as _;
use std::collections::{BTreeMap, BTreeSet};

const ZONE: ObjectKind = ObjectKind(40);
const NODES: [&str; 2] = ["n1", "n2"];

/// Zones with a content. The span of a zone is the set of nodes in it: a node moves, the object does not change.
#[derive(Debug, Default)]
struct Zones {
    content: BTreeMap<u8, u8>,
    nodes: BTreeMap<String, u8>,
    encodings: usize,
}

impl Zones {
    fn span(&self, zone: u8) -> BTreeSet<String> {
        let nodes = self.nodes.iter().filter(|(_, of)| **of == zone);
        nodes.map(|(node, _)| node.clone()).collect()
    }

    fn put(&mut self, zone: u8, content: u8, generation: &mut Generation<'_>) {
        let nodes = self.span(zone);
        match self.content.insert(zone, content) {
            Some(before) if before == content => {}
            Some(_) => {
                generation.record(&id(zone), encoded(zone, content));
                generation.changed(&id(zone), &nodes);
            }
            None => {
                generation.begin_history(&id(zone));
                generation.entered(&id(zone), &nodes);
            }
        }
    }

    fn remove(&mut self, zone: u8, generation: &mut Generation<'_>) {
        if self.content.remove(&zone).is_some() {
            generation.end_history(&id(zone));
            generation.left(&id(zone), &self.span(zone));
        }
    }

    fn move_node(&mut self, node: &str, zone: u8, generation: &mut Generation<'_>) {
        let before = self.nodes.insert(node.to_owned(), zone);
        if before == Some(zone) {
            return;
        }
        let node = [&node.to_owned()];
        if let Some(before) = before.filter(|before| self.content.contains_key(before)) {
            generation.left(&id(before), node);
        }
        if self.content.contains_key(&zone) {
            generation.entered(&id(zone), node);
        }
    }
}

impl Source for Zones {
    fn needs(&mut self, recipient: &Recipient<'_>) -> Vec<(ObjectId, Digest)> {
        let zone = self.nodes.get(recipient.node).copied();
        let content = |zone| self.content.get(&zone).map(|content| (zone, *content));
        let found = zone.and_then(content).into_iter();
        found.map(|(zone, content)| (id(zone), encoded(zone, content).digest())).collect()
    }

    fn encode(
        &mut self,
        _recipient: &Recipient<'_>,
        objects: &[(ObjectId, Pending)],
        changes: &mut Vec<Entry>,
    ) {
        for (object, _) in objects.iter().filter(|(object, _)| object.kind == ZONE) {
            let zone = object.key()[0];
            self.encodings += 1;
            changes.extend(self.content.get(&zone).map(|content| encoded(zone, *content)));
        }
    }
}

fn id(zone: u8) -> ObjectId {
    ObjectId::new(ZONE, &[zone])
}

/// A change that no message of this version has: field 100, length-delimited, two bytes.
fn encoded(zone: u8, content: u8) -> Entry {
    Entry::encoded(&[0xa2, 0x06, 0x02, zone, content])
}

fn removed(zone: u8) -> Entry {
    entry(&change::Of::Removed(id(zone).to_proto()).into())
}

type Both = Distributor<(PolicySource, Zones)>;

fn both() -> Both {
    let mut both = Distributor::of((PolicySource::new(1), Zones::default()), [1; 16])
        .sending(kinds(), Features::supported());
    both.loaded();
    both
}

fn kinds() -> BTreeSet<ObjectKind> {
    KINDS.into_iter().chain([ZONE]).collect()
}

fn pod(distributor: &mut Both, name: &str, node: &str) {
    distributor.change(|(policy, _), generation| bound_pod(policy, name, node, generation));
}

fn bound_pod(policy: &mut PolicySource, name: &str, node: &str, generation: &mut Generation<'_>) {
    let object = read(&serde_json::json!({
        "apiVersion": "v1", "kind": "Pod", "spec": {"nodeName": node},
        "metadata": {"namespace": "shop", "name": name, "uid": name},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]},
    }));
    let Object::Pod(pod) = object else { panic!("a pod") };
    policy.apply(Event::Pod(&pod), generation);
}

fn closed(policy: &mut PolicySource, name: &str, generation: &mut Generation<'_>) {
    let object = read(&serde_json::json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
        "metadata": {"namespace": "shop", "name": name, "uid": name},
        "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
    }));
    policy.policy(&compile(&object).expect("a policy"), 1, generation);
}

fn read(object: &serde_json::Value) -> Object {
    Object::read_value(object).expect("an object").object
}

/// An agent that knows the kind of zones.
#[derive(Debug, Default)]
struct Agent {
    snapshot: NodeSnapshot,
    zones: BTreeMap<u8, u8>,
    stream: Option<Stream>,
}

impl Agent {
    fn state(&self) -> ClientState {
        let zones = self.zones.iter().map(|(zone, of)| (id(*zone), encoded(*zone, *of).digest()));
        ClientState {
            epoch: self.snapshot.epoch.clone(),
            generation: self.snapshot.generation,
            holds: self.snapshot.digests().into_iter().chain(zones).collect(),
            kinds: kinds(),
            ..ClientState::default()
        }
    }

    /// Opens a stream that resumes, or one that compares digests.
    fn open(&mut self, node: &str, distributor: &mut Both, compares: bool) {
        let state = self.state();
        let epoch = if compares { vec![9; 16] } else { state.epoch.clone() };
        let stream = match distributor.open_stream(node, &ClientState { epoch, ..state }) {
            Handshake::Resumed(stream) if !compares => stream,
            Handshake::Compared(stream) => stream,
            other @ (Handshake::Resumed(_) | Handshake::Behind(_) | Handshake::NotYet) => {
                panic!("{other:?}")
            }
        };
        self.snapshot.start_stream(&distributor.epoch());
        self.stream = Some(stream);
    }

    /// Applies the next update and returns its changes.
    fn follow(&mut self, distributor: &mut Both) -> Option<Vec<Entry>> {
        let stream = self.stream.clone()?;
        let update = distributor.next_update(&stream)?;
        for part in parts(update.generation, &update.changes) {
            let part = proto::Part::decode(part).expect("a part");
            self.snapshot.receive(part).expect("it can be applied");
        }
        for zone in 0..4 {
            if update.changes.contains(&removed(zone)) {
                self.zones.remove(&zone);
            }
            let last = update
                .changes
                .iter()
                .rev()
                .find_map(|change| (0..4).find(|content| *change == encoded(zone, *content)));
            self.zones.extend(last.map(|content| (zone, content)));
        }
        distributor.acknowledge(&stream, update.generation);
        Some(update.changes)
    }
}

#[test]
fn two_sources_share_generations_streams_and_digests() {
    let mut distributor = both();
    pod(&mut distributor, "web", "n1");
    let mut agents = NODES.map(|_| Agent::default());
    for (agent, node) in agents.iter_mut().zip(NODES) {
        agent.open(node, &mut distributor, true);
        agent.follow(&mut distributor);
    }
    let [one, two] = &mut agents;

    // One change of both sources is one generation and one update.
    let before = distributor.generation();
    distributor.change(|(policy, zones), generation| {
        closed(policy, "closed", generation);
        zones.put(1, 0, generation);
        zones.move_node("n1", 1, generation);
    });
    assert_eq!(distributor.generation(), before + 1);
    assert_eq!(distributor.take_touched(), ["n1".to_owned(), "n2".to_owned()].into());
    let changes = one.follow(&mut distributor).expect("an update");
    assert!(changes.contains(&encoded(1, 0)));
    assert_eq!((one.snapshot.policies.len(), one.snapshot.generation), (1, before + 1));
    assert_eq!(two.follow(&mut distributor), None, "the node is in no span");

    // A change reaches the span only, as a recorded change that the source does not encode again.
    let encodings = distributor.source().1.encodings;
    distributor.change(|(_, zones), generation| zones.put(1, 2, generation));
    assert_eq!(distributor.take_touched(), ["n1".to_owned()].into());
    assert_eq!(one.follow(&mut distributor), Some(vec![encoded(1, 2)]));
    assert_eq!(distributor.source().1.encodings, encodings);

    // A node leaves the span, another enters it.
    distributor.change(|(_, zones), generation| {
        zones.move_node("n1", 0, generation);
        zones.move_node("n2", 1, generation);
    });
    assert_eq!(one.follow(&mut distributor), Some(vec![removed(1)]));
    assert_eq!(two.follow(&mut distributor), Some(vec![encoded(1, 2)]));

    // A node that reports the same digests receives nothing; another content is replaced.
    two.open("n2", &mut distributor, true);
    assert_eq!(two.follow(&mut distributor), Some(Vec::new()));
    two.zones.insert(1, 3);
    two.open("n2", &mut distributor, true);
    assert_eq!(two.follow(&mut distributor), Some(vec![encoded(1, 2)]));

    // A stream that breaks off resumes with the changes since then.
    distributor.close_stream(two.stream.as_ref().expect("a stream"), 0);
    distributor.change(|(_, zones), generation| zones.remove(1, generation));
    two.open("n2", &mut distributor, false);
    assert_eq!(two.follow(&mut distributor), Some(vec![removed(1)]));
    assert!(two.zones.is_empty());
}

#[test]
fn an_agent_without_the_kind_receives_policy_alone() {
    let mut distributor = both();
    pod(&mut distributor, "web", "n1");
    distributor.change(|(policy, zones), generation| {
        closed(policy, "closed", generation);
        zones.put(1, 0, generation);
        zones.move_node("n1", 1, generation);
    });
    let Handshake::Compared(stream) = distributor.open_stream("n1", &ClientState::default()) else {
        panic!("a comparison")
    };
    let update = distributor.next_update(&stream).expect("an update");
    assert!(!update.changes.is_empty() && !update.changes.contains(&encoded(1, 0)));
    distributor.change(|(_, zones), generation| zones.put(1, 1, generation));
    assert_eq!(distributor.next_update(&stream), None);
}

#[derive(Clone, Debug)]
enum Step {
    Zone { zone: u8, content: u8 },
    RemoveZone { zone: u8 },
    Move { node: usize, zone: u8 },
    Pod { name: u8, node: usize },
    Follow { node: usize },
    Reconnect { node: usize, compares: bool },
    Tidy,
}

fn step() -> impl Strategy<Value = Step> {
    let (zone, node) = (0_u8..4, 0_usize..2);
    prop_oneof![
        4 => (zone.clone(), 0_u8..4).prop_map(|(zone, content)| Step::Zone { zone, content }),
        1 => zone.clone().prop_map(|zone| Step::RemoveZone { zone }),
        3 => (node.clone(), zone).prop_map(|(node, zone)| Step::Move { node, zone }),
        2 => (0_u8..3, node.clone()).prop_map(|(name, node)| Step::Pod { name, node }),
        3 => node.clone().prop_map(|node| Step::Follow { node }),
        2 => (node, any::<bool>()).prop_map(|(node, compares)| Step::Reconnect { node, compares }),
        1 => Just(Step::Tidy),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn each_node_converges_to_what_both_sources_hold_for_it(steps in vec(step(), 0..60)) {
        let mut distributor = both();
        distributor.change(|(policy, _), generation| closed(policy, "closed", generation));
        let mut agents = NODES.map(|_| Agent::default());
        for (agent, node) in agents.iter_mut().zip(NODES) {
            agent.open(node, &mut distributor, true);
        }
        for step in steps {
            match step {
                Step::Zone { zone, content } => {
                    distributor.change(|(_, zones), news| zones.put(zone, content, news));
                }
                Step::RemoveZone { zone } => {
                    distributor.change(|(_, zones), news| zones.remove(zone, news));
                }
                Step::Move { node, zone } => {
                    distributor.change(|(_, zones), news| zones.move_node(NODES[node], zone, news));
                }
                Step::Pod { name, node } => {
                    pod(&mut distributor, &format!("pod-{name}-{node}"), NODES[node]);
                }
                Step::Follow { node } => _ = agents[node].follow(&mut distributor),
                Step::Reconnect { node, compares } => {
                    agents[node].open(NODES[node], &mut distributor, compares);
                }
                Step::Tidy => distributor.tidy(0),
            }
        }
        for (agent, node) in agents.iter_mut().zip(NODES) {
            while agent.follow(&mut distributor).is_some() {}
            let zones = &distributor.source().1;
            let zone = zones.nodes.get(node);
            let content = zone.and_then(|zone| Some((*zone, *zones.content.get(zone)?)));
            prop_assert_eq!(&agent.zones, &content.into_iter().collect::<BTreeMap<_, _>>());
            is_complete(agent, node, &mut distributor)?;
        }
    }
}

/// A new agent of the node receives the same content.
fn is_complete(agent: &Agent, node: &str, distributor: &mut Both) -> Result<(), TestCaseError> {
    let mut fresh = Agent::default();
    fresh.open(node, distributor, true);
    fresh.follow(distributor);
    prop_assert_eq!(agent.snapshot.digests(), fresh.snapshot.digests());
    prop_assert_eq!(&agent.zones, &fresh.zones);
    Ok(())
}

/// The seam holds only if the distributor names no source.
#[test]
fn the_distributor_does_not_depend_on_policy() {
    let files = [
        include_str!("../src/distributor.rs"),
        include_str!("../src/distributor/generation.rs"),
        include_str!("../src/distributor/history.rs"),
        include_str!("../src/distributor/queue.rs"),
        include_str!("../src/distributor/reached.rs"),
        include_str!("../src/distributor/stream.rs"),
        include_str!("../src/encoded_objects.rs"),
        include_str!("../src/source.rs"),
    ];
    for text in files {
        let code = text.lines().filter(|line| !line.trim_start().starts_with("//"));
        let found: Vec<&str> = code.filter(|line| line.contains("policy")).collect();
        assert!(found.is_empty(), "{found:?}");
    }
}
