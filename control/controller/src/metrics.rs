//! Metrics of the controller.

use crate::{kinds::Resource, propagation::Propagation, readiness::Readiness};
use config_metrics::Program;
use control_hub::Measures;
use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use runtime_process::meter::{Error, Meter};
use std::{collections::BTreeMap, fmt, time::Duration};

/// Every metric of a replica.
pub(crate) struct Metrics {
    meter: Meter,
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
    certificates: IntCounter,
    certificate_ends: IntGauge,
    leads: IntGauge,
    view_unavailable: IntGauge,
    loaded: IntGauge,
    generation: IntGauge,
    policies: IntGauge,
    groups: IntGauge,
    streams: IntGauge,
    pending: IntGauge,
    history: IntGauge,
    objects: IntGaugeVec,
    reached: IntGaugeVec,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    /// Creates all metrics with zero values.
    ///
    /// # Errors
    /// Fails if two metrics have the same name, which a test would find.
    pub(crate) fn new() -> Result<Self, Error> {
        let meter = Meter::new(Program::Controller, env!("CARGO_PKG_VERSION"))?;
        let of = |name: &str| meter.counter(&named(name));
        let by = |name: &str| meter.counters(&named(name));
        let gauge = |name: &str| meter.gauge(&named(name));
        let gauges = |name: &str| meter.gauges(&named(name));
        Ok(Self {
            propagation: Propagation::new(
                meter.histogram(&named("propagation_seconds"))?,
                of("propagation_unfinished_total")?,
            ),
            queue: meter.histogram(&named("queue_seconds"))?,
            compute: meter.histograms(&named("compute_seconds"))?,
            unreadable: by("unreadable_total")?,
            relists: by("relists_total")?,
            restarts: by("watch_restarts_total")?,
            refused: by("refused_total")?,
            refused_announcements: by("refused_announcements_total")?,
            stuck: of("stuck_streams_total")?,
            reviews: by("token_reviews_total")?,
            statuses: by("statuses_total")?,
            certificates: of("certificates_total")?,
            certificate_ends: gauge("certificate_expiry_timestamp_seconds")?,
            leads: gauge("leads")?,
            view_unavailable: gauge("view_unavailable")?,
            loaded: gauge("loaded")?,
            generation: gauge("generation")?,
            policies: gauge("policies")?,
            groups: gauge("groups")?,
            streams: gauge("streams")?,
            pending: gauge("owed_objects")?,
            history: gauge("history_bytes")?,
            objects: gauges("objects")?,
            reached: gauges("reached_version")?,
            meter,
        }
        .with_zero_series())
    }

    /// Starts the series of alerts at 0. Prometheus detects no increase in a series that starts at 1.
    fn with_zero_series(self) -> Self {
        for result in ["taken", "refused", "error"] {
            self.reviews.with_label_values(&[result]);
        }
        for outcome in ["written", "refused", "nowhere"] {
            self.statuses.with_label_values(&[outcome]);
        }
        for kind in Resource::all(false) {
            self.restarts.with_label_values(&[kind.text()]);
        }
        self
    }

    /// Records a new serving certificate with its expiry in seconds since 1970.
    pub(crate) fn certificate(&self, ends: i64) {
        self.certificates.inc();
        self.certificate_ends.set(ends);
    }

    pub(crate) fn queued(&self, waited: Duration) {
        self.queue.observe(waited.as_secs_f64());
    }

    pub(crate) fn computed(&self, kind: Resource, took: Duration) {
        self.compute.with_label_values(&[kind.text()]).observe(took.as_secs_f64());
    }

    pub(crate) fn unreadable(&self, kind: Resource) {
        self.unreadable.with_label_values(&[kind.text()]).inc();
    }

    pub(crate) fn relisted(&self, kind: Resource) {
        self.relists.with_label_values(&[kind.text()]).inc();
    }

    pub(crate) fn restarted(&self, kind: Resource) {
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

    /// Records whether the API server reports that it cannot reach the aggregated API.
    pub(crate) fn view_unavailable(&self, is_unavailable: bool) {
        self.view_unavailable.set(i64::from(is_unavailable));
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
        self.pending.set(number(measures.pending));
        self.history.set(number(measures.history_bytes));
        for (kind, version) in reached {
            self.reached.with_label_values(&[kind.as_str()]).set(wide(*version));
        }
    }

    pub(crate) fn readiness(&self, readiness: &Readiness) {
        for (kind, objects) in readiness.objects() {
            let objects = i64::try_from(objects).unwrap_or(i64::MAX);
            self.objects.with_label_values(&[kind.text()]).set(objects);
        }
    }

    pub(crate) fn page(&self) -> String {
        self.meter.page()
    }
}

/// Adds the prefix of the controller's metrics.
fn named(name: &str) -> String {
    format!("ferrule_controller_{name}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use policy_objects::Kind;
    use tests_support::promtool;

    /// Series by kind or reason start with their first value.
    #[test]
    fn every_metric_of_the_catalog_is_exported_and_promtool_has_no_complaint() {
        let metrics = Metrics::new().unwrap();
        metrics.queued(Duration::from_millis(1));
        metrics.computed(Resource::Policy(Kind::Pod), Duration::from_millis(1));
        metrics.unreadable(Resource::Policy(Kind::Pod));
        metrics.relisted(Resource::Policy(Kind::Pod));
        metrics.refused("audience");
        metrics.refused_announcement("unknown");
        metrics.certificate(2_000_000_000);
        metrics.objects.with_label_values(&["Pod"]);
        metrics.reached.with_label_values(&["Pod"]);
        let page = metrics.page();
        for metric in Program::Controller.metrics() {
            let line = format!("# TYPE {} {}", metric.name, metric.kind.name());
            assert!(page.lines().any(|found| found == line), "no {line} in:\n{page}");
        }
        assert!(page.contains("_certificate_expiry_timestamp_seconds 2000000000\n"), "{page}");
        if promtool::is_there("every_metric_of_the_catalog_is_exported") {
            assert_eq!(promtool::complaints(&page).unwrap(), Vec::<String>::new());
        }
    }

    #[test]
    fn each_metric_has_its_own_name() {
        let metrics = Metrics::new().unwrap();
        metrics.refused("audience");
        let page = metrics.page();
        assert!(page.contains("ferrule_controller_refused_total{reason=\"audience\"} 1"), "{page}");
    }
}
