//! What is counted and measured.

use crate::{board::Board, propagation::Propagation};
use policy_hub::Measures;
use policy_objects::Kind;
use prometheus::{
    Encoder as _, Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge,
    IntGaugeVec, Opts, Registry, TextEncoder, core::Collector,
};
use std::{collections::BTreeMap, fmt, time::Duration};

/// Every metric of a replica.
pub(crate) struct Metrics {
    registry: Registry,
    pub(crate) propagation: Propagation,
    queue: Histogram,
    compute: HistogramVec,
    unreadable: IntCounterVec,
    relists: IntCounterVec,
    restarts: IntCounterVec,
    refused: IntCounterVec,
    refused_announcements: IntCounterVec,
    stuck: IntCounter,
    reviews: IntCounterVec,
    statuses: IntCounterVec,
    pub(crate) certificates: IntCounter,
    leads: IntGauge,
    loaded: IntGauge,
    generation: IntGauge,
    policies: IntGauge,
    groups: IntGauge,
    streams: IntGauge,
    owed: IntGauge,
    history: IntGauge,
    objects: IntGaugeVec,
    reached: IntGaugeVec,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

/// From 10 µs, which one event costs, to some seconds.
const COMPUTE: [f64; 9] = [1e-5, 3e-5, 1e-4, 3e-4, 1e-3, 1e-2, 0.1, 1.0, 5.0];
/// From a millisecond to a minute.
const PROPAGATION: [f64; 13] =
    [1e-3, 2.5e-3, 5e-3, 1e-2, 2.5e-2, 5e-2, 0.1, 0.25, 0.5, 1.0, 5.0, 15.0, 60.0];

impl Metrics {
    /// All at nothing.
    ///
    /// # Errors
    /// If two have one name, which a test would find.
    pub(crate) fn new() -> prometheus::Result<Self> {
        let registry = Registry::new();
        let make = Make(&registry);
        let took = HistogramOpts::new(
            "ferrule_controller_propagation_seconds",
            "From an event's coming in until the last node that it concerns holds it",
        );
        let took = make.registered(Histogram::with_opts(took.buckets(PROPAGATION.to_vec()))?)?;
        let unfinished = make.counter(
            "propagation_unfinished_total",
            "Events that some node did not hold within a minute",
        )?;
        Ok(Self {
            propagation: Propagation::new(took, unfinished),
            queue: make.queue()?,
            compute: make.compute()?,
            unreadable: make.counters(
                "unreadable_total",
                "Objects without a name, passed over",
                "kind",
            )?,
            relists: make.counters("relists_total", "Lists after the first", "kind")?,
            restarts: make.counters("watch_restarts_total", "Watches begun again", "kind")?,
            refused: make.counters(
                "refused_total",
                "What nodes asked for in vain, by reason",
                "reason",
            )?,
            refused_announcements: make.counters(
                "refused_announcements_total",
                "Addresses of pods that agents told in vain, by reason",
                "reason",
            )?,
            stuck: make.counter(
                "stuck_streams_total",
                "Streams ended as their nodes took nothing, or held nothing, for long",
            )?,
            reviews: make.counters(
                "token_reviews_total",
                "Tokens shown to the API server",
                "result",
            )?,
            statuses: make.counters(
                "statuses_total",
                "Statuses of policies, by what became of them",
                "outcome",
            )?,
            certificates: make
                .counter("certificates_total", "Certificates shown, one after another")?,
            leads: make.gauge("leads", "Whether this replica writes status")?,
            loaded: make.gauge("loaded", "Whether every kind is read")?,
            generation: make.gauge("generation", "The newest generation of this run")?,
            policies: make.gauge("policies", "Policies of all kinds")?,
            groups: make.gauge("groups", "Groups of both roles")?,
            streams: make.gauge("streams", "Nodes with a stream")?,
            owed: make.gauge("owed_objects", "What nodes have yet to be told, all together")?,
            history: make.gauge("history_bytes", "Kept for nodes that are behind")?,
            objects: make.gauges("objects", "Objects read", "kind")?,
            reached: make.gauges("reached_version", "How far each kind was read", "kind")?,
            registry,
        })
    }

    pub(crate) fn queued(&self, waited: Duration) {
        self.queue.observe(waited.as_secs_f64());
    }

    pub(crate) fn computed(&self, kind: Kind, took: Duration) {
        self.compute.with_label_values(&[kind.text()]).observe(took.as_secs_f64());
    }

