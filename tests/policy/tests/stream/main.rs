//! What nodes hold of their streams beside an evaluation of all objects, while objects come and go, nodes are
//! slow, streams break off, nodes start again and go to another replica, and agents tell their pods' addresses.

mod burst;
mod end;

use control_hub::{Announce, Hub, Needed, NeededBy, PolicyChange};
use control_wire::NodeSnapshot;
use end::{End, feed, fresh, lend, sent};
use policy_core::index::Event as Happened;
use proptest::{collection::vec, prelude::*, sample::Index, test_runner::TestCaseError};
use std::collections::{BTreeMap, BTreeSet};
use tests_policy::{
    announced::{self, Said, Words, says},
    lived::NODES,
    made::{Event, Made, Sketch, events, id, sketch, world},
    naive::{Answer, Half, Naive, Packet},
    on_node::Node,
    tries,
};

/// Two replicas that are told of the same objects, the nodes, and what there is.
struct Cluster {
    made: Made,
    words: Words,
    spans: Spans,
    hubs: [Hub; 2],
    nodes: BTreeMap<&'static str, End>,
    now_ms: u64,
}

/// Who needs which policy, and at which generation, as the first replica's turns add up to it.
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

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    /// An object comes, changes or goes.
    Happens(Event),
    /// An agent tells all replicas the addresses of a pod.
    Announces(announced::Says),
    /// Time passes, in milliseconds.
    Passes(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let more = prop_oneof![
        6 => says().prop_map(Step::Announces),
        1 => (1_000..70_000_u64).prop_map(Step::Passes),
    ];
    (events(), vec((any::<Index>(), more), 0..6)).prop_map(|(events, more)| {
        let mut steps: Vec<Step> = events.into_iter().map(Step::Happens).collect();
        for (place, step) in more {
            steps.insert(place.index(steps.len() + 1), step);
        }
        steps
    })
}

/// What a node does when an event is over.
#[derive(Clone, Copy, Debug)]
enum Doing {
    /// It takes all that there is.
    Follows,
    /// It is busy.
    Waits,
    /// Something was sent to it and has not come.
    Lags,
    /// Its stream breaks off, with what was on its way, and begins anew at once.
    Breaks,
    /// It goes on with another replica.
    Moves,
    /// It was gone for long.
    Sleeps,
    /// It begins with nothing.
    StartsAnew,
}

fn doing() -> impl Strategy<Value = Doing> {
    prop_oneof![
        4 => Just(Doing::Follows),
        2 => Just(Doing::Waits),
        2 => Just(Doing::Lags),
        2 => Just(Doing::Breaks),
        1 => Just(Doing::Moves),
        1 => Just(Doing::Sleeps),
        1 => Just(Doing::StartsAnew),
    ]
}

impl Cluster {
    fn new(made: Made) -> Self {
        let mut hubs = [Hub::new([1; 16], 1), Hub::new([2; 16], 2)];
        made.objects.iter().for_each(|object| feed(&mut hubs[0], object));
        made.objects.iter().rev().for_each(|object| lend(&mut hubs[1], object));
        hubs.iter_mut().for_each(Hub::loaded);
        hubs[0].follow_policies();
        let nodes = NODES.iter().map(|node| (*node, End::default())).collect();
        Self { made, words: Words::default(), spans: Spans::new(), hubs, nodes, now_ms: 0 }
    }

    /// The objects, as if they said what agents do.
    fn now(&self) -> Made {
        self.words.with(&self.made)
    }

    fn step(&mut self, step: Step) -> Result<(), TestCaseError> {
        match step {
            Step::Happens(event) => self.happen(event),
            Step::Announces(says) => {
                if let Some(said) = says.said(&self.made) {
                    self.announce(&said)?;
                }
            }
            Step::Passes(ms) => self.pass(ms),
        }
        for hub in &self.hubs {
            prop_assert_eq!(hub.measures().announced, self.words.len());
        }
        Ok(())
    }

    fn announce(&mut self, said: &Said) -> Result<(), TestCaseError> {
        let Said { node, pod, uid, addresses } = said.clone();
        let announce = Announce { pod, uid, addresses };
        let taken = self.words.hear(&self.made, said, self.now_ms);
        for hub in &mut self.hubs {
            let answer = hub.announce(&node, &announce, self.now_ms);
            prop_assert_eq!(answer.is_ok(), taken, "{:?}: {:?}", said, answer);
        }
        Ok(())
    }

