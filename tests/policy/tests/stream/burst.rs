//! Replicas that read the same objects in orders of their own, and nodes that go from one to the other meanwhile.

use crate::end::{End, feed, fresh, sent};
use control_hub::Hub;
use control_wire::{ObjectId, Progress, proto};
use policy_core::index::Event as Happened;
use policy_objects::{Kind, Object};
use proptest::{collection::vec, prelude::*, sample::Index, test_runner::TestCaseError};
use prost::Message as _;
use std::collections::{BTreeMap, VecDeque};
use tests_policy::{
    lived::NODES,
    made::{Event, Id, Made, events, id, world},
    tries,
};

/// What a watch tells.
#[derive(Clone, Debug)]
enum Seen {
    Is(Box<Object>),
    Gone(Id),
}

impl Seen {
    fn id(&self) -> Id {
        match self {
            Self::Is(object) => id(object),
            Self::Gone(gone) => gone.clone(),
        }
    }

    /// It happens to what there is.
    fn befall(&self, made: &mut Made) {
        let gone = self.id();
        made.objects.retain(|other| id(other) != gone);
        if let Self::Is(object) = self {
            made.objects.push((**object).clone());
        }
    }
}

/// What watches tell of these events, and what there is in the end.
fn seen(mut made: Made, events: Vec<Event>) -> (Vec<Seen>, Made) {
    let mut all = Vec::new();
    for event in events {
        let seen = match event {
            Event::Insert(object) => Seen::Is(object),
            Event::Remove(_) if made.objects.is_empty() => continue,
            Event::Remove(which) => Seen::Gone(id(which.get(&made.objects))),
        };
        seen.befall(&mut made);
        all.push(seen);
    }
    (all, made)
}

/// The same in another order. What is of one line stays in its own.
fn reordered<L: Ord + Clone>(
    all: Vec<Seen>,
    line: impl Fn(&Seen) -> L,
    draws: &[Index],
) -> VecDeque<Seen> {
    let mut lines: BTreeMap<L, VecDeque<Seen>> = BTreeMap::new();
    for seen in all {
        lines.entry(line(&seen)).or_default().push_back(seen);
    }
    let mut order = VecDeque::new();
    for draw in draws.iter().cycle() {
        let Some(of) = lines.keys().nth(draw.index(lines.len().max(1))).cloned() else { break };
        order.extend(lines.get_mut(&of).and_then(VecDeque::pop_front));
        lines.retain(|_, line| !line.is_empty());
    }
    order
}

/// A replica: what it has read so far, and what it is still to read.
struct Replica {
    hub: Hub,
    made: Made,
    ahead: VecDeque<Seen>,
}

impl Replica {
    /// A list tells its objects in any order; the watches of kinds go each at its own pace.
    fn new(number: u8, made: &Made, burst: Vec<Seen>, draws: &[Index]) -> Self {
        let listed = made.objects.iter().cloned().map(Box::new).map(Seen::Is).collect();
        let none = Made { objects: Vec::new(), names: made.names.clone() };
        let hub = Hub::new([number; 16], number.into());
        let mut replica = Self { hub, made: none, ahead: reordered(listed, Seen::id, draws) };
        replica.read(usize::MAX);
        replica.hub.loaded();
        replica.ahead = reordered(burst, |seen: &Seen| -> Kind { seen.id().0 }, draws);
        replica
    }

    fn read(&mut self, count: usize) {
        for _ in 0..count {
            let Some(seen) = self.ahead.pop_front() else { return };
            seen.befall(&mut self.made);
            match &seen {
                Seen::Is(object) => feed(&mut self.hub, object),
                Seen::Gone((kind, namespace, name)) => {
                    self.hub.apply(Happened::Gone { kind: *kind, namespace, name, uid: "" });
                }
            }
        }
    }
}

/// Objects as bytes.
fn bytes(objects: BTreeMap<ObjectId, proto::Change>) -> BTreeMap<ObjectId, Vec<u8>> {
    objects.into_iter().map(|(id, object)| (id, object.encode_to_vec())).collect()
}

