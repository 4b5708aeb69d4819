//! Nodes' snapshots compared with an evaluation of all objects.
//!
//! Meanwhile objects change, nodes are slow, streams break, nodes restart and move to another replica, and
//! agents announce addresses of pods.

mod burst;

use control_hub::{Announce, Hub, Needed, NeededBy, PolicyChange};
use control_wire::NodeSnapshot;
use policy_core::index::Event as IndexEvent;
use proptest::{collection::vec, prelude::*, sample::Index, test_runner::TestCaseError};
use std::collections::{BTreeMap, BTreeSet};
use tests_policy::{
    announced::{self, Announcement, Announcements, announcement},
    cases,
    compiled::{CompiledNode, is_same},
    live::NODES,
    naive::{Answer, Half, Naive, Packet},
    node_client::{NodeClient, feed, feed_view, fresh, sent},
    on_node::Node,
    scenario::{Event, Scenario, Sketch, events, id, sketch, world},
};

/// Two replicas that read the same objects, their nodes, and the world.
struct Cluster {
    scenario: Scenario,
    announcements: Announcements,
    spans: Spans,
    hubs: [Hub; 2],
    nodes: BTreeMap<&'static str, NodeClient>,
    now_ms: u64,
}

/// The nodes and the generation of each policy, as the sum of the first replica's policy changes.
type Spans = BTreeMap<String, (i64, BTreeSet<String>)>;