    fn pass(&mut self, ms: u64) {
        self.now_ms += ms;
        self.hubs.iter_mut().for_each(|hub| hub.tidy(self.now_ms));
        self.words.lapse(self.now_ms);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Insert(object) => {
                self.made.objects.retain(|other| id(other) != id(&object));
                self.hubs.iter_mut().for_each(|hub| feed(hub, &object));
                self.made.objects.push(*object);
            }
            Event::Remove(_) if self.made.objects.is_empty() => {}
            Event::Remove(which) => {
                let (kind, namespace, name) = id(which.get(&self.made.objects));
                self.made
                    .objects
                    .retain(|other| id(other) != (kind, namespace.clone(), name.clone()));
                let (namespace, name, uid) = (&namespace, &name, "");
                let gone = Happened::Gone { kind, namespace, name, uid };
                self.hubs.iter_mut().for_each(|hub| hub.apply(gone));
            }
        }
        self.words.settle(&self.made);
    }

    fn act(&mut self, node: &'static str, doing: Doing) -> Result<(), TestCaseError> {
        let end = self.nodes.get_mut(node).expect("a node");
        let hub = &mut self.hubs[end.replica];
        match doing {
            Doing::Waits => return Ok(()),
            Doing::Follows => {}
            Doing::Lags => {
                if let Some(stream) = &end.stream {
                    end.sent.extend(sent(hub, stream));
                }
                return Ok(());
            }
            Doing::Breaks => end.breaks(hub, self.now_ms),
            Doing::Moves => {
                end.breaks(hub, self.now_ms);
                end.replica = 1 - end.replica;
            }
            Doing::Sleeps => {
                end.breaks(hub, self.now_ms);
                self.pass(61_000);
            }
            Doing::StartsAnew => {
                end.breaks(hub, self.now_ms);
                end.held = NodeSnapshot::default();
            }
        }
        let end = self.nodes.get_mut(node).expect("a node");
        let hub = &mut self.hubs[end.replica];
        end.follow(node, hub)?;
        hub.tidy(self.now_ms);
        Ok(())
    }
}

/// The turns of policies add up to what there is, however they are taken.
fn spans_add_up(cluster: &mut Cluster, at_once: usize) -> Result<(), TestCaseError> {
    let mut anew = Hub::new([8; 16], 3);
    cluster.now().objects.iter().for_each(|object| feed(&mut anew, object));
    anew.loaded();
    anew.follow_policies();
    let mut due = Spans::new();
    anew.take_policies(usize::MAX).into_iter().for_each(|turn| fold(&mut due, turn));
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

/// A node holds what anybody would be told now, byte by byte.
fn is_whole(cluster: &Cluster, node: &str) -> Result<(), TestCaseError> {
    let (held, due) = (cluster.nodes[node].objects(), fresh(&cluster.now(), node).objects());
    for id in held.keys().chain(due.keys()) {
        prop_assert_eq!(held.get(id), due.get(id), "{} at {}", id, node);
    }
    Ok(())
}

/// The part of an answer that one node gives.
fn of_node(made: &Made, answer: &Answer, packet: &Packet, node: &str) -> [Option<Half>; 2] {
    let naive = Naive { objects: &made.objects, names: &made.names };
    let (out, into) = naive.ends(packet);
    let here = |half: &Option<Half>, pod: Option<&policy_objects::Pod>| {
        half.clone().filter(|_| pod.is_some_and(|pod| pod.node == node))
    };
    [here(&answer.out, out), here(&answer.into, into)]
}

/// A node that holds everything answers as all objects do.
fn agrees(
    made: &Made,
    node: &str,
    held: &NodeSnapshot,
    sketches: &[Sketch],
) -> Result<(), TestCaseError> {
    let naive = Naive { objects: &made.objects, names: &made.names };
    let judge = Node { name: node, held, names: &made.names };
    for packet in sketches.iter().filter_map(|sketch| sketch.packet(made)) {
        let answer = naive.answer(&packet);
        let here = judge.answer(&naive.seen(&packet));
        let expected = of_node(made, &answer, &packet, node);
        prop_assert_eq!([here.out, here.into], expected, "{:?} at {}", packet, node);
    }
    Ok(())
}

proptest! {
    #![proptest_config(tries(200))]

    #[test]
    fn what_nodes_hold_answers_as_all_objects_do_however_they_came_to_it(
        made in world(),
        happens in steps(),
        doings in vec((any::<Index>(), doing()), 10..20),
        sketches in vec(sketch(), 1..10),
    ) {
        let mut cluster = Cluster::new(made);
        let mut doings = doings.into_iter();
        for step in happens {
            let told = match &step {
                Step::Happens(event) => event.told(&cluster.made),
                Step::Announces(_) | Step::Passes(_) => format!("{step:?}"),
            };
            cluster.step(step)?;
            if told.len() % 3 == 0 {
                spans_add_up(&mut cluster, 1 + told.len() % 5)?;
            }
            for (which, doing) in doings.by_ref().take(2) {
                let node = NODES[which.index(NODES.len())];
                let done = cluster.act(node, doing);
                let end = &cluster.nodes[node];
                let after = |fault: TestCaseError| {
                    TestCaseError::fail(format!("{doing:?} after {told}\nin {:?}\n{fault}", cluster.made))
                };
                done.map_err(after)?;
                if matches!(doing, Doing::Waits | Doing::Lags) {
                    continue;
                }
                // Whole, and byte by byte what anybody else would be told.
                is_whole(&cluster, node).map_err(after)?;
                agrees(&cluster.now(), node, &end.held, &sketches).map_err(after)?;
            }
        }
        spans_add_up(&mut cluster, 1)?;
        cluster.pass(61_000);
        prop_assert!(cluster.words.is_empty());
        for node in NODES {
            cluster.act(node, Doing::Follows)?;
            let end = &cluster.nodes[node];
            is_whole(&cluster, node)?;
            agrees(&cluster.now(), node, &end.held, &sketches)?;
        }
        // Nothing is kept for nodes that have been told everything, or that went elsewhere.
        for hub in &mut cluster.hubs {
            hub.tidy(cluster.now_ms + 61_000);
            let measures = hub.measures();
            prop_assert_eq!((measures.owed, measures.history_bytes), (0, 0));
        }
    }
}