/// What happens to the node in the middle of a burst.
#[derive(Clone, Debug)]
struct Turn {
    /// So much is read by each replica.
    read: [usize; 2],
    /// The node goes to the other one.
    moves: bool,
    /// So many changes of what it is told reach it, if fewer than all.
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

/// One change in each part: a stream may break behind any of them.
fn cut(told: Vec<proto::Part>) -> Vec<proto::Part> {
    let Some(generation) = told.first().map(|part| part.generation) else { return Vec::new() };
    let changes = told.into_iter().flat_map(|part| part.changes);
    let part = |changes, last| proto::Part { generation, changes, last };
    let mut parts: Vec<_> = changes.map(|change| part(vec![change], false)).collect();
    parts.push(part(Vec::new(), true));
    parts
}

/// The node takes what it is told, or the beginning of it: all of that is in force at once, or nothing.
fn takes(
    end: &mut End,
    node: &str,
    replica: &mut Replica,
    turn: &Turn,
) -> Result<(), TestCaseError> {
    let stream = end.begin(node, &mut replica.hub)?;
    let (before, due) = (end.objects(), fresh(&replica.made, node).objects());
    let told = cut(sent(&mut replica.hub, &stream));
    // Another replica compares: what is held already does not come again.
    if turn.moves {
        for change in told.iter().flat_map(|part| &part.changes) {
            prop_assert!(before.values().all(|held| held != change), "twice: {:?}", change);
        }
    }
    let reach = turn.reach.unwrap_or(usize::MAX).min(told.len());
    let breaks = reach < told.len();
    for part in told.into_iter().take(reach) {
        let taken =
            end.held.receive(part).map_err(|fault| TestCaseError::fail(fault.to_string()))?;
        match taken {
            Progress::Applied(_) => {
                replica.hub.acknowledge(&stream, end.held.generation);
                prop_assert_eq!(end.objects(), due.clone());
            }
            Progress::Incomplete => prop_assert_eq!(end.objects(), before.clone()),
        }
    }
    if breaks {
        end.breaks(&mut replica.hub, 0);
    }
    Ok(())
}

proptest! {
    #![proptest_config(tries(100))]

    #[test]
    fn replicas_that_read_in_orders_of_their_own_tell_the_same_bytes(
        made in world(),
        happens in events(),
        draws in [vec(any::<Index>(), 1..20), vec(any::<Index>(), 1..20)],
    ) {
        let (burst, last) = seen(made.clone(), happens);
        let told = |number: u8, draws: &[Index]| -> Result<_, TestCaseError> {
            let mut replica = Replica::new(number, &made, burst.clone(), draws);
            replica.read(usize::MAX);
            NODES.iter().map(|node| {
                let mut end = End::default();
                end.follow(node, &mut replica.hub)?;
                Ok((bytes(end.objects()), end.held.digests()))
            }).collect::<Result<Vec<_>, TestCaseError>>()
        };
        let first = told(1, &draws[0])?;
        prop_assert_eq!(&first, &told(2, &draws[1])?);
        for (node, (objects, _)) in NODES.iter().zip(first) {
            prop_assert_eq!(objects, bytes(fresh(&last, node).objects()));
        }
    }

    #[test]
    fn a_node_that_goes_to_another_replica_in_a_burst_loses_nothing_and_takes_nothing_twice(
        made in world(),
        happens in events(),
        draws in [vec(any::<Index>(), 1..20), vec(any::<Index>(), 1..20)],
        turns in vec(turn(), 3..12),
    ) {
        let (burst, last) = seen(made.clone(), happens);
        let mut replicas =
            [(1, &draws[0]), (2, &draws[1])].map(|(n, draws)| Replica::new(n, &made, burst.clone(), draws));
        let node = NODES[0];
        let mut end = End::default();
        for turn in &turns {
            replicas.iter_mut().zip(turn.read).for_each(|(replica, count)| replica.read(count));
            if turn.moves {
                end.breaks(&mut replicas[end.replica].hub, 0);
                end.replica = 1 - end.replica;
            }
            let replica = &mut replicas[end.replica];
            takes(&mut end, node, replica, turn)?;
        }
        let replica = &mut replicas[end.replica];
        replica.read(usize::MAX);
        let all = Turn { read: [0, 0], moves: false, reach: None };
        takes(&mut end, node, replica, &all)?;
        prop_assert_eq!(bytes(end.objects()), bytes(fresh(&last, node).objects()));
    }
}
