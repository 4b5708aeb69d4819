//! The agent's metrics.

use config_metrics::Program;
use datapath_backend::ServiceFigures;
use datapath_node::{Answer, Overview};
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec};
use runtime_process::meter::{Error, Meter};
use std::{collections::BTreeMap, fmt, time::Duration};

/// Every metric of the agent.
pub(crate) struct Metrics {
    meter: Meter,
    admitted: IntCounterVec,
    admit_seconds: Histogram,
    announced: IntCounterVec,
    reports: IntCounterVec,
    generations: IntCounterVec,
    packets: IntCounterVec,
    streams: IntCounterVec,
    held: IntGaugeVec,
    following: IntGauge,
    behind: IntGauge,
    failing: IntGauge,
    failing_endpoints: IntGauge,
    failing_services: IntGauge,
    failing_health_ports: IntGauge,
    reserved_ports_failing: IntGauge,
    source_port_listeners: IntGauge,
    service_repairs: IntCounterVec,
    service_programming: Histogram,
    service_rows: IntGaugeVec,
    service_row_limits: IntGaugeVec,
    service_choices: IntCounterVec,
    source_port_tries: IntCounterVec,
    drifts: IntCounter,
    waiting: IntGauge,
    lag: IntGauge,
    disk: IntGauge,
    map_memory: IntGauge,
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

impl Metrics {
    pub(crate) fn new() -> Result<Self, Error> {
        let meter = Meter::new(Program::Agent, env!("CARGO_PKG_VERSION"))?;
        let metrics = Self {
            admitted: meter.counters("ferrule_agent_admitted_total")?,
            admit_seconds: meter.histogram("ferrule_agent_admit_seconds")?,
            announced: meter.counters("ferrule_agent_announcements_total")?,
            reports: meter.counters("ferrule_agent_reports_total")?,
            generations: meter.counters("ferrule_agent_generations_total")?,
            packets: meter.counters("ferrule_agent_packets_total")?,
            streams: meter.counters("ferrule_agent_streams_total")?,
            held: meter.gauges("ferrule_agent_held")?,
            following: meter.gauge("ferrule_agent_following")?,
            behind: meter.gauge("ferrule_agent_behind")?,
            failing: meter.gauge("ferrule_agent_failing_policies")?,
            failing_endpoints: meter.gauge("ferrule_agent_failing_pods")?,
            failing_services: meter.gauge("ferrule_agent_failing_services")?,
            failing_health_ports: meter.gauge("ferrule_agent_failing_health_ports")?,
            reserved_ports_failing: meter.gauge("ferrule_agent_reserved_ports_failing")?,
            source_port_listeners: meter.gauge("ferrule_agent_source_port_listeners")?,
            service_repairs: meter.counters("ferrule_agent_service_repairs_total")?,
            service_programming: meter.histogram("ferrule_agent_service_programming_seconds")?,
            service_rows: meter.gauges("ferrule_agent_service_rows")?,
            service_row_limits: meter.gauges("ferrule_agent_service_row_limit")?,
            service_choices: meter.counters("ferrule_agent_service_choices_total")?,
            source_port_tries: meter.counters("ferrule_agent_source_port_tries_total")?,
            drifts: meter.counter("ferrule_agent_drifts_total")?,
            waiting: meter.gauge("ferrule_agent_waiting_pods")?,
            lag: meter.gauge("ferrule_agent_backend_lag")?,
            disk: meter.gauge("ferrule_agent_disk_failing")?,
            map_memory: meter.gauge("ferrule_agent_map_memory_bytes")?,
            meter,
        };
        metrics.begin_series();
        Ok(metrics)
    }