fn fold(spans: &mut Spans, turn: PolicyChange) {
    let Some(Needed { generation, by }) = turn.now else {
        spans.remove(&turn.uid);
        return;
    };
    let (known, nodes) = spans.entry(turn.uid).or_default();
    *known = generation;
    match by {
        NeededBy::All(all) => *nodes = all.into_iter().collect(),
        NeededBy::Moved(moves) => {
            for (node, is_in) in moves {
                if is_in {
                    nodes.insert(node)
                } else {
                    nodes.remove(&node)
                };
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// An object is added, changed or removed.
    Change(Event),
    /// An agent announces a pod's addresses to every replica.
    Announce(announced::AnnouncementSketch),
    /// Time passes, in milliseconds.
    Wait(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let more = prop_oneof![
        6 => announcement().prop_map(Step::Announce),
        1 => (1_000..70_000_u64).prop_map(Step::Wait),
    ];
    (events(), vec((any::<Index>(), more), 0..6)).prop_map(|(events, more)| {
        let mut steps: Vec<Step> = events.into_iter().map(Step::Change).collect();
        for (place, step) in more {
            steps.insert(place.index(steps.len() + 1), step);
        }
        steps
    })
}

/// A node's action after a step.
#[derive(Clone, Copy, Debug)]
enum NodeAction {
    /// Receives all pending objects.
    Follows,
    /// Reads nothing.
    Waits,
    /// Receives nothing of the parts that were sent.
    Lags,
    /// Loses its stream, with some of the parts in flight, and reconnects at once.
    Reconnects,
    /// Moves to the other replica.
    Moves,
    /// Disconnects until the replica has removed its state.
    Sleeps,
    /// Restarts without a snapshot.
    Restarts,
}

fn node_action() -> impl Strategy<Value = NodeAction> {
    prop_oneof![
        4 => Just(NodeAction::Follows),
        2 => Just(NodeAction::Waits),
        2 => Just(NodeAction::Lags),
        2 => Just(NodeAction::Reconnects),
        1 => Just(NodeAction::Moves),
        1 => Just(NodeAction::Sleeps),
        1 => Just(NodeAction::Restarts),
    ]
}

impl Cluster {
    fn new(scenario: Scenario) -> Self {
        let mut hubs = [Hub::new([1; 16], 1), Hub::new([2; 16], 2)];
        scenario.objects.iter().for_each(|object| feed(&mut hubs[0], object));
        scenario.objects.iter().rev().for_each(|object| feed_view(&mut hubs[1], object));
        hubs.iter_mut().for_each(Hub::loaded);
        hubs[0].follow_policies();
        let nodes = NODES.iter().map(|node| (*node, NodeClient::default())).collect();
        Self {
            scenario,
            announcements: Announcements::default(),
            spans: Spans::new(),
            hubs,
            nodes,
            now_ms: 0,
        }
    }

    /// The objects, with the announced addresses in the pods' status.
    fn now(&self) -> Scenario {
        self.announcements.apply_to(&self.scenario)
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Change(event) => self.change(event),
            Step::Announce(announcement) => {
                if let Some(resolved) = announcement.resolve(&self.scenario) {
                    self.announce(&resolved)?;
                }
            }
            Step::Wait(ms) => self.wait(ms),
        }
        for hub in &self.hubs {
            prop_assert_eq!(hub.measures().announced, self.announcements.len());
        }
        Ok(())
    }

    fn announce(&mut self, resolved: &Announcement) -> Result<(), TestCaseError> {
        let Announcement { node, pod, uid, addresses } = resolved.clone();
        let announce = Announce { pod, uid, addresses };
        let accepted = self.announcements.accept(&self.scenario, resolved, self.now_ms);
        for hub in &mut self.hubs {
            let answer = hub.announce(&node, &announce, self.now_ms);
            prop_assert_eq!(answer.is_ok(), accepted, "{:?}: {:?}", resolved, answer);
        }
        Ok(())
    }

    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        self.hubs.iter_mut().for_each(|hub| hub.tidy(self.now_ms));
        self.announcements.expire(self.now_ms);
    }

    fn change(&mut self, event: Event) {
        match event {
            Event::Insert(object) => {
                self.scenario.objects.retain(|other| id(other) != id(&object));
                self.hubs.iter_mut().for_each(|hub| feed(hub, &object));
                self.scenario.objects.push(*object);
            }
            Event::Remove(_) if self.scenario.objects.is_empty() => {}
            Event::Remove(which) => {
                let (kind, namespace, name) = id(which.get(&self.scenario.objects));
                self.scenario
                    .objects
                    .retain(|other| id(other) != (kind, namespace.clone(), name.clone()));
                let (namespace, name, uid) = (&namespace, &name, "");
                let gone = IndexEvent::Gone { kind, namespace, name, uid };
                self.hubs.iter_mut().for_each(|hub| hub.apply(gone));
            }
        }
        self.announcements.retain_valid(&self.scenario);
    }

    fn act(&mut self, node: &'static str, action: NodeAction) -> Result<(), TestCaseError> {
        let client = self.nodes.get_mut(node).expect("a node");
        let hub = &mut self.hubs[client.replica];
        match action {
            NodeAction::Waits => return Ok(()),
            NodeAction::Follows => {}
            NodeAction::Lags => {
                if let Some(stream) = &client.stream {
                    client.sent.extend(sent(hub, stream));
                }
                return Ok(());
            }
            NodeAction::Reconnects => client.disconnect(hub, self.now_ms),
            NodeAction::Moves => {
                client.disconnect(hub, self.now_ms);
                client.replica = 1 - client.replica;
            }
            NodeAction::Sleeps => {
                client.disconnect(hub, self.now_ms);
                self.wait(61_000);
            }
            NodeAction::Restarts => {
                client.disconnect(hub, self.now_ms);
                client.snapshot = NodeSnapshot::default();
            }
        }
        let client = self.nodes.get_mut(node).expect("a node");
        let hub = &mut self.hubs[client.replica];
        client.follow(node, hub)?;
        hub.tidy(self.now_ms);
        Ok(())
    }
}

/// The sum of the policy changes is the state of a replica that has just read everything.
fn spans_add_up(cluster: &mut Cluster, at_once: usize) -> Result<(), TestCaseError> {
    let mut replica = Hub::new([8; 16], 3);
    cluster.now().objects.iter().for_each(|object| feed(&mut replica, object));
    replica.loaded();
    replica.follow_policies();
    let mut due = Spans::new();
    replica.take_policies(usize::MAX).into_iter().for_each(|turn| fold(&mut due, turn));
    loop {
        let turns = cluster.hubs[0].take_policies(at_once);
        if turns.is_empty() {
            break;
        }
        turns.into_iter().for_each(|turn| fold(&mut cluster.spans, turn));
    }
    prop_assert_eq!(&cluster.spans, &due);
    Ok(())
}

/// A node has the same bytes as one that connects now.
fn has_current_objects(cluster: &Cluster, node: &str) -> Result<(), TestCaseError> {
    let (snapshot, due) = (cluster.nodes[node].objects(), fresh(&cluster.now(), node).objects());
    for id in snapshot.keys().chain(due.keys()) {
        prop_assert_eq!(snapshot.get(id), due.get(id), "{} at {}", id, node);
    }
    Ok(())
}

/// The part of an answer that one node decides.
fn of_node(scenario: &Scenario, answer: &Answer, packet: &Packet, node: &str) -> [Option<Half>; 2] {
    let naive = Naive { objects: &scenario.objects, names: &scenario.names };
    let (out, into) = naive.ends(packet);
    let here = |half: &Option<Half>, pod: Option<&policy_objects::Pod>| {
        half.clone().filter(|_| pod.is_some_and(|pod| pod.node == node))
    };
    [here(&answer.out, out), here(&answer.into, into)]
}

/// A node with a complete snapshot decides as all objects do.
fn agrees(
    scenario: &Scenario,
    node: &str,
    snapshot: &NodeSnapshot,
    sketches: &[Sketch],
) -> Result<(), TestCaseError> {
    let naive = Naive { objects: &scenario.objects, names: &scenario.names };
    let judge = Node { name: node, snapshot, names: &scenario.names };
    let compiled = CompiledNode::new(node, snapshot, &scenario.names);
    for packet in sketches.iter().filter_map(|sketch| sketch.packet(scenario)) {
        let answer = naive.answer(&packet);
        let here = judge.answer(&naive.with_host_origin(&packet));
        let expected = of_node(scenario, &answer, &packet, node);
        let looked_up = compiled.answer(&naive.with_host_origin(&packet));
        for (compiled, expected) in looked_up.iter().zip(&expected) {
            let is_same = is_same(compiled.as_ref(), expected.as_ref());
            prop_assert!(is_same, "{:?} at {}: {:?}, not {:?}", packet, node, compiled, expected);
        }
        prop_assert_eq!([here.out, here.into], expected, "{:?} at {}", packet, node);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(200))]

    #[test]
    fn node_snapshots_decide_as_all_objects_do(
        scenario in world(),
        happens in steps(),
        actions in vec((any::<Index>(), node_action()), 10..20),
        sketches in vec(sketch(), 1..10),
    ) {
        let mut cluster = Cluster::new(scenario);
        let mut actions = actions.into_iter();
        for step in happens {
            let step_text = match &step {
                Step::Change(event) => event.describe(&cluster.scenario),
                Step::Announce(_) | Step::Wait(_) => format!("{step:?}"),
            };
            cluster.step(step)?;
            if step_text.len() % 3 == 0 {
                spans_add_up(&mut cluster, 1 + step_text.len() % 5)?;
            }
            for (which, action) in actions.by_ref().take(2) {
                let node = NODES[which.index(NODES.len())];
                let done = cluster.act(node, action);
                let client = &cluster.nodes[node];
                let after = |fault: TestCaseError| {
                    TestCaseError::fail(format!("{action:?} after {step_text}\nin {:?}\n{fault}", cluster.scenario))
                };
                done.map_err(after)?;
                if matches!(action, NodeAction::Waits | NodeAction::Lags) {
                    continue;
                }
                // Checks every node that has received everything.
                has_current_objects(&cluster, node).map_err(after)?;
                agrees(&cluster.now(), node, &client.snapshot, &sketches).map_err(after)?;
            }
        }
        spans_add_up(&mut cluster, 1)?;
        cluster.wait(61_000);
        prop_assert!(cluster.announcements.is_empty());
        for node in NODES {
            cluster.act(node, NodeAction::Follows)?;
            let client = &cluster.nodes[node];
            has_current_objects(&cluster, node)?;
            agrees(&cluster.now(), node, &client.snapshot, &sketches)?;
        }
        // A hub keeps nothing for nodes that are up to date or that have moved.
        for hub in &mut cluster.hubs {
            hub.tidy(cluster.now_ms + 61_000);
            let measures = hub.measures();
            prop_assert_eq!((measures.pending, measures.history_bytes), (0, 0));
        }
    }
}