    pub(crate) fn unreadable(&self, kind: Kind) {
        self.unreadable.with_label_values(&[kind.text()]).inc();
    }

    pub(crate) fn relisted(&self, kind: Kind) {
        self.relists.with_label_values(&[kind.text()]).inc();
    }

    pub(crate) fn restarted(&self, kind: Kind) {
        self.restarts.with_label_values(&[kind.text()]).inc();
    }

    pub(crate) fn refused(&self, reason: &str) {
        self.refused.with_label_values(&[reason]).inc();
    }

    pub(crate) fn refused_announcement(&self, reason: &str) {
        self.refused_announcements.with_label_values(&[reason]).inc();
    }

    pub(crate) fn stuck(&self) {
        self.stuck.inc();
    }

    pub(crate) fn wrote(&self, outcome: &str) {
        self.statuses.with_label_values(&[outcome]).inc();
    }

    pub(crate) fn reviewed(&self, result: &str) {
        self.reviews.with_label_values(&[result]).inc();
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leads.set(i64::from(leads));
    }

    pub(crate) fn hub(&self, measures: &Measures, reached: &BTreeMap<String, u64>, loaded: bool) {
        let number = |value: usize| i64::try_from(value).unwrap_or(i64::MAX);
        let wide = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        self.loaded.set(i64::from(loaded));
        self.generation.set(wide(measures.generation));
        self.policies.set(number(measures.policies));
        self.groups.set(number(measures.groups));
        self.streams.set(number(measures.streams));
        self.owed.set(number(measures.owed));
        self.history.set(number(measures.history_bytes));
        for (kind, version) in reached {
            self.reached.with_label_values(&[kind.as_str()]).set(wide(*version));
        }
    }

    pub(crate) fn board(&self, board: &Board) {
        for (kind, objects) in board.objects() {
            let objects = i64::try_from(objects).unwrap_or(i64::MAX);
            self.objects.with_label_values(&[kind.text()]).set(objects);
        }
    }

    pub(crate) fn page(&self) -> Vec<u8> {
        let mut page = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut page) {
            tracing::warn!(%error, "metrics cannot be written");
        }
        page
    }
}

/// Makes metrics of the controller's and registers them.
struct Make<'a>(&'a Registry);

impl Make<'_> {
    fn registered<C: Collector + Clone + 'static>(&self, collector: C) -> prometheus::Result<C> {
        self.0.register(Box::new(collector.clone()))?;
        Ok(collector)
    }

    fn opts(name: &str, help: &str) -> Opts {
        Opts::new(format!("ferrule_controller_{name}"), help)
    }

    fn queue(&self) -> prometheus::Result<Histogram> {
        let help = "How long what a watch said waits until it is taken in";
        let opts = HistogramOpts::from(Self::opts("queue_seconds", help));
        self.registered(Histogram::with_opts(opts.buckets(PROPAGATION.to_vec()))?)
    }

    fn compute(&self) -> prometheus::Result<HistogramVec> {
        let opts =
            HistogramOpts::from(Self::opts("compute_seconds", "What one event costs the index"));
        self.registered(HistogramVec::new(opts.buckets(COMPUTE.to_vec()), &["kind"])?)
    }

    fn counter(&self, name: &str, help: &str) -> prometheus::Result<IntCounter> {
        self.registered(IntCounter::with_opts(Self::opts(name, help))?)
    }

    fn counters(&self, name: &str, help: &str, label: &str) -> prometheus::Result<IntCounterVec> {
        self.registered(IntCounterVec::new(Self::opts(name, help), &[label])?)
    }

    fn gauge(&self, name: &str, help: &str) -> prometheus::Result<IntGauge> {
        self.registered(IntGauge::with_opts(Self::opts(name, help))?)
    }

    fn gauges(&self, name: &str, help: &str, label: &str) -> prometheus::Result<IntGaugeVec> {
        self.registered(IntGaugeVec::new(Self::opts(name, help), &[label])?)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;

    #[test]
    fn every_metric_has_its_name_to_itself() {
        let metrics = Metrics::new().unwrap();
        metrics.refused("audience");
        let page = String::from_utf8(metrics.page()).unwrap();
        assert!(page.contains("ferrule_controller_refused_total{reason=\"audience\"} 1"), "{page}");
    }
}
