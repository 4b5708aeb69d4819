//! Time from an event until the last affected node holds it.

use prometheus::{Histogram, IntCounter};
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::{Mutex, MutexGuard},
    time::{Duration, Instant},
};

/// Maximum number of events that are measured at once. Other events are not measured.
const FOLLOWED: usize = 64;
/// Maximum duration of a measurement. Slower nodes are reported elsewhere.
const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub(crate) struct Propagation {
    open: Mutex<Open>,
    took: Histogram,
    unfinished: IntCounter,
}

#[derive(Debug, Default)]
struct Open {
    events: VecDeque<Event>,
    /// By node: the last acknowledged generation, and the time since when the node holds it.
    held: BTreeMap<String, (u64, Instant)>,
}

#[derive(Debug)]
struct Event {
    generation: u64,
    start: Instant,
    /// Latest of the times since when nodes hold it.
    held: Instant,
    /// Nodes without an ack.
    nodes: BTreeSet<String>,
}

impl Propagation {
    pub(crate) fn new(took: Histogram, unfinished: IntCounter) -> Self {
        Self { open: Mutex::default(), took, unfinished }
    }

    /// Starts the measurement of an event that arrived at `start` and has pending objects for these nodes.
    pub(crate) fn sent(&self, generation: u64, nodes: BTreeSet<String>, start: Instant) {
        let mut open = self.open();
        let mut event = Event { generation, start, held: start, nodes: BTreeSet::new() };
        let mut is_held = false;
        for node in nodes {
            match open.held.get(&node) {
                // The node has no stream.
                None => {}
                Some((held, _)) if *held < generation => drop(event.nodes.insert(node)),
                // The ack came before this call.
                Some((_, since)) => {
                    event.held = event.held.max(*since);
                    is_held = true;
                }
            }
        }
        while open.events.front().is_some_and(|event| event.start.elapsed() > PATIENCE) {
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

    /// Records a node's ack with the time since when the node holds the generation.
    pub(crate) fn held(&self, node: &str, generation: u64, since: Instant) {
        let mut open = self.open();
        match open.held.get_mut(node) {
            Some(held) => *held = (generation, since),
            None => drop(open.held.insert(node.to_owned(), (generation, since))),
        }
        self.without(&mut open, node, generation, since);
    }

    /// Handles the end of a node's stream.
    pub(crate) fn ended(&self, node: &str) {
        let mut open = self.open();
        open.held.remove(node);
        for event in &mut open.events {
            event.nodes.remove(node);
        }
        // Events that waited for this node alone are not measured.
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

    /// Records the time of an event that all nodes hold.
    fn measure(&self, event: &Event) {
        self.took.observe(event.held.saturating_duration_since(event.start).as_secs_f64());
    }

    fn open(&self) -> MutexGuard<'_, Open> {
        runtime_lock::lock(&self.open)
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
        let (propagation, start) = (propagation(), Instant::now());
        propagation.held("a", 1, start);
        propagation.held("b", 1, start);
        // c has no stream.
        propagation.sent(2, nodes(&["a", "b", "c"]), start);
        propagation.held("a", 2, start + Duration::from_secs(3));
        assert_eq!(propagation.took.get_sample_count(), 0);
        // The ack comes later than the time in it.
        propagation.held("b", 3, start + Duration::from_secs(2));
        assert_eq!(propagation.took.get_sample_count(), 1);
        assert!((propagation.took.get_sample_sum() - 3.0).abs() < 1e-6);
        assert!(propagation.open().events.is_empty());
    }

    #[test]
    fn a_measurement_waits_for_no_closed_stream_and_no_earlier_ack() {
        let propagation = propagation();
        propagation.held("a", 1, Instant::now());
        propagation.held("b", 5, Instant::now());
        propagation.sent(2, nodes(&["a", "b"]), Instant::now());
        propagation.ended("a");
        assert!(propagation.open().events.is_empty());
        assert_eq!(propagation.took.get_sample_count(), 0);
    }

    #[test]
    fn an_event_with_earlier_acks_is_measured() {
        let (propagation, start) = (propagation(), Instant::now());
        propagation.held("a", 2, start + Duration::from_secs(1));
        propagation.held("b", 3, start + Duration::from_secs(2));
        propagation.sent(2, nodes(&["a", "b", "c"]), start);
        assert_eq!(propagation.took.get_sample_count(), 1);
        assert!((propagation.took.get_sample_sum() - 2.0).abs() < 1e-6);
        // An event without a stream has no measurement.
        propagation.sent(4, nodes(&["c"]), start);
        assert_eq!(propagation.took.get_sample_count(), 1);
    }

    #[test]
    fn the_number_of_measured_events_is_bounded() {
        let propagation = propagation();
        propagation.held("a", 0, Instant::now());
        (1..1_000).for_each(|at| propagation.sent(at, nodes(&["a"]), Instant::now()));
        assert_eq!(propagation.open().events.len(), FOLLOWED);
    }
}
