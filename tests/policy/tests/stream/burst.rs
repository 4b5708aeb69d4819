//! Two replicas that read the same objects in different orders, and nodes that move between them meanwhile.

use control_hub::Hub;
use control_wire::{ObjectId, Progress, proto};
use policy_core::index::Event as IndexEvent;
use policy_objects::{Kind, Object};
use proptest::{collection::vec, prelude::*, sample::Index, test_runner::TestCaseError};
use prost::Message as _;
use std::collections::{BTreeMap, VecDeque};
use tests_policy::node_client::{NodeClient, feed, fresh, sent};
use tests_policy::{
    cases,
    live::NODES,
    scenario::{Event, Id, Scenario, events, id, world},
};

/// An event of a watch.
#[derive(Clone, Debug)]
enum WatchEvent {
    Changed(Box<Object>),
    Deleted(Id),
}

impl WatchEvent {
    fn id(&self) -> Id {
        match self {
            Self::Changed(object) => id(object),
            Self::Deleted(gone) => gone.clone(),
        }
    }

    /// Applies the event to a world.
    fn apply(&self, scenario: &mut Scenario) {
        let gone = self.id();
        scenario.objects.retain(|other| id(other) != gone);
        if let Self::Changed(object) = self {
            scenario.objects.push((**object).clone());
        }
    }
}

/// Converts events into watch events, and returns the world after them.
fn watch_events(mut scenario: Scenario, events: Vec<Event>) -> (Vec<WatchEvent>, Scenario) {
    let mut all = Vec::new();
    for event in events {
        let watch_event = match event {
            Event::Insert(object) => WatchEvent::Changed(object),
            Event::Remove(_) if scenario.objects.is_empty() => continue,
            Event::Remove(which) => WatchEvent::Deleted(id(which.get(&scenario.objects))),
        };
        watch_event.apply(&mut scenario);
        all.push(watch_event);
    }
    (all, scenario)
}

/// Shuffles watch events. Events of the same `line` keep their order.
fn reordered<L: Ord + Clone>(
    all: Vec<WatchEvent>,
    line: impl Fn(&WatchEvent) -> L,
    draws: &[Index],
) -> VecDeque<WatchEvent> {
    let mut lines: BTreeMap<L, VecDeque<WatchEvent>> = BTreeMap::new();
    for watch_event in all {
        lines.entry(line(&watch_event)).or_default().push_back(watch_event);
    }
    let mut order = VecDeque::new();
    for draw in draws.iter().cycle() {
        let Some(of) = lines.keys().nth(draw.index(lines.len().max(1))).cloned() else { break };
        order.extend(lines.get_mut(&of).and_then(VecDeque::pop_front));
        lines.retain(|_, line| !line.is_empty());
    }
    order
}

/// A replica with the world that it has read and the events that it has not read yet.
struct Replica {
    hub: Hub,
    scenario: Scenario,
    ahead: VecDeque<WatchEvent>,
}

impl Replica {
    /// Creates a replica that has listed all objects, in any order. The watches of the kinds proceed
    /// independently.
    fn new(number: u8, scenario: &Scenario, burst: Vec<WatchEvent>, draws: &[Index]) -> Self {
        let listed =
            scenario.objects.iter().cloned().map(Box::new).map(WatchEvent::Changed).collect();
        let none = Scenario { objects: Vec::new(), names: scenario.names.clone() };
        let hub = Hub::new([number; 16], number.into());
        let mut replica =
            Self { hub, scenario: none, ahead: reordered(listed, WatchEvent::id, draws) };
        replica.read(usize::MAX);
        replica.hub.loaded();
        replica.ahead =
            reordered(burst, |watch_event: &WatchEvent| -> Kind { watch_event.id().0 }, draws);
        replica
    }

    fn read(&mut self, count: usize) {
        for _ in 0..count {
            let Some(watch_event) = self.ahead.pop_front() else { return };
            watch_event.apply(&mut self.scenario);
            match &watch_event {
                WatchEvent::Changed(object) => feed(&mut self.hub, object),
                WatchEvent::Deleted((kind, namespace, name)) => {
                    self.hub.apply(IndexEvent::Gone { kind: *kind, namespace, name, uid: "" });
                }
            }
        }
    }
}

fn bytes(objects: BTreeMap<ObjectId, proto::Change>) -> BTreeMap<ObjectId, Vec<u8>> {
    objects.into_iter().map(|(id, object)| (id, object.encode_to_vec())).collect()
}

/// One step of the test during a burst.
#[derive(Clone, Debug)]
struct Turn {
    /// Number of events that each replica reads.
    read: [usize; 2],
    /// True if the node moves to the other replica.
    moves: bool,
    /// Number of parts that reach the node before its stream breaks. `None`: all.
    reach: Option<usize>,
}

