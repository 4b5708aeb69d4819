//! What is counted and measured.

use datapath_node::{Answer, Overview};
use prometheus::{
    Encoder as _, Histogram, HistogramOpts, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
    TextEncoder, core::Collector,
};
use std::{fmt, time::Duration};

/// Every metric of the agent.
pub(crate) struct Metrics {
    registry: Registry,
    admitted: IntCounterVec,
    admit_seconds: Histogram,
    announced: IntCounterVec,
    reports: IntCounterVec,
    generations: IntCounterVec,
    streams: IntCounterVec,
    held: IntGaugeVec,
    following: IntGauge,
    behind: IntGauge,
    failing: IntGauge,
    waiting: IntGauge,
    lag: IntGauge,
    disk: IntGauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, prometheus::Error> {
        let registry = Registry::new();
        let counters = |name: &str, help: &str, label: &str| {
            kept(&registry, IntCounterVec::new(Opts::new(name, help), &[label])?)
        };
        let gauge = |name: &str, help: &str| kept(&registry, IntGauge::new(name, help)?);
        let seconds = HistogramOpts::new(
            "ferrule_agent_admit_seconds",
            "How long a pod that started waited until policy held for it, or for the answer that it does not.",
        )
        .buckets(vec![0.001, 0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0]);
        Ok(Self {
            admitted: counters(
                "ferrule_agent_admitted_total",
                "Pods that started, by the answer that they got.",
                "answer",
            )?,
            admit_seconds: kept(&registry, Histogram::with_opts(seconds)?)?,
            announced: counters(
                "ferrule_agent_announcements_total",
                "Announcements of pods' addresses to a replica, by what became of them.",
                "outcome",
            )?,
            reports: counters(
                "ferrule_agent_reports_total",
                "Reports of what became of policies, by what became of them.",
                "outcome",
            )?,
            generations: counters(
                "ferrule_agent_generations_total",
                "Generations of what the node is told, by what became of them.",
                "outcome",
            )?,
            streams: counters(
                "ferrule_agent_streams_total",
                "Streams that began, by whether the replica had read less than the node held.",
                "behind",
            )?,
            held: kept(
                &registry,
                IntGaugeVec::new(
                    Opts::new("ferrule_agent_held", "Objects that are held, by kind."),
                    &["kind"],
                )?,
            )?,
            following: gauge(
                "ferrule_agent_following",
                "1 if a replica of the controller is followed.",
            )?,
            behind: gauge(
                "ferrule_agent_behind",
                "1 if that replica has read less than this node held when it was taken.",
            )?,
            failing: gauge("ferrule_agent_failing_policies", "Policies that are not in force.")?,
            waiting: gauge("ferrule_agent_waiting_pods", "Pods that start and wait.")?,
            lag: gauge("ferrule_agent_backend_lag", "States that are held and not yet in force.")?,
            disk: gauge("ferrule_agent_disk_failing", "1 if what is held is not on the disk.")?,
            registry,
        })
    }

    pub(crate) fn admitted(&self, answer: &Answer, took: Duration) {
        let answer = match answer {
            Answer::Enforced => "enforced",
            Answer::Open(_) => "open",
            Answer::Refused(_) => "refused",
        };
        self.admitted.with_label_values(&[answer]).inc();
        self.admit_seconds.observe(took.as_secs_f64());
    }

    pub(crate) fn announced(&self, outcome: &str) {
        self.announced.with_label_values(&[outcome]).inc();
    }

    pub(crate) fn reported(&self, arrived: bool) {
        self.reports.with_label_values(&[if arrived { "arrived" } else { "failed" }]).inc();
    }

    pub(crate) fn generation(&self, outcome: &str) {
        self.generations.with_label_values(&[outcome]).inc();
    }

    pub(crate) fn stream(&self, behind: bool) {
        self.streams.with_label_values(&[if behind { "true" } else { "false" }]).inc();
    }

    /// The page, with the state as it is now if that is known.
    pub(crate) fn page(&self, now: Option<&(Overview, Option<String>)>) -> Vec<u8> {
        if let Some((overview, disk)) = now {
            let set = |gauge: &IntGauge, value: usize| {
                gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            };
            let kinds = ["policy", "address_group", "applied_group", "pod"];
            for (kind, count) in kinds.iter().zip(overview.counts) {
                set(&self.held.with_label_values(&[kind]), count);
            }
            set(&self.following, usize::from(overview.replica.is_some()));
            set(&self.behind, usize::from(overview.behind));
            set(&self.failing, overview.failing.len());
            set(&self.waiting, overview.waiting.len());
            let lag = overview.revision.saturating_sub(overview.applied);
            self.lag.set(i64::try_from(lag).unwrap_or(i64::MAX));
            set(&self.disk, usize::from(disk.is_some()));
        }
        let mut page = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&self.registry.gather(), &mut page) {
            tracing::error!(%error, "metrics cannot be written");
        }
        page
    }
}

fn kept<C: Collector + Clone + 'static>(
    registry: &Registry,
    metric: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(metric.clone()))?;
    Ok(metric)
}