    /// Creates the series that alerts use with 0: Prometheus sees no increase in one that starts at 1.
    fn begin_series(&self) {
        for (counters, values) in [
            (&self.admitted, &["enforced", "open", "refused"][..]),
            (&self.announced, &["accepted", "dropped", "failed"]),
            (&self.reports, &["arrived", "failed"]),
            (&self.generations, &["held", "refused"]),
            (&self.streams, &["true", "false"]),
            (&self.service_repairs, &["rows", "programs", "reserved_ports"]),
            (&self.service_choices, &["pod", "process", "outside"]),
            (&self.source_port_tries, &["taken", "busy"]),
            (
                &self.packets,
                &[
                    "egress_rule",
                    "egress_isolation",
                    "ingress_rule",
                    "ingress_isolation",
                    "event_lost",
                    "flows_full",
                    "no_backend",
                    "no_stage",
                    "no_source_port",
                ],
            ),
        ] {
            for value in values {
                counters.with_label_values(&[*value]);
            }
        }
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

    pub(crate) fn drifted(&self, times: u64) {
        self.drifts.inc_by(times);
    }

    /// Sets the backend's counters of packets.
    pub(crate) fn packets(&self, counters: &BTreeMap<&'static str, u64>) {
        for (reason, count) in counters {
            let counter = self.packets.with_label_values(&[*reason]);
            counter.inc_by(count.saturating_sub(counter.get()));
        }
    }

    /// Sets the memory of the backend's maps, in bytes.
    pub(crate) fn map_memory(&self, bytes: u64) {
        self.map_memory.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Sets the number of ports at which health checks have no answer.
    pub(crate) fn failing_health_ports(&self, count: usize) {
        self.failing_health_ports.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Sets the figures of Services.
    pub(crate) fn services(&self, figures: &ServiceFigures) {
        let ServiceFigures { rows, choices, source_ports, repairs, programmed } = figures;
        for (map, [used, limit]) in rows {
            self.service_rows.with_label_values(&[*map]).set((*used).into());
            self.service_row_limits.with_label_values(&[*map]).set((*limit).into());
        }
        for (counters, counts) in [
            (&self.service_choices, choices),
            (&self.source_port_tries, source_ports),
            (&self.service_repairs, repairs),
        ] {
            for (name, count) in counts {
                let counter = counters.with_label_values(&[*name]);
                counter.inc_by(count.saturating_sub(counter.get()));
            }
        }
        programmed.iter().for_each(|took| self.service_programming.observe(took.as_secs_f64()));
    }

    /// Notes if the source ports of Services cannot be reserved.
    pub(crate) fn reserved_ports_failing(&self, is_failing: bool) {
        self.reserved_ports_failing.set(i64::from(is_failing));
    }

    /// Sets the number of sockets that listen at source ports of Services.
    pub(crate) fn source_port_listeners(&self, count: usize) {
        self.source_port_listeners.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Counts a repair of the reserved ports after a change by another process.
    pub(crate) fn reserved_ports_repaired(&self) {
        self.service_repairs.with_label_values(&["reserved_ports"]).inc();
    }

    pub(crate) fn stream(&self, behind: bool) {
        self.streams.with_label_values(&[if behind { "true" } else { "false" }]).inc();
    }

    /// The page of metrics, with the current state if it is known.
    pub(crate) fn page(&self, now: Option<&(Overview, Option<String>)>) -> String {
        if let Some((overview, disk)) = now {
            let set = |gauge: &IntGauge, value: usize| {
                gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            };
            let kinds = ["policy", "address_group", "applied_group", "pod"];
            let counts = kinds.into_iter().zip(overview.counts);
            let served = [("service", overview.services), ("endpoint_slice", overview.slices)];
            for (kind, count) in counts.chain(served) {
                set(&self.held.with_label_values(&[kind]), count);
            }
            set(&self.following, usize::from(overview.replica.is_some()));
            set(&self.behind, usize::from(overview.behind));
            set(&self.failing, overview.failing.len());
            set(&self.failing_endpoints, overview.failing_endpoints.len());
            set(&self.failing_services, overview.failing_services.len());
            set(&self.waiting, overview.waiting.len());
            let lag = overview.revision.saturating_sub(overview.applied);
            self.lag.set(i64::try_from(lag).unwrap_or(i64::MAX));
            set(&self.disk, usize::from(disk.is_some()));
        }
        self.meter.page()
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops where its premise fails")]

    use super::*;
    use config_metrics::Program;
    use tests_support::promtool;

    /// The series by kind of object and by map exist once the state is known.
    #[test]
    fn every_metric_of_the_catalog_is_exposed_from_the_start() {
        let page = Metrics::new().unwrap().page(None);
        for metric in Program::Agent.metrics() {
            let line = format!("# TYPE {} {}\n", metric.name, metric.kind.name());
            let late = [
                "ferrule_agent_held",
                "ferrule_agent_service_rows",
                "ferrule_agent_service_row_limit",
            ]
            .contains(&metric.name);
            assert_eq!(page.contains(&line), !late, "{line}{page}");
        }
        if promtool::is_there("every_metric_of_the_catalogue_is_exposed") {
            assert_eq!(promtool::complaints(&page).unwrap(), Vec::<String>::new());
        }
    }

    #[test]
    fn figures_of_services_are_exposed_and_counters_only_grow() {
        let metrics = Metrics::new().unwrap();
        let figures = |used, chosen| ServiceFigures {
            rows: [("backends", [used, 131_072])].into(),
            choices: [("pod", chosen), ("outside", 2)].into(),
            source_ports: [("busy", 3)].into(),
            repairs: [("rows", 1)].into(),
            programmed: vec![Duration::from_millis(80)],
        };
        metrics.services(&figures(9, 40));
        // The maps were created again, and a part of the counters with them.
        metrics.services(&figures(4, 30));
        let page = metrics.page(None);
        for line in [
            "ferrule_agent_service_rows{map=\"backends\"} 4",
            "ferrule_agent_service_row_limit{map=\"backends\"} 131072",
            "ferrule_agent_service_choices_total{client=\"pod\"} 40",
            "ferrule_agent_service_choices_total{client=\"process\"} 0",
            "ferrule_agent_source_port_tries_total{result=\"busy\"} 3",
            "ferrule_agent_service_repairs_total{object=\"rows\"} 1",
            "ferrule_agent_service_programming_seconds_count 2",
            "ferrule_agent_service_programming_seconds_bucket{le=\"0.05\"} 0",
            "ferrule_agent_service_programming_seconds_bucket{le=\"0.1\"} 2",
        ] {
            assert!(page.lines().any(|found| found == line), "{line}\n{page}");
        }
    }
}