fn turn() -> impl Strategy<Value = Turn> {
    let reach = prop_oneof![3 => Just(None), 2 => (0..12_usize).prop_map(Some)];
    ([0..4_usize, 0..4_usize], any::<bool>(), reach).prop_map(|(read, moves, reach)| Turn {
        read,
        moves,
        reach,
    })
}

/// Splits parts into parts of one change each, so that the stream can break after each change.
fn cut(parts: Vec<proto::Part>) -> Vec<proto::Part> {
    let Some(generation) = parts.first().map(|part| part.generation) else { return Vec::new() };
    let changes = parts.into_iter().flat_map(|part| part.changes);
    let part = |changes, last| proto::Part { generation, changes, last };
    let mut parts: Vec<_> = changes.map(|change| part(vec![change], false)).collect();
    parts.push(part(Vec::new(), true));
    parts
}

/// The node receives its update, or a prefix of it. A whole update is in force at once, a prefix has no
/// effect.
fn receive_turn(
    client: &mut NodeClient,
    node: &str,
    replica: &mut Replica,
    turn: &Turn,
) -> Result<(), TestCaseError> {
    let stream = client.open(node, &mut replica.hub)?;
    let (before, due) = (client.objects(), fresh(&replica.scenario, node).objects());
    let parts = cut(sent(&mut replica.hub, &stream));
    // The other replica compares digests: it does not send objects that the node has.
    if turn.moves {
        for change in parts.iter().flat_map(|part| &part.changes) {
            prop_assert!(
                before.values().all(|object| object != change),
                "sent twice: {:?}",
                change
            );
        }
    }
    let reach = turn.reach.unwrap_or(usize::MAX).min(parts.len());
    let is_cut = reach < parts.len();
    for part in parts.into_iter().take(reach) {
        let progress = client
            .snapshot
            .receive(part)
            .map_err(|fault| TestCaseError::fail(fault.to_string()))?;
        match progress {
            Progress::Applied(_) => {
                replica.hub.acknowledge(&stream, client.snapshot.generation);
                prop_assert_eq!(client.objects(), due.clone());
            }
            Progress::Incomplete => prop_assert_eq!(client.objects(), before.clone()),
        }
    }
    if is_cut {
        client.disconnect(&mut replica.hub, 0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(cases(100))]

    #[test]
    fn replicas_that_read_in_different_orders_send_the_same_bytes(
        scenario in world(),
        happens in events(),
        draws in [vec(any::<Index>(), 1..20), vec(any::<Index>(), 1..20)],
    ) {
        let (burst, last) = watch_events(scenario.clone(), happens);
        let read_all = |number: u8, draws: &[Index]| -> Result<_, TestCaseError> {
            let mut replica = Replica::new(number, &scenario, burst.clone(), draws);
            replica.read(usize::MAX);
            NODES.iter().map(|node| {
                let mut client = NodeClient::default();
                client.follow(node, &mut replica.hub)?;
                Ok((bytes(client.objects()), client.snapshot.digests()))
            }).collect::<Result<Vec<_>, TestCaseError>>()
        };
        let first = read_all(1, &draws[0])?;
        prop_assert_eq!(&first, &read_all(2, &draws[1])?);
        for (node, (objects, _)) in NODES.iter().zip(first) {
            prop_assert_eq!(objects, bytes(fresh(&last, node).objects()));
        }
    }

    #[test]
    fn a_node_that_moves_in_a_burst_misses_nothing_and_receives_nothing_twice(
        scenario in world(),
        happens in events(),
        draws in [vec(any::<Index>(), 1..20), vec(any::<Index>(), 1..20)],
        turns in vec(turn(), 3..12),
    ) {
        let (burst, last) = watch_events(scenario.clone(), happens);
        let mut replicas =
            [(1, &draws[0]), (2, &draws[1])].map(|(n, draws)| Replica::new(n, &scenario, burst.clone(), draws));
        let node = NODES[0];
        let mut client = NodeClient::default();
        for turn in &turns {
            replicas.iter_mut().zip(turn.read).for_each(|(replica, count)| replica.read(count));
            if turn.moves {
                client.disconnect(&mut replicas[client.replica].hub, 0);
                client.replica = 1 - client.replica;
            }
            let replica = &mut replicas[client.replica];
            receive_turn(&mut client, node, replica, turn)?;
        }
        let replica = &mut replicas[client.replica];
        replica.read(usize::MAX);
        let all = Turn { read: [0, 0], moves: false, reach: None };
        receive_turn(&mut client, node, replica, &all)?;
        prop_assert_eq!(bytes(client.objects()), bytes(fresh(&last, node).objects()));
    }
}
