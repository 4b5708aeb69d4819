//! How long it takes from an event until the last node that it concerns holds it.

use prometheus::{Histogram, IntCounter};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

/// As many events are followed at once; those that come meanwhile are not measured.
const FOLLOWED: usize = 64;
/// An event is followed no longer: a node that is as slow is seen elsewhere.
const PATIENCE: Duration = Duration::from_secs(60);

/// Follows events to the nodes.
#[derive(Debug)]
pub(crate) struct Propagation {
    open: Mutex<Open>,
    took: Histogram,
    unfinished: IntCounter,
}

#[derive(Debug, Default)]
struct Open {
    events: VecDeque<Event>,
    /// The newest generation that a node said it holds, and since when.
    held: BTreeMap<String, (u64, Instant)>,
}

#[derive(Debug)]
struct Event {
    generation: u64,
    begun: Instant,
    /// When it was held last of all that have said so.
    held: Instant,
    /// Who has not said so.
    nodes: BTreeSet<String>,
}

impl Propagation {
    pub(crate) fn new(took: Histogram, unfinished: IntCounter) -> Self {
        Self { open: Mutex::default(), took, unfinished }
    }

    /// These nodes are being told of an event that came in at this time.
    pub(crate) fn told(&self, generation: u64, nodes: BTreeSet<String>, begun: Instant) {
        let mut open = self.open();
        let mut event = Event { generation, begun, held: begun, nodes: BTreeSet::new() };
        let mut is_held = false;
        for node in nodes {
            match open.held.get(&node) {
                // It is told when it comes back.
                None => {}
                Some((held, _)) if *held < generation => drop(event.nodes.insert(node)),
                // It was faster than we are.
                Some((_, since)) => {
                    event.held = event.held.max(*since);
                    is_held = true;
                }
            }
        }
        while open.events.front().is_some_and(|event| event.begun.elapsed() > PATIENCE) {
            open.events.pop_front();
            self.unfinished.inc();
        }
        if event.nodes.is_empty() {
            if is_held {
                self.measure(&event);
            }
        } else if open.events.len() < FOLLOWED {
            open.events.push_back(event);
        }
    }

    /// A node says that it holds a generation, and since when.
    pub(crate) fn held(&self, node: &str, generation: u64, since: Instant) {
        let mut open = self.open();
        match open.held.get_mut(node) {
            Some(held) => *held = (generation, since),
            None => drop(open.held.insert(node.to_owned(), (generation, since))),
        }
        self.without(&mut open, node, generation, since);
    }

    /// A node's stream is over.
    pub(crate) fn ended(&self, node: &str) {
        let mut open = self.open();
        open.held.remove(node);
        for event in &mut open.events {
            event.nodes.remove(node);
        }
        // What it alone had yet to hold was not measured.
        open.events.retain(|event| !event.nodes.is_empty());
    }

    fn without(&self, open: &mut Open, node: &str, generation: u64, since: Instant) {
        open.events.retain_mut(|event| {
            if event.generation > generation || !event.nodes.remove(node) {
                return true;
            }
            event.held = event.held.max(since);
            if !event.nodes.is_empty() {
                return true;
            }
            self.measure(event);
            false
        });
    }

    /// All hold it.
    fn measure(&self, event: &Event) {
        self.took.observe(event.held.saturating_duration_since(event.begun).as_secs_f64());
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use prometheus::HistogramOpts;

    fn propagation() -> Propagation {
        let took = Histogram::with_opts(HistogramOpts::new("took", "t")).unwrap();
        Propagation::new(took, IntCounter::new("unfinished", "u").unwrap())
    }

    fn nodes(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn an_event_is_measured_when_the_last_node_holds_it() {
        let (propagation, begun) = (propagation(), Instant::now());
        propagation.held("a", 1, begun);
        propagation.held("b", 1, begun);
        // c has no stream.
        propagation.told(2, nodes(&["a", "b", "c"]), begun);
        propagation.held("a", 2, begun + Duration::from_secs(3));
        assert_eq!(propagation.took.get_sample_count(), 0);
        // It says so later, and held it before.
        propagation.held("b", 3, begun + Duration::from_secs(2));
        assert_eq!(propagation.took.get_sample_count(), 1);
        assert!((propagation.took.get_sample_sum() - 3.0).abs() < 1e-6);
        assert!(propagation.open().events.is_empty());
    }

    #[test]
    fn a_node_that_goes_is_not_waited_for_and_one_that_was_faster_neither() {
        let propagation = propagation();
        propagation.held("a", 1, Instant::now());
        propagation.held("b", 5, Instant::now());
        propagation.told(2, nodes(&["a", "b"]), Instant::now());
        propagation.ended("a");
        assert!(propagation.open().events.is_empty());
        assert_eq!(propagation.took.get_sample_count(), 0);
    }

    #[test]
    fn an_event_that_all_hold_before_it_is_noted_is_measured() {
        let (propagation, begun) = (propagation(), Instant::now());
        propagation.held("a", 2, begun + Duration::from_secs(1));
        propagation.held("b", 3, begun + Duration::from_secs(2));
        propagation.told(2, nodes(&["a", "b", "c"]), begun);
        assert_eq!(propagation.took.get_sample_count(), 1);
        assert!((propagation.took.get_sample_sum() - 2.0).abs() < 1e-6);
        // Of one that nobody is told of there is nothing to measure.
        propagation.told(4, nodes(&["c"]), begun);
        assert_eq!(propagation.took.get_sample_count(), 1);
    }

    #[test]
    fn no_more_events_are_followed_than_is_said() {
        let propagation = propagation();
        propagation.held("a", 0, Instant::now());
        (1..1_000).for_each(|at| propagation.told(at, nodes(&["a"]), Instant::now()));
        assert_eq!(propagation.open().events.len(), FOLLOWED);
    }
}
